package doctor

import "slices"

// zhPhrases are what checks and messages add to the causes and cures of the catalogue, or say instead, in Chinese. A
// longer phrase stands before one that is a part of it.
var zhPhrases = slices.Concat(zhHostPhrases, zhOtherPhrases)

var zhOtherPhrases = []phrase{
	// doctor host
	{"no peer answers: cable, transceiver or switch port", "对端没有应答：检查线缆、光模块或交换机端口"},
	{"the link is not up", "链路没有建立"},
	{"the link is up, but no subnet manager has configured the port", "链路已建立，但没有子网管理器配置该端口"},
	{"carries no traffic yet", "还不能传输数据"},
	{"something has run rdma system set since the boot. ", "启动之后有程序执行过 rdma system set。"},
	{"find what runs rdma system set netns; reboot", "找出是什么执行 rdma system set netns；然后 reboot"},
	{
		"ib_core.netns_mode=0 on the kernel command line: modprobe.d does not count for what is built in; reboot",
		"在内核命令行写 ib_core.netns_mode=0：modprobe.d 对编译进内核的部分不起作用；然后 reboot",
	},
	{
		"ib_core was loaded from an initramfs that does not have the file, or something has run rdma system set. ",
		"ib_core 由一个没有该文件的 initramfs 加载，或有程序执行过 rdma system set。",
	},
	{
		"the next boot will be in shared mode: pods in need of exclusive mode get error 103 then",
		"下次启动将是 shared 模式：届时需要 exclusive 模式的 pod 会得到错误 103",
	},
	{"; to keep: /etc/modules-load.d/rdma.conf", "；永久生效：/etc/modules-load.d/rdma.conf"},
	{"until the next boot: setpci", "到下次启动为止：setpci"},
	// doctor pod
	{
		"the GIDs that are visible are of addresses of the host or of other pods. DOCA-OFED and MLNX_OFED refuse " +
			"them " +
			"(ibv_modify_qp: No such device), rdma_cm does not find them, and in the others the traffic has the " +
			"host's " +
			"address",
		"可见的 GID 属于主机或其他 pod 的地址。DOCA-OFED 和 MLNX_OFED 拒绝使用它们 (ibv_modify_qp: No such device)，rdma_cm 找不到它们，" +
			"在其他驱动中流量则带有主机的地址",
	},
	{
		"a network with an address for each rail in the annotation: fabric, or macvlan on the rail; or hostNetwork: " +
			"true",
		"在注解中为每条轨道写一个带地址的网络：fabric，或该轨道上的 macvlan；或 hostNetwork: true",
	},
	{
		"the container's device cgroup does not allow it: the file comes from a hostPath volume or from the image, " +
			"and " +
			"not from a device plugin",
		"容器的设备 cgroup 不允许：该文件来自 hostPath 卷或镜像，而不是设备插件",
	},
	{"; all variables: fabricctl nccl-env", "；全部变量：fabricctl nccl-env"},
	// doctor cluster
	{
		"kubectl edit fabric NAME: the message has the field and what is allowed; until then the last spec that was " +
			"accepted is in force",
		"kubectl edit fabric NAME：消息里有字段和允许的值；在此之前，最后一次被接受的 spec 生效",
	},
	{
		"delete these pods: kubectl get fabricnodes -o json has all; the Fabric goes with the last one",
		"删除这些 pod：kubectl get fabricnodes -o json 列出全部；最后一个 pod 删除后 Fabric 随之删除",
	},
	{
		"install Multus: its manifests have the CustomResourceDefinition and the DaemonSet",
		"安装 Multus：它的清单里有 CustomResourceDefinition 和 DaemonSet",
	},
	{
		"kubectl -n NAMESPACE delete network-attachment-definition NAME, if nobody needs it; or rename the Fabric, " +
			"or remove the namespace from spec.namespaces",
		"如果没有人需要：kubectl -n NAMESPACE delete network-attachment-definition NAME；或给 Fabric 改名，" +
			"或把该命名空间从 spec.namespaces 中去掉",
	},
	{
		"kubectl create namespace, the one that the message names; or kubectl edit fabric NAME: remove it from " +
			"namespaces.names",
		"kubectl create namespace（消息所指的那个）；或 kubectl edit fabric NAME：把它从 namespaces.names 中去掉",
	},
	{
		"kubectl get resourcequotas,validatingwebhookconfigurations,mutatingwebhookconfigurations -A, by what the " +
			"message says; kubectl auth can-i create network-attachment-definitions.k8s.cni.cncf.io --as " +
			"system:serviceaccount:fabric-system:fabric-controller: apply the manifests of the controller's version",
		"按消息所说查看 kubectl get resourcequotas,validatingwebhookconfigurations,mutatingwebhookconfigurations -A；" +
			"kubectl auth can-i create network-attachment-definitions.k8s.cni.cncf.io --as " +
			"system:serviceaccount:fabric-system:fabric-controller：应用与控制器同一版本的清单",
	},
	{
		"stop the program that the message names, or take the definition out of what it keeps; change the Fabric " +
			"instead: kubectl edit fabric NAME",
		"停止消息所指的程序，或让它不再管理该定义；应修改 Fabric：kubectl edit fabric NAME",
	},
	{
		"change the Fabric instead of its NetworkAttachmentDefinition: kubectl edit fabric NAME",
		"应修改 Fabric，而不是它的 NetworkAttachmentDefinition：kubectl edit fabric NAME",
	},
	{
		"update the cluster to Kubernetes 1.34, or kubectl edit fabric NAME: allocation: DevicePlugin",
		"把集群升级到 Kubernetes 1.34，或 kubectl edit fabric NAME：allocation: DevicePlugin",
	},
	{
		"kubectl delete deviceclass, the one that the message names, if nobody needs it; or rename the Fabric",
		"如果没有人需要：kubectl delete deviceclass（消息所指的那个）；或给 Fabric 改名",
	},
	{"apply the manifests of the controller's version", "应用与控制器同一版本的清单"},
	{
		"kubectl edit fabric NAME: a wider range, or a longer perNode for more nodes",
		"kubectl edit fabric NAME：更大的 range；节点更多时用更长的 perNode",
	},
	{
		"do the agents of these nodes run: kubectl -n fabric-system get pods -o wide; it goes on without them in two " +
			"minutes",
		"这些节点的 agent 是否在运行：kubectl -n fabric-system get pods -o wide；两分钟后不再等待它们",
	},
	{
		"delete the pods of the node that has it, or give the range to no node: kubectl edit fabric NAME",
		"删除占用该段的节点上的这些 Pod，或不把该段分给任何节点：kubectl edit fabric NAME",
	},
	{
		"delete the pods of the node that the message names: their addresses are in the range of another node",
		"删除消息所指节点上的这些 Pod：它们的地址在另一个节点的段内",
	},
	{
		"install the IPAM plugin that spec.addresses.ipam names, or use addresses.nodeRanges",
		"安装 spec.addresses.ipam 所指的 IPAM 插件，或使用 addresses.nodeRanges",
	},
	{
		"make the pool: kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A has those that there " +
			"are; or correct poolName: kubectl edit fabric NAME",
		"创建地址池：kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A 列出已有的；" +
			"或改正 poolName：kubectl edit fabric NAME",
	},
	{
		"kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A -o yaml: a wider range, or smaller " +
			"blocks; does its controller run, and does the pool's nodeSelector fit these nodes",
		"kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A -o yaml：更大的 range 或更小的块；" +
			"检查它的控制器是否在运行，地址池的 nodeSelector 是否匹配这些节点",
	},
	{
		"kubectl edit fabric NAME, or the pool that it names: a wider range; addresses of dead pods: fabricctl " +
			"repair on the nodes, whereabouts' ip-reconciler",
		"kubectl edit fabric NAME，或它所指的地址池：更大的 range；已结束的 pod 的地址：在节点上 fabricctl repair，" +
			"whereabouts 的 ip-reconciler",
	},
	{
		"fabricctl generate fabric --cluster writes the match that fits what there is; kubectl get fabricnodes, and " +
			"the condition FabricMatched of a node",
		"fabricctl generate fabric --cluster 会生成与现有设备相符的 match；kubectl get fabricnodes，以及节点的 condition " +
			"FabricMatched",
	},
	{
		"kubectl get fabricnodes shows where; fabricctl doctor host on that node",
		"kubectl get fabricnodes 显示在哪里；在该节点上 fabricctl doctor host",
	},
	{
		"one RDMA mode on the nodes of a Fabric, there: echo 'options ib_core netns_mode=0' " +
			">/etc/modprobe.d/ib_core.conf (1 for shared); update-initramfs -u; reboot",
		"同一 Fabric 的节点用同一种 RDMA 模式，在节点上：echo 'options ib_core netns_mode=0' " +
			">/etc/modprobe.d/ib_core.conf（1 表示 shared）；update-initramfs -u；然后 reboot",
	},
	{
		"delete the pod of fabric-agent on that node: it installs the plugin again",
		"删除该节点上 fabric-agent 的 pod：它会重新安装插件",
	},
	{"kubectl apply -k deployments/base, or helm upgrade: the admission policies of this version",
		"kubectl apply -k deployments/base，或 helm upgrade：应用此版本的准入策略"},
	{"df -h /run on that node", "在该节点上 df -h /run"},
	{
		"update fabric-agent: kubectl -n fabric-system rollout status daemonset fabric-agent",
		"更新 fabric-agent：kubectl -n fabric-system rollout status daemonset fabric-agent",
	},
	{"see cluster-node-ranges", "见 cluster-node-ranges"},
	{
		"the fabricctl of that release, or the one in the agent's image: kubectl -n fabric-system exec",
		"使用该版本的 fabricctl，或 agent 镜像里的：kubectl -n fabric-system exec",
	},
	{", if nobody needs it; or another name", "（如果没有人需要）；或换一个名字"},
	// doctor explain
	{
		" is the RDMA face of an Ethernet bond (RoCE), not an InfiniBand device. ",
		" 是以太网 bond 的 RDMA 设备 (RoCE)，不是 InfiniBand 设备。",
	},
	{
		"the GID is link-local: the two ends are not in one layer 2 network. ",
		"GID 是链路本地的：两端不在同一个二层网络。",
	},
}
