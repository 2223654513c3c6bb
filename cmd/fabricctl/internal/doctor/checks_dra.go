package doctor

// claimChecks are those of doctor pod and doctor cluster for Dynamic Resource Allocation.
var claimChecks = []Check{
	{
		"pod-claim-access",
		"The pod's ResourceClaims can be asked for",
		"the role may not list them, or the API server does not serve resource.k8s.io/v1 (Kubernetes 1.34)",
		"a role that may list resourceclaims, resourceclaimtemplates, resourceslices and deviceclasses of " +
			"resource.k8s.io; kubectl api-resources --api-group=resource.k8s.io",
	},
	{
		"pod-claim",
		"The pod's ResourceClaims are there",
		"the name in spec.resourceClaims is wrong, the ResourceClaimTemplate is in another namespace, or the " +
			"controller of kube-controller-manager has not made the claim",
		"kubectl get resourceclaimtemplates,resourceclaims -A; fabricctl generate claim writes a template",
	},
	{
		"pod-claim-container",
		"A container has each claim of the pod",
		"a claim in spec.resourceClaims that no container names: its devices get interfaces, and no container gets " +
			"their device files",
		"resources: {claims: [{name: NAME}]} in the container",
	},
	{
		"pod-claim-class",
		"The DeviceClasses of the claims exist",
		"the controller makes NAME.fabric.dev for each Fabric with allocation DRA: the Fabric is called " +
			"differently, has allocation DevicePlugin, or the driver of other devices is not installed",
		"kubectl get deviceclasses; kubectl get fabrics; spec.allocation: DRA in the Fabric",
	},
	{
		"pod-claim-allocated",
		"The scheduler can give devices to the pod's claims",
		"all claims of a pod have to fit on one node: what is asked for is more than a node has, has in order, or " +
			"has left",
		"ask for fewer (fabricctl generate claim --cluster writes what most nodes have); delete the pods that have " +
			"the devices; ports that are down: fabricctl doctor cluster, and doctor host on the node",
	},
	{
		"pod-claim-pool",
		"The pools of devices are complete",
		"the agent of the node is writing its ResourceSlices, or was stopped half-way: until all are there the " +
			"scheduler gives nothing of them",
		"kubectl -n fabric-system logs POD of the node's fabric-agent; kubectl get resourceslices --field-selector " +
			"spec.driver=fabric.dev",
	},
	{
		"pod-claim-count",
		"The annotation has no more networks than the claims have devices",
		"each network takes one device of the pod's claims: with more networks ADD fails (code 100). Those without a " +
			"network are attached all the same",
		"take networks out of k8s.v1.cni.cncf.io/networks: a claim needs none",
	},
	{
		"pod-claim-shared",
		"One pod has a claim",
		"several pods name one ResourceClaim (resourceClaimName), and an interface can be in one pod only",
		"a ResourceClaimTemplate (resourceClaimTemplateName): each pod gets a claim of its own",
	},
	{
		"pod-event",
		"No Event of the pod is a message that is known",
		"the message in the evidence says it",
		"that of the message",
	},
	{
		"pod-rails",
		"Each HCA of the pod has its interface",
		"the annotation has fewer networks than the pod has devices of the device plugin, or a network was not " +
			"attached",
		"one network per device in k8s.v1.cni.cncf.io/networks; fabricctl doctor pod NAMESPACE/NAME compares " +
			"them",
	},
	{
		"cluster-dra-api",
		"The API server serves Dynamic Resource Allocation",
		"a Fabric has allocation DRA, and resource.k8s.io/v1 is served since Kubernetes 1.34 only; kubelets of " +
			"older nodes prepare nothing",
		"Kubernetes 1.34 or later on API server and nodes (without --runtime-config=resource.k8s.io/v1=false), or " +
			"spec.allocation: DevicePlugin",
	},
	{
		"cluster-dra-class",
		"Each Fabric with allocation DRA has its DeviceClass",
		"the controller is away, may not write DeviceClasses, or it was deleted",
		"kubectl describe fabric NAME; the controller's logs; see cluster-controller",
	},
	{
		"cluster-dra-slices",
		"Each node offers the devices of Fabrics with allocation DRA in ResourceSlices",
		"fabric-agent does not run there, or is not registered as driver fabric.dev with that node's kubelet, which " +
			"removes the slices of a driver that is away; or the devices are unhealthy",
		"kubectl describe fabricnode NODE; kubectl -n fabric-system logs POD; ls /var/lib/kubelet/plugins_registry " +
			"on the node has the driver's socket",
	},
}
