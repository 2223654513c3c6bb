package doctor

import "slices"

// Checks are the ids of doctor host, doctor cluster, doctor pod and preflight, with what is said when they find
// something.
var Checks = slices.Concat(hostChecks, clusterChecks, podChecks, claimChecks, fabricChecks, jobChecks, preflightChecks)

// hostChecks are those of doctor host.
var hostChecks = []Check{
	{
		"host-devices",
		"The host has RDMA devices",
		"no such hardware, its driver is not loaded, or everything is in pods",
		"lspci -nn -d 15b3:; modprobe mlx5_ib; fabricctl list",
	},
	{
		"host-soft-rdma",
		"No soft RDMA device is on a device for pods",
		"one was made by hand (rdma link add); the kernel would destroy it when the interface moves, so ADD refuses " +
			"the interface with error 101",
		"rdma link delete NAME",
	},
	{
		"host-use",
		"Nothing on the host uses an RDMA device for pods",
		"a kernel module (NVMe-oF, iSER, NFS/RDMA, SMC, Lustre) or a process has queue pairs on it; in exclusive " +
			"RDMA mode the move into a pod would cut its connections, so ADD refuses the device with error 101",
		"end what uses it: rdma resource show qp link HCA; leave the device out of the Fabrics; or list it in " +
			"allowHostUse in /etc/cni/fabric.d/policy.json",
	},
	{
		"host-modules",
		"The kernel modules are loaded",
		"the driver package loads them on demand, and nothing has asked yet; or they are not installed",
		"modprobe -a ib_uverbs rdma_cm ib_ipoib; to keep: /etc/modules-load.d/rdma.conf",
	},
	{
		"host-rdma-mode",
		"The RDMA network namespace mode is what the next boot will have",
		"the mode is decided when ib_core is loaded, often in the initramfs; later it can't be changed while any " +
			"other network namespace exists (EBUSY)",
		"on the node: fabricctl node-mode exclusive --local (or shared), which rebuilds the initramfs, too; reboot; " +
			"or ib_core.netns_mode=0 on the kernel command line, which wins",
	},
	{
		"host-driver",
		"The drivers let RDMA devices move into pods",
		"a driver has to allow that its RDMA devices change their network namespace, and this one does not in this " +
			"kernel: in exclusive RDMA mode ADD fails with error 105",
		"shared RDMA mode on such nodes (fabricctl node-mode shared NODE), or no Fabric with these HCAs; which " +
			"drivers can: docs/kernel.md, fact 8",
	},
	{
		"host-initramfs",
		"The initramfs has the RDMA mode",
		"ib_core is often loaded from the initramfs, with the options that were there when it was built: a " +
			"netns_mode that was written later does not count at the next boot",
		"update-initramfs -u (dracut -f) on the node, before the reboot",
	},
	{
		"host-port-state",
		"Every port is Active",
		"no link, or no subnet manager",
		"Down: cable, transceiver, switch port (mlxlink -d ADDRESS); Init: a subnet manager that knows the port's " +
			"GUID; a port that is not meant to be used: leave it out of the device plugin's selectors",
	},
	{
		"host-rate",
		"No port has trained down",
		"it has trained with fewer lanes, or at a lower speed, than others of its model in its fabric: a lane " +
			"of the cable or of the transceiver is broken, one of the two is of a slower kind, or the port of the " +
			"switch is set so",
		"mlxlink -d ADDRESS -m -c shows width, speed and errors of each lane, and the module; clean and seat both " +
			"ends, then swap cable or transceiver with a sound port's and see what the rate follows",
	},
	{
		"host-counters",
		"The ports count no errors of the wire",
		"a cable or transceiver that is dirty, worn or not seated, at either end; or the port of the switch. " +
			"Limits and meanings of the counters: docs/health.md",
		"mlxlink -d ADDRESS -m -c (module, lanes, error counters); clean and seat both ends, then swap with a sound " +
			"port and see what the errors follow; ibdiagnet --get_phy_info for the whole fabric",
	},
	{
		"host-flaps",
		"No link comes and goes",
		"a cable or transceiver that is loose or broken, a switch that was restarted or reconfigured, or an " +
			"interface that was taken down by hand",
		"journalctl -k | grep -i 'link down'; mlxlink -d ADDRESS -m -c shows the reason of the last link down; of " +
			"many ports of one switch at once it is the switch",
	},
	{
		"host-loss",
		"Nothing is lost on the way",
		"congestion without flow control or congestion control that works (RoCE: PFC and ECN, on hosts and " +
			"switches alike), " +
			"a bad link elsewhere on the way, or a peer that has died: a job that crashes raises these counters once",
		"look again while the job runs: fabricctl doctor host --duration 1m; RoCE: host-roce-qos, and the counters " +
			"of the switches' ports; InfiniBand: ibqueryerrors",
	},
	{
		"host-firmware",
		"Cards of one kind have one firmware",
		"an update that has not reached every card, or a card that was replaced",
		"flint -d ADDRESS query; mlxfwmanager; then reset the card (mlxfwreset), or reboot",
	},
	{
		"host-roce-qos",
		"The rails of a RoCE fabric treat priorities alike",
		"a setting that was made by hand, or by a unit that did not run for every interface: with PFC, ECN or a mark " +
			"on some rails only, or a mark that leads to a priority without PFC, packets are lost under load",
		"dcb pfc show dev NETDEV, dcb app show dev NETDEV (or mlnx_qos -i NETDEV); cma_roce_tos -d HCA; one unit " +
			"that sets all rails at boot; the switches have to have the same",
	},
	{
		"host-picture",
		"The picture could be read in full",
		"not root, or devices came and went",
		"run as root; run again",
	},
	{
		"host-vf-guid",
		"VFs have GUIDs",
		"a VF without GUID is never configured by a subnet manager",
		"ip link set PF vf N node_guid GUID; ip link set PF vf N port_guid GUID; then bind the VF's driver again",
	},
	{
		"host-guid",
		"Every port has a GUID of its own",
		"a VF was given the GUID of another one, or a configuration was copied; a subnet manager configures one of " +
			"them only, and traffic goes to either",
		"ip link set PF vf N port_guid GUID, another for each; then bind the VF's driver again",
	},
	{
		"host-names",
		"Interfaces have stable names",
		"ib0, ib1, ... count in the order of probing: another card, another kernel, and they mean another port",
		"udev's predictable names, or select by PCI address, hwaddr or guid instead of by name",
	},
	{
		"host-subnets",
		"Rails have subnets of their own",
		"two rails of a node in one subnet: the kernel answers ARP for either address on either, and sends " +
			"everything through one",
		"a subnet per rail, or \"routing\": {\"sourceBased\": true} in the network",
	},
	{
		"host-mtu",
		"The rails of a fabric have one MTU",
		"packets of the larger size are lost on the way to the smaller",
		"ip link set NETDEV mtu N on all rails, and \"mtu\" in the network",
	},
	{
		"host-bond",
		"Bonds are not taken for InfiniBand",
		"the RDMA face of an Ethernet bond (mlx5_bond_0) is RoCE over the node's own network: ib_write_bw -d, " +
			"NCCL_IB_HCA=mlx5 and a device plugin's selectors catch it by accident",
		"NCCL_IB_HCA with = and exact names (fabricctl nccl-env); leave it out of selectors",
	},
	{
		"host-pcie",
		"HCAs run at full PCIe speed",
		"a slot with fewer lanes or of an older generation, or a link that has trained down",
		"lspci -vv -s ADDRESS | grep LnkSta; reseat the card, another slot, BIOS",
	},
	{
		"host-acs",
		"PCIe switches let GPUs and HCAs talk directly",
		"with Access Control Services (ACS) redirection on, a switch sends traffic between a GPU and an HCA below " +
			"it up to the root complex and back: GPUDirect RDMA is slow, or fails. Virtual machines with " +
			"passed-through devices need it, bare metal does not",
		"For good: ACS off in the BIOS, or the same command from a unit at boot; kernel 6.11 and later: " +
			"pci=config_acs= on the command line",
	},
	{
		"host-gpudirect",
		"HCAs can reach GPU memory",
		"nvidia_peermem is not loaded, and nothing says that DMA-BUF does it instead: that takes the open GPU " +
			"kernel modules and Linux 5.12 or later",
		"modprobe nvidia_peermem; echo nvidia_peermem >/etc/modules-load.d/nvidia_peermem.conf; or the open GPU " +
			"kernel modules, which Blackwell and Grace have anyway",
	},
	{
		"host-iommu",
		"The IOMMU does not slow peer-to-peer traffic",
		"with the IOMMU on and not in pass-through mode every transfer is translated",
		"iommu=pt on the kernel command line; see host-acs, too",
	},
	{
		"host-memlock",
		"containerd gives containers unlimited locked memory",
		"containers inherit containerd's limit; systemd's default is 8 MiB",
		"systemctl edit containerd: [Service] LimitMEMLOCK=infinity; systemctl restart containerd",
	},
	{"host-plugin", "The plugin is installed", "it is not in /opt/cni/bin", "make install, or the DaemonSet"},
	{
		"host-version",
		"Plugin and fabricctl are of one version",
		"one of the two was updated; what fabricctl says of the plugin's behaviour may be wrong",
		"make install and make install-ctl of one release, or the fabricctl in the agent's image",
	},
	{
		"host-cni-order",
		"Multus is the first CNI configuration",
		"the runtime takes the first file of /etc/cni/net.d by name; if that is not Multus, annotations do nothing",
		"let Multus write 00-multus.conf (--multus-conf-file=auto), remove what sorts before it",
	},
	{
		"host-stranded",
		"No device is left behind by a pod",
		"a pod's network namespace is gone and DEL has not come, or has failed",
		"fabricctl repair",
	},
	{
		"host-foreign",
		"The plugin's state directory has the plugin's files only",
		"another program, or a person as root, has put it into /run/fabric-cni, or has damaged a file of the plugin: " +
			"it holds nothing up but its own attachment or claim",
		"delete the pod if the file is of one; then look at it and remove it: rm -r PATH",
	},
	{
		"host-policy",
		"The node policy can be read",
		"a typing error; until it is mended no device is moved",
		"the evidence has the place",
	},
}

