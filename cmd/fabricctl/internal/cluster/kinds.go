package cluster

// Resources that fabricctl reads.
var (
	Pods       = Resource{Version: "v1", Resource: "pods"}
	Nodes      = Resource{Version: "v1", Resource: "nodes"}
	Events     = Resource{Version: "v1", Resource: "events"}
	Namespaces = Resource{Version: "v1", Resource: "namespaces"}

	DaemonSets  = Resource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	Deployments = Resource{Group: "apps", Version: "v1", Resource: "deployments"}
	Leases      = Resource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	CRDs        = Resource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

	Fabrics     = Resource{Group: "fabric.dev", Version: "v1alpha1", Resource: "fabrics"}
	FabricNodes = Resource{Group: "fabric.dev", Version: "v1alpha1", Resource: "fabricnodes"}
	Networks    = Resource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	Pools       = Resource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}
	MPIJobs     = Resource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}

	NicClusterPolicies = Resource{Group: "mellanox.com", Resource: "nicclusterpolicies"}
	NicNodePolicies    = Resource{Group: "mellanox.com", Resource: "nicnodepolicies"}
	SriovPools         = Resource{Group: "sriovnetwork.openshift.io", Resource: "sriovnetworkpoolconfigs"}
	SriovStates        = Resource{Group: "sriovnetwork.openshift.io", Resource: "sriovnetworknodestates"}
	MachineConfigs     = Resource{Group: "machineconfiguration.openshift.io", Resource: "machineconfigs"}

	Claims    = Resource{Group: DRA, Resource: "resourceclaims"}
	Templates = Resource{Group: DRA, Resource: "resourceclaimtemplates"}
	Slices    = Resource{Group: DRA, Resource: "resourceslices"}
	Classes   = Resource{Group: DRA, Resource: "deviceclasses"}
)

// DRA is the API group of Dynamic Resource Allocation.
const DRA = "resource.k8s.io"
