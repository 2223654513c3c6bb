package doctor

import "regexp"

// rdmaResource is the name of a resource for RDMA devices, not for GPUs: vendors have no rule for them.
const rdmaResource = `[\w./-]*(?:rdma|hostdev|roce|infiniband|sriov|mlnx|mellanox|fabric\.dev/|/ib\b|/ib[-_\d]|` +
	`/hca|/cx[4-9]|/[\w.-]*rail)\S*`

// clusterMessages are those of Kubernetes and of CNI plugins.
var clusterMessages = []Message{
	{
		ID:    "log-nad-missing",
		Title: "The NetworkAttachmentDefinition does not exist",
		Pattern: said(
			`cannot find a network-attachment-definition`,
			`network-attachment-definitions?\.k8s\.cni\.cncf\.io "?[^"]*"? not found`,
			`getKubernetesDelegate\b.*(?:failed to get|not found)`,
		),
		Examples: []string{
			`error adding container to network "multus-cni-network": cannot find a network-attachment-definition ` +
				`(ib-a100) in namespace (default): network-attachment-definitions.k8s.cni.cncf.io "ib-a100" not found`,
		},
		Cause: "the annotation names a network that is not there, or is in another namespace",
		Cure: "kubectl get network-attachment-definitions -A; write NAMESPACE/NAME in the annotation; or add the " +
			"pod's namespace to spec.namespaces of the Fabric; without fabric-agent fabricctl generate nad writes one",
	},
	{
		ID:    "log-no-deviceid",
		Title: "Multus passed no device",
		Pattern: said(
			`no other field selects a device`,
			`VF pci addr is required`,
			`(?:fabric|Multus|multus|sriov|host-device|rdma).*\bdeviceID\b.*(?:is missing|is empty)`,
			`(?:fabric|Multus|multus|sriov|host-device|rdma).*\bpciBusID\b.*missing`,
			`specify either "device", "hwaddr"`,
		),
		Examples: []string{
			`fabric: could not read the configuration: field "deviceID": is missing, and no other field selects a ` +
				`device`,
			"LoadConf(): VF pci addr is required",
		},
		Cause: "three things have to agree and one does not: the resource the pod asks for, the NAD's annotation " +
			"k8s.v1.cni.cncf.io/resourceName, and the number of networks in the pod's annotation (four networks " +
			"need a count of 4)",
		Cure: "kubectl get pod POD -o json | fabricctl doctor pod -f - says which",
	},
	{
		ID:    "log-insufficient",
		Title: "No node has the resource",
		Pattern: said(
			`Insufficient `+rdmaResource,
			`devices? unavailable for `+rdmaResource,
			`unregistered device `+rdmaResource,
		),
		Examples: []string{
			"0/5 nodes are available: 5 Insufficient rdma/rdma_a100.",
			"Allocate failed due to requested number of devices unavailable for nvidia.com/ib_pf. Requested: 4, " +
				"Available: 3, which is unexpected",
		},
		Cause: "no device plugin offers that resource on any node, or all devices are taken, or the plugin has not " +
			"seen them since it was started",
		Cure: "kubectl get fabrics and kubectl get fabricnodes, for fabric.dev/NAME; kubectl get node NODE -o " +
			"jsonpath='{.status.allocatable}'; of another device plugin its log and its selectors, which fabricctl " +
			"generate device-plugin writes",
	},
	{
		ID:    "log-plugin-missing",
		Title: "A CNI plugin is not installed",
		Pattern: said(
			`failed to find plugin "[^"]+" in path`,
			`IPAM plugin not started`,
			`exec: "?/opt/cni/bin/\S+"?: (?:no such file|executable file not found)`,
		),
		Examples: []string{`plugin type="multus" failed (add): failed to find plugin "fabric" in path [/opt/cni/bin]`},
		Cause:    "the binary is not in the runtime's plugin directory on that node",
		Cure: "make install, or the DaemonSet that installs it; for whereabouts its DaemonSet; the directory: " +
			"bin_dir in containerd's configuration",
	},
	{
		ID:    "log-multus-kubeconfig",
		Title: "Multus or whereabouts can't reach the API server",
		Pattern: said(
			`(?:stat|open) \S*(?:multus|whereabouts)\.kubeconfig: (?:no such file|permission denied)`,
			`GetK8sClient: failed`,
			`(?:[Mm]ultus|[Ww]hereabouts)\b.*error creating kubernetes client`,
			`Multus: .*Unauthorized`,
			`Multus: .*x509:`,
		),
		Examples: []string{
			"failed to instantiate the kubernetes client: stat /etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig: " +
				"no such file or directory",
			"Multus: [default/train-0]: error waiting for pod: Unauthorized",
		},
		Cause: "the kubeconfig that its DaemonSet writes to the node is missing, in another directory, or its token " +
			"has expired",
		Cure: "ls -l /etc/cni/net.d/multus.d /etc/cni/net.d/whereabouts.d; restart the DaemonSet; the field " +
			"kubernetes.kubeconfig of the IPAM configuration",
	},
	{
		ID:    "log-range-full",
		Title: "whereabouts has no address left",
		Pattern: said(
			`Could not allocate IP in range`,
			`(?i)whereabouts.*no (?:more )?(?:available )?(?:IP )?addresses? (?:are )?(?:available|left)`,
			`(?i)whereabouts.*range.*(?:full|exhausted)`,
		),
		Examples: []string{
			"error assigning IP: Could not allocate IP in range: ip: 192.168.3.225 / - 192.168.3.238 / range: " +
				"192.168.3.224/28 / excludeRanges: [192.168.3.229/30]",
			"error at storage engine: Could not allocate IP in range: ip: 100.76.215.210 / - 100.76.215.213 / " +
				"range: net.IPNet{IP:net.IP{0x64, 0x4c, 0xd7, 0xd0}}",
		},
		Cause: "the range is too small for the pods, or addresses of dead pods are still taken",
		Cure: "kubectl get ippools.whereabouts.cni.cncf.io -A -o yaml; a wider range (a /27 has 30 addresses, for " +
			"rails times pods); whereabouts' ip-reconciler; fabricctl repair on the nodes",
	},
	{
		ID:    "log-range-lease",
		Title: "whereabouts waited too long",
		Pattern: said(
			`time limit exceeded while waiting to become leader`,
			`context deadline exceeded.*whereabouts`,
			`whereabouts.*context deadline exceeded`,
		),
		Examples: []string{"error at storage engine: time limit exceeded while waiting to become leader"},
		Cause: "all addresses of a cluster go through one lease: hundreds of pods at once are slow, and the API " +
			"server may be",
		Cure: "it is retried; fewer pods at a time, one range per rail, or node slices (enable_slices with " +
			"equal ranges per network_name)",
	},
	{
		ID:    "log-whereabouts-rbac",
		Title: "whereabouts may not do it",
		Pattern: said(
			`(?:ippools|overlappingrangeipreservations|nodeslicepools)\S*whereabouts\S* .*(?:forbidden|not found)`,
			`no matches for kind "?(?:IPPool|OverlappingRangeIPReservation|NodeSlicePool)\b.*whereabouts`,
		),
		Examples: []string{
			`ippools.whereabouts.cni.cncf.io is forbidden: User "system:serviceaccount:kube-system:whereabouts" ` +
				`cannot get resource "ippools"`,
		},
		Cause: "its CRDs or its ClusterRole are missing or of another version",
		Cure:  "apply the CRDs and the DaemonSet of one whereabouts release together",
	},
	{
		ID:    "log-netns-mode",
		Title: "The RDMA mode can't be switched now",
		Pattern: said(
			`(?i)rdma system set\b.*Device or resource busy`,
			`(?i)netns (?:mode|exclusive|shared)\b.*Device or resource busy`,
			`(?i)failed to set RDMA (?:subsystem|system|netns|network)\b.*(?:busy|mode)`,
		),
		Examples: []string{"rdma system set netns exclusive: error: Device or resource busy"},
		Cause:    "the mode can be switched only while no network namespace but the host's exists",
		Cure: "kubectl fabric node-mode exclusive NODE, which drains and reboots it; without a cluster: fabricctl " +
			"node-mode exclusive --local; reboot",
	},
	{
		ID:    "log-shared-plugin",
		Title: "The RDMA shared device plugin does not start",
		Pattern: said(
			`(?i)incorrect RDMA subsystem (?:mode|network namespace)`,
			`(?i)RDMA subsystem.*(?:is not|not set to).*shared`,
			`(?i)rdma.?shared.?device.?plugin.*exclusive`,
		),
		Examples: []string{"Exiting.. can not change : incorrect RDMA subsystem network namespace"},
		Cause:    "in exclusive mode a pod can't use the host's RDMA devices, which is all that plugin does",
		Cure: "exclusive: the SR-IOV network device plugin with fabric; shared: rdma system set netns shared " +
			"(see host-rdma-mode)",
	},
	{
		ID:      "log-rdma-spec",
		Title:   "A device plugin finds no character devices for an HCA",
		Pattern: regexp.MustCompile(`missing RDMA device spec for device`),
		Examples: []string{
			`error creating new device: "missing RDMA device spec for device 0000:c4:00.0, RDMA device \"issm\" not ` +
				`found"`,
		},
		Cause: "ib_umad or ib_uverbs is not loaded, or the port is Ethernet: it has no issm device, which is for " +
			"InfiniBand management",
		Cure: "modprobe -a ib_umad ib_uverbs rdma_ucm; for RoCE a version of the plugin that does not ask for it; " +
			"leave functions that are no rail out of the selectors",
	},
	{
		ID:    "log-mode-shared",
		Title: "The network wants exclusive mode",
		Pattern: said(
			`RDMA network namespace mode is shared`,
			`namespace awareness mode is not set to exclusive`,
		),
		Examples: []string{
			`fabric: could not attach net1 to container c1: "rdma" is "exclusive", but the system's RDMA network ` +
				`namespace mode is shared`,
			"RDMA subsystem namespace awareness mode is not set to exclusive",
		},
		Cause: "the configuration moves RDMA devices, which this node's mode does not allow",
		Cure: "\"rdma\": \"auto\" works in both; or set the mode at boot: options ib_core netns_mode=0 in " +
			"/etc/modprobe.d of the node",
	},
	{
		ID:    "log-not-movable",
		Title: "The RDMA device can't be moved",
		Pattern: regexp.MustCompile(
			`(?i)rdma dev set \S+ netns.*operation not supported|move RDMA device.*operation not supported`,
		),
		Examples: []string{"rdma dev set mlx5_0 netns $POD: operation not supported"},
		Cause:    "the driver can't (rxe, siw), or the system is in shared mode",
		Cure:     "rdma system; \"rdma\": \"shared\" or \"none\" for such a driver",
	},
	{
		ID:    "log-in-use",
		Title: "Another pod has the device",
		Pattern: said(
			`device \S+ is in use by (?:container|pod)`,
			`has IPoIB children in use by`,
		),
		Examples: []string{
			"fabric: could not attach net1 to pod ml/b (container 92b1de40c6f7): device pci/0000:3b:00.0 is in use " +
				"by pod ml/a (container 0f3c5a7be912) as net1 (network ib, network namespace /run/netns/x); it is " +
				"free again when that pod is deleted",
		},
		Cause: "nothing counts the devices (the network names one by itself), or an old pod has not ended",
		Cure:  "fabricctl list; give the network a resource of a device plugin; fabricctl repair if the pod is gone",
	},
	{
		ID:    "log-address-in-use",
		Title: "Another host on the network has the address",
		Pattern: said(
			`address \S+ is in use on this network by`,
			`fabric: .*address \S+ is in use by`,
		),
		Examples: []string{
			"fabric: could not attach net1 to container c1: probe-addresses (ip netns exec $POD arping -D -c 3 -I " +
				"$DEV 192.168.10.7): address 192.168.10.7 is in use on this network by 02:00:00:00:00:01; find it",
		},
		Cause: "a host or pod that this IPAM range does not know of has it: a fixed address, another cluster or range",
		Cure:  "ip neigh on a node of that network shows who; take the address out of the range (exclude)",
	},
	{
		ID:    "log-no-device-here",
		Title: "The network's device is not on this node",
		Pattern: said(
			`no such device on this host`,
			`failed to find (?:the )?host device`,
			`failed to (?:lookup|find) (?:master|parent|PF)\b.*(?:Link not found|no such)`,
			`failed to lookup master\b`,
		),
		Examples: []string{
			`fabric: could not attach net1 to container c1: device "ibs108": no such device on this host: file does ` +
				`not exist`,
			"failed to find host device: Link not found",
		},
		Cause: "interface names differ between nodes, or the device is in a pod, or its driver is not loaded",
		Cure: "fabricctl discover on that node; select by resource (deviceID) instead of by name; fabricctl " +
			"generate nad proposes one network per fabric",
	},
	{
		ID:      "log-pkey",
		Title:   "The port is not in the partition",
		Pattern: regexp.MustCompile(`is not a member of this partition`),
		Examples: []string{
			`fabric: could not attach net1 to container c1: field "pkey": value 0x9002: mlx5_0 port 1 is not a ` +
				`member of this partition, it has [0xffff 0x8001]`,
		},
		Cause: "the subnet manager has not put the port into the partition that the network names",
		Cure: "cat /sys/class/infiniband/*/ports/1/pkeys/* on that node; add the port's GUID to the partition at the " +
			"subnet manager, or correct \"pkey\" in the network",
	},
	{
		ID:      "log-policy",
		Title:   "The node's owner forbids it",
		Pattern: regexp.MustCompile(`refused by node policy`),
		Examples: []string{
			"fabric: could not attach net1 to container c1: refused by node policy: bond0 carries the host's " +
				"default route",
		},
		Cause: "the device carries the node's own network, or is not among those that may be used",
		Cure:  "another device; or /etc/cni/fabric.d/policy.json on that node",
	},
	{
		ID:    "log-name-taken",
		Title: "The name is taken",
		Pattern: said(
			`(?i)failed to (?:move|rename) \S+ to .{0,60}file exists`,
			`(?i)ip link set \S.*file exists`,
			`(?:CNI|fabric|Multus|multus|plugin).*interface name \S+ already exists`,
			`the pod has an interface of this name`,
			`container veth name .* already exists`,
		),
		Examples: []string{
			"failed to move \"ibs108\" to host netns: file exists",
			"CNI_IFNAME net1: the pod has an interface of this name (net1)",
		},
		Cause: "an interface, or an altname, of that name is there already",
		Cure: "choose another in the annotation (NETWORK@INTERFACE); on the host: ip link show dev NAME, fabricctl " +
			"repair",
	},
	{
		ID:    "log-text-busy",
		Title: "The plugin can't be overwritten",
		Pattern: said(
			`(?i)/opt/cni/bin/\S*.{0,40}text file busy`,
			`(?i)text file busy.{0,40}/opt/cni/bin/`,
		),
		Examples: []string{"cp: cannot create regular file '/opt/cni/bin/fabric': Text file busy"},
		Cause:    "an installer writes into a binary that is running",
		Cure:     "write beside it and rename, as make install does",
	},
}