// podChecks are those of doctor pod.
var podChecks = []Check{
	{
		"pod-interface",
		"The pod has interfaces for its RDMA devices",
		"verbs devices without an interface: the annotation is missing, the NetworkAttachmentDefinition does not " +
			"exist, Multus did not run, or the resource count is smaller than the number of networks. InfiniBand in " +
			"shared RDMA mode needs none; RoCE needs one for the address of its GID",
		"kubectl get pod POD -o json | fabricctl doctor pod -f - says which",
	},
	{
		"pod-annotation",
		"The pod asks for networks",
		"there is no ResourceClaim, and the annotation k8s.v1.cni.cncf.io/networks is missing: Multus adds nothing. " +
			"In exclusive RDMA mode the pod has no HCA then, and NCCL falls back to eth0 without an error; in shared " +
			"mode InfiniBand works without (NCCL's NET/IB), and RoCE needs an address in the pod for its GID",
		"k8s.v1.cni.cncf.io/networks with one network for each device that the pod asks for: kubectl get " +
			"network-attachment-definitions -A lists them with their resourceName; fabricctl generate pod writes both",
	},
	{
		"pod-nad",
		"The networks exist",
		"the annotation names a NetworkAttachmentDefinition that is not there, or is in another namespace",
		"kubectl get network-attachment-definitions -A; NAMESPACE/NAME in the annotation; or the namespace in " +
			"spec.namespaces of the Fabric",
	},
	{
		"pod-multus",
		"Multus has run",
		"the pod runs, has networks in its annotation and no network-status: the runtime did not call Multus",
		"ls /etc/cni/net.d on the node: 00-multus.conf has to be the first (host-cni-order); kubectl -n kube-system " +
			"get pods -l app=multus -o wide",
	},
	{
		"pod-count",
		"The pod asks for as many devices as networks",
		"each network takes one device of its resource; what is missing gets no device address (code 7)",
		"the count of the resource in limits and requests = the number of networks with that resourceName",
	},
	{
		"pod-verbs",
		"The pod has verbs devices",
		"no /dev/infiniband/uverbs*: the container got no device from a device plugin",
		"ask for the resource; isRdma: true in the device plugin's selectors",
	},
	{
		"pod-usable",
		"Every HCA that is visible can be opened",
		"the HCA is in the pod (or in shared mode: on the node), its character device is not: libraries list it and " +
			"fail to open it",
		"one device plugin for both; exclusive mode hides what is not the pod's; NCCL_IB_HCA with = until then",
	},
	{
		"pod-foreign",
		"Every character device belongs to an HCA of the pod",
		"the device plugin gave a character device whose HCA is elsewhere: opening it fails",
		"fabric with \"rdma\": \"auto\" moves the HCA; see that the network's resource is the pod's",
	},
	{
		"pod-port-state",
		"The pod's ports are Active",
		"no link, or no subnet manager: NCCL skips the port without an error",
		"fabricctl doctor host on the node",
	},
	{
		"pod-rate",
		"Ports of one kind run at one rate",
		"the link has trained down: a cable, a transceiver or a switch port is dirty, damaged or set to a lower " +
			"speed. A collective runs at the pace of its slowest port: fabricctl nccl-env leaves the port out where " +
			"the others carry more without it",
		"on the node: mlxlink -d ADDRESS -m -c shows width, speed and errors; clean or change cable and transceiver; " +
			"see the speed that the switch port is set to",
	},
	{
		"pod-memlock",
		"Memory can be pinned",
		"locked memory is limited and the container lacks the capability IPC_LOCK: \"Couldn't allocate MR\", " +
			"crashes in NCCL",
		"either one: securityContext: {capabilities: {add: [IPC_LOCK]}}, which is for root only and which namespaces " +
			"with the pod security levels baseline and restricted refuse; or LimitMEMLOCK=infinity in the unit of " +
			"the container runtime (containerd) on the nodes",
	},
	{
		"pod-memory",
		"The memory limit leaves room for pinned buffers",
		"pinned pages, and what is in /dev/shm (a tmpfs), count towards resources.limits.memory, with cgroup v1 as " +
			"with v2. At the limit registrations fail, or the kernel kills: with v2 the whole container (kubelet " +
			"1.28 and later), with v1 one rank, for which the others wait",
		"raise resources.limits.memory; sizeLimit of the emptyDir at /dev/shm below it",
	},
	{
		"pod-gids",
		"RoCE ports have GIDs for addresses",
		"the interface has no address, or a link-local one only: RoCE v2 needs an IP address",
		"\"ipam\" in the network; ip address in the pod",
	},
	{
		"pod-gid-index",
		"NCCL_IB_GID_INDEX, NVSHMEM_IB_GID_INDEX and UCX_IB_GID_INDEX fit every port that is used",
		"the table is shorter where the pod has fewer addresses; index 3 is the usual one and not a law",
		"fabricctl nccl-env",
	},
	{
		"pod-subnets",
		"The pod's rails have subnets of their own",
		"two rails in one subnet: the kernel answers ARP for either address on either, and sends everything through " +
			"one",
		"a subnet per rail, or \"routing\": {\"sourceBased\": true} in the network",
	},
	{
		"pod-mtu",
		"The pod's rails of a fabric have one MTU",
		"packets of the larger size are lost on the way to the smaller",
		"\"mtu\" in the networks; the host's interfaces: fabricctl doctor host",
	},
	{
		"pod-env-hca",
		"NCCL_IB_HCA, UCX_NET_DEVICES and NVSHMEM_HCA_LIST select the pod's rails",
		"names of another node, or of the host; a list that was written for other hardware, or before a port went " +
			"down: what it names is not there, can't work, is not the pod's, or is a part of its rails only",
		"fabricctl nccl-env",
	},
	{
		"pod-env-cross-nic",
		"NCCL_CROSS_NIC fits the rails",
		"the rails are planes, which do not reach each other: with another value than 0 NCCL pairs different " +
			"rails, and the connection ends in a timeout",
		"NCCL_CROSS_NIC=0; all variables: fabricctl nccl-env",
	},
	{
		"pod-env-data-direct",
		"NCCL_IB_DATA_DIRECT leaves Data Direct on",
		"copied from an example that needed it off: the HCA reaches GPU memory by its own PCIe root then, through " +
			"the CPU, and not by its function below the GPU's switch",
		"remove the variable",
	},
	{
		"pod-pkey",
		"The pod's ports are full members of a partition",
		"a limited member reaches full members only, and an empty entry of the table reaches no port",
		"full membership in the subnet manager's partitions (opensm: partitions.conf, =full); the index of the full " +
			"membership: fabricctl nccl-env",
	},
	{
		"pod-env-socket",
		"NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name what is there",
		"interface names of the host do not count in the pod; GLOO_SOCKET_IFNAME takes plain names, without = and ^",
		"fabricctl nccl-env",
	},
	{"pod-env-off", "RDMA is not switched off", "NCCL_IB_DISABLE=1, or NCCL_NET=Socket", "unset it"},
	{
		"pod-hcoll",
		"HCOLL is switched off",
		"Open MPI's HCOLL opens RDMA devices by itself and hangs in containers: mpirun with RDMA stands still, " +
			"without RDMA it works",
		"mpirun -mca coll_hcoll_enable 0 -mca btl tcp,self; or OMPI_MCA_coll_hcoll_enable=0",
	},
	{
		"pod-shm",
		"/dev/shm is large enough",
		"containers get 64 MiB unless told otherwise; NCCL needs more for eight GPUs",
		"an emptyDir with medium: Memory at /dev/shm",
	},
}
