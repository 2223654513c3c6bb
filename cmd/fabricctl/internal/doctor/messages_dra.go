package doctor

import "regexp"

// claimMessages are those of Dynamic Resource Allocation: of Kubernetes 1.34 and later, of container runtimes, and of
// fabric.
var claimMessages = []Message{
	{
		ID:    "log-dra-allocate",
		Title: "No node has the devices that the claims ask for",
		Pattern: said(
			`cannot allocate all claims`,
			`resourceclaim not available on the node`,
		),
		Examples: []string{
			"0/5 nodes are available: 5 cannot allocate all claims. still not schedulable, preemption: 0/5 nodes " +
				"are available: 5 Preemption is not helpful for scheduling.",
			"0/39 nodes are available: 1 resourceclaim not available on the node, 38 node(s) cannot allocate all " +
				"claims.",
		},
		Cause: "all ResourceClaims of a pod have to be satisfied on one node, with their selectors and constraints: " +
			"no node has so many devices, has them in order, or has them left",
		Cure: "fabricctl doctor pod NAMESPACE/NAME says which request, and what nodes have",
	},
	{
		ID:    "log-dra-not-created",
		Title: "The pod's ResourceClaim is not there",
		Pattern: regexp.MustCompile(
			`ResourceClaim not created yet|FailedResourceClaimCreation|resource claim template "[^"]*": |` +
				`resourceclaims?\.resource\.k8s\.io "[^"]*" not found|resourceclaim "[^"]*" not found`,
		),
		Except: regexp.MustCompile(`delete claim`), // the controller, of a claim whose pod has gone
		Examples: []string{
			`0/5 nodes are available: pod "ml/train-0": ResourceClaim not created yet.`,
			`PodResourceClaim rails: resource claim template "train": resourceclaimtemplate.resource.k8s.io "train" ` +
				`not found`,
		},
		Cause: "the ResourceClaimTemplate or ResourceClaim that the pod names is not in its namespace, or " +
			"kube-controller-manager has not made the claim",
		Cure: "kubectl get resourceclaimtemplates,resourceclaims -n NAMESPACE; fabricctl doctor pod " +
			"NAMESPACE/NAME",
	},
	{
		ID:      "log-dra-class",
		Title:   "The DeviceClass does not exist",
		Pattern: regexp.MustCompile(`device class \S+ does not exist|could not retrieve device class`),
		Examples: []string{
			"0/5 nodes are available: 5 request rails: device class ib-200g.fabric.dev does not exist.",
		},
		Cause: "the controller makes a DeviceClass NAME.fabric.dev for each Fabric with allocation DRA, and there " +
			"is none of this name",
		Cure: "kubectl get deviceclasses,fabrics; spec.allocation: DRA in the Fabric; fabricctl doctor cluster",
	},
	{
		ID:    "log-dra-in-use",
		Title: "Another pod has the claim",
		Pattern: regexp.MustCompile(`resourceclaim in use|is not allowed to use ResourceClaim|the claim is reserved ` +
			`for`),
		Examples: []string{
			"0/5 nodes are available: 5 resourceclaim in use.",
			"the claim is reserved for 2 pods: want exactly one pod, because an interface goes into one network " +
				"namespace",
		},
		Cause: "several pods name one ResourceClaim, and an interface can be in one pod only",
		Cure:  "a ResourceClaimTemplate (resourceClaimTemplateName): each pod gets a claim of its own",
	},
	{
		ID:    "log-dra-unregistered",
		Title: "kubelet does not know the driver",
		Pattern: said(
			`DRA driver fabric\.dev is not registered`,
			`no connection to the DRA driver`,
		),
		Examples: []string{
			"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver fabric.dev is not registered",
		},
		Cause: "fabric-agent does not run on the node, is starting, or the directories of kubelet's plugins are not " +
			"mounted into it. The pod waits, and starts when the driver is back",
		Cure: "kubectl -n fabric-system get pods -o wide; its logs; ls /var/lib/kubelet/plugins_registry " +
			"/var/lib/kubelet/plugins/fabric.dev on the node",
	},
	{
		ID:    "log-dra-prepare",
		Title: "The devices of a claim can't be made ready",
		Pattern: regexp.MustCompile(
			`NodePrepareResources failed for ResourceClaim|NodePrepareResources: |NodePrepareResources skipped|` +
				`cannot prepare a claim`,
		),
		Examples: []string{
			"Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for " +
				"ResourceClaim train-0-rails-x7k2p: claim ml/train-0-rails-x7k2p: device pci-0000-3b-00-0: this " +
				"node has no such device of a Fabric with allocation DRA now; it has none; delete the pod to have " +
				"its claim allocated again",
		},
		Cause: "the agent has looked whether the plugin could attach the device, and it could not: the message ends " +
			"with the device and the reason. kubelet tries again, and the pod does not start before",
		Cure: "what the message says; fabricctl doctor host on the node; a claim with wrong parameters has to be " +
			"made again, with its pod",
	},
	{
		ID:    "log-dra-cdi",
		Title: "The runtime does not find the claim's device",
		Pattern: said(
			`unresolvable CDI devices?\b.*fabric\.dev/`,
			`CDI device injection failed.*fabric\.dev/`,
		),
		Examples: []string{
			"Error: CDI device injection failed: unresolvable CDI devices fabric.dev/claim=5b0f1a3c-rails",
		},
		Cause: "the agent has written the CDI spec of the claim to /var/run/cdi, and the runtime does not read that " +
			"directory, has CDI switched off, or the file has gone",
		Cure: "containerd 1.7 and later: enable_cdi = true and cdi_spec_dirs with /var/run/cdi (2.0: both as it " +
			"comes); CRI-O: cdi_spec_dirs; ls /var/run/cdi on the node; delete the pod",
	},
	{
		ID:    "log-dra-not-attached",
		Title: "A device of the pod's claim has no interface in the pod",
		Pattern: regexp.MustCompile(
			`ResourceClaim \S+ gives this pod .*(no interface of it is in the pod|has it as|has not been attached|` +
				`could not attach|its addresses are whereabouts')`),
		Examples: []string{
			"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create " +
				"failed: unable to start container process: error during container init: error running " +
				"createRuntime hook #0: exit status 1, stdout: , stderr: fabric: ResourceClaim " +
				"ml/train-0-rails-x7k2p gives this pod mlx5_0 (0000:3b:00.0) of fabric ib-400g: could not attach " +
				"net1 to pod ml/train-0 (container 3f2504e0-4f8): port 1 of mlx5_0 is Down; check cable " +
				"and subnet manager",
			"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create " +
				"failed: unable to start container process: error during container init: error running " +
				"createRuntime hook #0: exit status 1, stdout: , stderr: fabric: ResourceClaim " +
				"ml/train-0-rails-x7k2p gives this pod mlx5_0 (0000:3b:00.0) of fabric ib-200g, and no interface of " +
				"it is in the pod: name the network ib-200g 4 times in the annotation k8s.v1.cni.cncf.io/networks " +
				"(3 of 4 are attached), and look whether Multus is installed on the node; then delete the pod: what " +
				"it was started with stays as it is",
		},
		Cause: "the container was not started, so that it does not run without its rail: the device could not be " +
			"attached, and the message ends with the reason. One that names the annotation is of a claim that an " +
			"older agent has prepared, or of a Fabric whose addresses need Multus",
		Cure: "what the message says: kubelet tries again, and attaches what is still missing; where it names the " +
			"annotation, add the network there, and delete the pod",
	},
	{
		ID:    "log-dra-hook",
		Title: "What the agent has prepared for a pod can't be read, or the hook that looks for it can't be run",
		Pattern: regexp.MustCompile(
			`error running createRuntime hook .*(claim-attached|fabric: |bin/fabric)|` +
				`what ResourceClaims give to pod .* can't be read`),
		Except: regexp.MustCompile(`ResourceClaim \S+ gives this pod`),
		Examples: []string{
			"OCI runtime create failed: runc create failed: unable to start container process: error during " +
				"container init: error running createRuntime hook #0: fork/exec /opt/cni/bin/fabric: no such file " +
				"or directory",
			"fabric: what ResourceClaims give to pod ml/train-0 can't be read: unexpected end of JSON input",
		},
		Cause: "the runtime runs the installed plugin before a container with a claim starts, and it could not be " +
			"run, or could not read what the agent has prepared",
		Cure: "ls -l /opt/cni/bin/fabric and ls /run/fabric-cni/prepared on the node; the agent installs the " +
			"plugin; delete the pod",
	},
	{
		ID:    "log-dra-uid",
		Title: "The plugin is not told which pod it is",
		Pattern: regexp.MustCompile(
			`CNI_ARGS has no K8S_POD_UID|CNI_ARGS K8S_POD_UID: value .* is no UID`),
		Examples: []string{
			`fabric: CNI_ARGS has no K8S_POD_UID, and the device is one that a ResourceClaim gives to the pod ` +
				`("allocation": "DRA"): which pod is it? (containerd and CRI-O pass it, through Multus too; any ` +
				`other caller of the plugin has to)`,
		},
		Cause: "the network's devices come from ResourceClaims, which belong to pods, and CNI_ARGS has no UID of a " +
			"pod: the runtime or the program between it and the plugin does not pass it on",
		Cure: "containerd 1.4, CRI-O 1.20 or Multus 3.8 and later pass it; by hand: CNI_ARGS=K8S_POD_UID=UID",
	},
	{
		ID:    "log-dra-no-claim",
		Title: "A network without a claim, or more networks than devices",
		Pattern: regexp.MustCompile(
			`none of its ResourceClaims gives it a device of fabric|once more than its ResourceClaims give it ` +
				`devices|` +
				`is none of those of fabric \S+ that ResourceClaims give to pod`),
		Examples: []string{
			"fabric: pod ml/train-0 has the network ib-200g in its annotation, but none of its ResourceClaims gives " +
				"it a device of fabric ib-200g (add a claim of DeviceClass ib-200g.fabric.dev to the pod, or take " +
				"the network out of its annotation)",
			"fabric: pod ml/train-0 has the network ib-200g in its annotation once more than its ResourceClaims " +
				"give it devices: pci/0000:3b:00.0 (claim ml/train-0-rails-x7k2p) is net1 (name the network ib-200g " +
				"at most 1 times, or let a claim ask for more devices)",
		},
		Cause: "the Fabric has allocation DRA: each network in the annotation takes one device of the pod's claims, " +
			"and there is none left",
		Cure: "fabricctl doctor pod NAMESPACE/NAME compares them; fabricctl generate claim --with-pod writes both",
	},
	{
		ID:      "log-dra-given",
		Title:   "A ResourceClaim gives the device to another pod",
		Pattern: regexp.MustCompile(`is given to pod \S+ by ResourceClaim|is prepared for claim \S+ of pod`),
		Examples: []string{
			"fabric: device pci/0000:3b:00.0 is given to pod ml/train-1 by ResourceClaim ml/train-1-rails-9qv4d " +
				"(kubelet gives it back when that pod has ended (NodeUnprepareResources))",
		},
		Cause: "a pod with another network asks for a device that the scheduler has given to another pod: two " +
			"owners hand it out, for example another device plugin beside a Fabric with allocation DRA, or a " +
			"network that names it",
		Cure: "one owner for a device: take it out of the other device plugin's selectors or the other network; " +
			"else wait until that pod has ended",
	},
}

func init() { Messages = append(Messages, claimMessages...) }
