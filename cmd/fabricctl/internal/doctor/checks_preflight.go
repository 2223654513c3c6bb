package doctor

// localCommand is what tells of a node what the API server does not know.
const localCommand = "on one node of each kind, as root: fabricctl preflight --local"

// preflightChecks are those of fabricctl preflight. Status FAIL is for what exclusive mode stops, or what stops the
// installation; WARN for what is to be done.
var preflightChecks = []Check{
	{
		"preflight-access",
		"The cluster could be looked at",
		"the role may not list it, or an object can't be read: what depends on it was not judged",
		"a role that may get and list it; kubectl auth can-i --list",
	},
	{
		"preflight-nodes",
		"It is known which nodes have HCAs",
		"no label of node feature discovery, no resource of a device plugin and no FabricNode tells it",
		localCommand,
	},
	{
		"preflight-local",
		"It is known what the nodes have",
		"RDMA mode, driver and programs of the host are facts of the node that no object of the cluster has before " +
			"fabric-agent runs",
		localCommand,
	},
	{
		"preflight-kubernetes",
		"Kubernetes is new enough",
		"fabric-cni needs Kubernetes 1.32 or later: its CRDs and admission policies use what came with it",
		"upgrade the cluster first",
	},
	{
		"preflight-features",
		"The API server has what fabric-cni uses",
		"ValidatingAdmissionPolicy is switched off: without it any agent may write any FabricNode, and agents report " +
			"WritesUnconfined",
		"serve admissionregistration.k8s.io/v1 (kube-apiserver --runtime-config)",
	},
	{
		"preflight-kernel",
		"The kernel is known",
		"the kernel could not be read",
		localCommand,
	},
	{
		"preflight-driver",
		"The RDMA driver keeps the RDMA mode",
		"a driver container unloads ib_core and loads it again after the boot, with the modprobe.d of its own image: " +
			"what the node has in /etc/modprobe.d does not count",
		"set ib_core.netns_mode=0 on the kernel command line, which modprobe reads in the container as well; " +
			"reboot one node, wait for the driver container, and look: rdma system",
	},
	{
		"preflight-rdma-mode",
		"The nodes have the RDMA mode that is wanted",
		"the mode is decided when ib_core is loaded; the kernel's default is shared. It can't be changed while any " +
			"pod runs",
		"kubectl fabric node-mode exclusive NODE... (or shared), which drains and reboots them one by one. Shared " +
			"Fabrics work without it",
	},
	{
		"preflight-mode-owner",
		"No operator sets another RDMA mode",
		"an operator owns the RDMA mode or the files of the node, and undoes what is written by hand",
		"change it at the operator: spec.rdmaMode of the SriovNetworkPoolConfig; on OpenShift a MachineConfig with " +
			"kernelArguments [ib_core.netns_mode=0]",
	},
	{
		"preflight-multus",
		"Multus runs on every node",
		"pods get their interfaces through Multus: without it, or where it is not ready, they get none, but for " +
			"those with ResourceClaims (allocation DRA)",
		"install Multus, thick or thin: https://github.com/k8snetworkplumbingwg/multus-cni; or wait for its " +
			"DaemonSet: kubectl -n NAMESPACE rollout status daemonset NAME; or give all Fabrics allocation: DRA",
	},
	{
		"preflight-shared-plugin",
		"Nothing offers shared RDMA devices",
		"the RDMA shared device plugin gives pods character devices of HCAs that stay on the host: in exclusive mode " +
			"a pod can't open them, and the plugin does not start",
		"keep these nodes in shared mode; or end or move its pods (preflight-rdma-pods), then take the plugin off " +
			"these nodes: its nodeSelector, or rdmaSharedDevicePlugin of the NicClusterPolicy or " +
			"NicNodePolicy",
	},
	{
		"preflight-device-plugins",
		"No other device plugin offers the HCAs",
		"two device plugins that offer one device give it to two pods",
		"kubectl fabric migrate writes Fabrics in their place; remove the resource from its device plugin " +
			"before a Fabric is applied that has its devices",
	},
	{
		"preflight-rdma-pods",
		"No pod asks for shared RDMA devices",
		"in exclusive mode an RDMA device is in one network namespace only: the pod starts, and opens no HCA",
		"let it ask for a Fabric in place of rdma/... (fabricctl generate pod --cluster writes what it needs), or " +
			"keep it on nodes in shared mode",
	},
	{
		"preflight-host-users",
		"Nothing uses verbs on the host, or by the device files of the host",
		"in exclusive mode a pod with a network namespace of its own sees no HCA of the host. A program in the " +
			"host's " +
			"loses each HCA that moves into a pod: its calls fail with EIO; while it has queue pairs ADD refuses the " +
			"HCA with error 101",
		"end it on these nodes, leave the HCAs that it uses out of the Fabrics, or keep the nodes in shared mode",
	},
	{
		"preflight-ranges",
		"It is known which addresses the cluster uses",
		"the range of a Fabric becomes a route in its pods: one with addresses of Services, pods or nodes takes " +
			"their traffic to the rail",
		"a role that may list them; or compare by hand the range that you give to fabricctl generate fabric --range",
	},
	{
		"preflight-ipam",
		"It is known which IPAM plugins have pools",
		"their pools could not be read",
		"a role that may list them",
	},
}
