package doctor

// clusterChecks are those of doctor cluster.
var clusterChecks = []Check{
	{
		"cluster-access",
		"The cluster can be asked",
		"the role may not list it, or it is not installed; or an object in it is not what an agent writes",
		"a role that may get and list it; kubectl auth can-i --list",
	},
	{
		"cluster-crds",
		"The CustomResourceDefinitions are there",
		"Multus, whereabouts or the kinds of fabric-cni are not installed, or in another version",
		"apply the manifests of one release; those of Fabric and FabricNode are in deployments/crds",
	},
	{
		"cluster-daemons",
		"Multus, whereabouts, fabric-agent and the device plugins run on every node, in one version",
		"not installed, crashing, or an update that has stopped half-way",
		"kubectl -n NAMESPACE rollout status daemonset NAME; the logs of the pods that are not ready",
	},
	{
		"cluster-controller",
		"The controller runs and leads",
		"its pods are not scheduled or crash, or can't reach the API server: what runs goes on, but new nodes get no " +
			"ranges, new Fabrics no networks, and a Fabric that is deleted stays",
		"kubectl -n fabric-system get pods -l app.kubernetes.io/name=fabric-controller; kubectl -n fabric-system " +
			"logs -l app.kubernetes.io/name=fabric-controller; kubectl -n fabric-system get lease fabric-controller " +
			"-o yaml",
	},
	{
		"cluster-fabrics",
		"Every Fabric is Ready",
		"the condition in the evidence says it",
		"kubectl describe fabric NAME: conditions and events",
	},
	{
		"cluster-addresses",
		"No Service, pod, node or pool has addresses of a Fabric",
		"the range of the Fabric is that of Services, of the pods' first interface or of another pool: pods send " +
			"such traffic through the rail",
		"kubectl edit fabric NAME, once no pod has its addresses: a free range, as fabricctl generate fabric " +
			"--cluster proposes for a new Fabric",
	},
	{
		"cluster-deletion",
		"No Fabric hangs in its deletion",
		"the finalizer keeps a Fabric until no pod uses it, and only the controller removes it",
		"start the controller; if it is gone for good and fabricctl list shows no pod on it: kubectl patch fabric " +
			"NAME --type=merge -p '{\"metadata\":{\"finalizers\":null}}'",
	},
	{
		"cluster-fabricnodes",
		"Every FabricNode is Ready",
		"the condition in the evidence says it; a port that is down has no peer or no subnet manager",
		"kubectl describe fabricnode NODE; fabricctl doctor host on that node",
	},
	{
		"cluster-node-ranges",
		"Every node has its ranges",
		"the controller is away, or the range of the Fabric is used up: pods that need an address there wait",
		"kubectl describe fabric NAME: AddressesSufficient; a wider range, a longer perNodePrefixLength, or " +
			"a shorter reclaim; " +
			"see cluster-controller",
	},
	{
		"cluster-rdma-mode",
		"The nodes of a Fabric have one RDMA mode",
		"the mode is decided when ib_core is loaded; some nodes were set up differently",
		"kubectl fabric node-mode exclusive NODE (or shared), which drains and reboots it; or Fabrics of their own " +
			"for these nodes",
	},
	{
		"cluster-agents",
		"An agent speaks for every node with devices",
		"fabric-agent does not run there (taints, nodeSelector, crashes), or may not write: the API server takes " +
			"from an agent what is about its own node",
		"kubectl -n fabric-system get pods -o wide; kubectl -n fabric-system logs POD; kubectl auth can-i create " +
			"fabricnodes --as=system:serviceaccount:fabric-system:fabric-agent",
	},
	{
		"cluster-versions",
		"One version of agent, plugin and fabricctl",
		"an update that has not reached every node, or a node whose plugin another installer has replaced",
		"kubectl -n fabric-system rollout status daemonset fabric-agent",
	},
	{
		"cluster-nad",
		"Every network has devices, and is whose it seems",
		"spec.config is broken, or no node offers the resource (device plugin, selectors), or a network names no " +
			"device at all, or one that is called differently on other nodes; or a network made by hand has " +
			"the name of a Fabric",
		"with fabric-agent a Fabric: fabricctl generate fabric --cluster; else fabricctl generate nad and " +
			"device-plugin; kubectl get nodes -o json | jq '.items[].status.allocatable'",
	},
	{
		"cluster-ranges",
		"Ranges do not overlap",
		"whereabouts keeps different ranges in different pools: two of them may give one address",
		"one range per network, or the same range and network_name in both; fabricctl generate nad shares a range out",
	},
	{
		"cluster-pools",
		"Pools of whereabouts have addresses left",
		"the range is too small, or addresses of dead pods are still given",
		"a wider range; whereabouts' ip-reconciler; fabricctl repair on the nodes",
	},
	{
		"cluster-nodes",
		"Nodes of a kind have the same resources",
		"a port that is down, a device plugin that has not seen a device since it was started, another configuration",
		"fabricctl doctor host on that node; restart its device plugin",
	},
	{
		"cluster-discovered",
		"Every discovered fabric is in a Fabric",
		"no Fabric matches these ports: pods can't ask for them",
		"fabricctl generate fabric --cluster writes it",
	},
	{
		"cluster-guids",
		"No two nodes have one port GUID",
		"VF GUIDs were made by the same rule on both nodes, or a node's configuration was copied; a subnet manager " +
			"configures one of the ports only",
		"GUIDs that are made from the PF's own (generate nad writes none), or a pool (ib-kubernetes)",
	},
	{
		"cluster-firmware",
		"Cards of one kind have one firmware on all nodes",
		"an update that has not reached every node, or a card that was replaced",
		"flint -d ADDRESS query on these nodes; mlxfwmanager; then reset the card (mlxfwreset), or reboot",
	},
	{
		"cluster-mtu",
		"The rails of a fabric have one MTU on all nodes",
		"packets of the larger size are lost on the way to the smaller: small messages arrive, large ones hang. On " +
			"InfiniBand the mode of IPoIB (datagram, connected) decides, too",
		"ip link set NETDEV mtu N on these nodes, and mtu in spec.network of the Fabric; the switches have to allow it",
	},
	{
		"cluster-roce-qos",
		"The rails of a RoCE fabric mark traffic alike on all nodes",
		"a setting that was made by hand, or by a unit that did not run on every node: one direction of a connection " +
			"has the priority without loss, the other has not",
		"cma_roce_tos -d HCA -t TOS, and /sys/class/infiniband/HCA/tc/1/traffic_class on these nodes, at boot; for " +
			"pods tos and trafficClass in spec.network of the Fabric",
	},
	{
		"cluster-rate",
		"Ports of one place have one rate on all nodes",
		"a port has trained down: a lane of its cable or transceiver is broken, one of the two is of a slower kind, " +
			"or the port of the switch is set so",
		"fabricctl doctor host on that node (host-rate, host-counters); mlxlink -d ADDRESS -m -c",
	},
}
