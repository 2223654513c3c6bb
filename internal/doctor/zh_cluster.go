package doctor

// zhCluster are clusterChecks in Chinese.
var zhCluster = []Check{
	{
		"cluster-access",
		"可以查询集群",
		"kubectl 没有列出它的权限，或没有安装；或者集群里有一个对象不是 agent 所能写出的",
		"需要一个能 get 和 list 它的角色；kubectl auth can-i --list",
	},
	{
		"cluster-crds",
		"CustomResourceDefinition 都在",
		"Multus、whereabouts 或 fabric-cni 的类型没有安装，或是另一个版本",
		"使用同一版本的清单；Fabric 和 FabricNode 的清单在 deployments/crds",
	},
	{
		"cluster-daemons",
		"Multus、whereabouts、fabric-agent 和设备插件在每个节点上运行，且版本一致",
		"没有安装，或不断崩溃，或更新停在了半途",
		"kubectl -n NAMESPACE rollout status daemonset NAME；查看未就绪 pod 的日志",
	},
	{
		"cluster-controller",
		"控制器在运行并且持有 Lease",
		"它的 pod 没有被调度或崩溃，或连不上 API server：已运行的继续运行，但新节点得不到地址段，新 Fabric 得不到网络，被删除的 " +
			"Fabric 会一直留着",
		"kubectl -n fabric-system get pods -l app.kubernetes.io/name=fabric-controller; kubectl -n fabric-system " +
			"logs -l app.kubernetes.io/name=fabric-controller; kubectl -n fabric-system get lease fabric-controller " +
			"-o yaml",
	},
	{
		"cluster-fabrics",
		"所有 Fabric 都是 Ready",
		"见证据中的 condition",
		"kubectl describe fabric NAME：看 conditions 和 events",
	},
	{
		"cluster-deletion",
		"没有卡在删除中的 Fabric",
		"只要还有 pod 使用，finalizer 就保留该 Fabric，而且只有控制器会移除它",
		"启动控制器；如果控制器不再使用，且 fabricctl list 显示没有 pod 在用它：kubectl patch fabric " +
			"NAME --type=merge -p '{\"metadata\":{\"finalizers\":null}}'",
	},
	{
		"cluster-fabricnodes",
		"所有 FabricNode 都是 Ready",
		"见证据中的 condition；Down 的端口没有对端或没有子网管理器",
		"kubectl describe fabricnode NODE；在该节点上 fabricctl doctor host",
	},
	{
		"cluster-node-ranges",
		"每个节点都有地址段",
		"控制器不在，或 Fabric 的地址段已用完：需要地址的 pod 会在那里等待",
		"kubectl describe fabric NAME：看 AddressesSufficient；更大的 range、更长的 perNode，或更短的 reclaim；" +
			"另见 cluster-controller",
	},
	{
		"cluster-rdma-mode",
		"同一 Fabric 的节点 RDMA 模式一致",
		"该模式在加载 ib_core 时确定；有些节点的设置不同",
		"在节点上：echo 'options ib_core netns_mode=0' >/etc/modprobe.d/ib_core.conf（1 表示 shared）；" +
			"update-initramfs -u；然后 reboot；或者为这些节点建单独的 Fabric",
	},
	{
		"cluster-agents",
		"每个有设备的节点都有 agent",
		"fabric-agent 没有在那里运行（taints、nodeSelector、崩溃），或没有写权限：API server 只接受 agent 写自己节点的内容",
		"kubectl -n fabric-system get pods -o wide; kubectl -n fabric-system logs POD; kubectl auth can-i create " +
			"fabricnodes --as=system:serviceaccount:fabric-system:fabric-agent",
	},
	{
		"cluster-versions",
		"agent、插件和 fabricctl 版本一致",
		"更新还没有到达所有节点，或某个节点上的插件被别人替换了",
		"kubectl -n fabric-system rollout status daemonset fabric-agent",
	},
	{
		"cluster-nad",
		"每个网络都有设备，而且归属正确",
		"spec.config 有错，或没有节点提供该资源（设备插件、selectors），或网络没有指定设备，或其他节点上的名字不同；或有人用 " +
			"Fabric 的名字建了网络",
		"有 fabric-agent 时建 Fabric：fabricctl generate fabric --cluster；否则 fabricctl generate nad 和 " +
			"device-plugin；kubectl get nodes -o json | jq '.items[].status.allocatable'",
	},
	{
		"cluster-ranges",
		"地址段不重叠",
		"whereabouts 把不同的地址段放在不同的池里：两个池可能给出同一个地址",
		"每个网络一个地址段，或两者用相同的 range 和 network_name；fabricctl generate nad 会划分地址段",
	},
	{
		"cluster-pools",
		"whereabouts 的地址池还有地址",
		"地址段太小，或已结束的 pod 的地址还没有释放",
		"更大的地址段；whereabouts 的 ip-reconciler；在节点上 fabricctl repair",
	},
	{
		"cluster-nodes",
		"同类节点的资源一致",
		"有端口是 Down，或设备插件启动后没有看到某个设备，或配置不同",
		"在该节点上 fabricctl doctor host；重启它的设备插件",
	},
	{
		"cluster-discovered",
		"发现的每个 fabric 都在某个 Fabric 里",
		"没有 Fabric 匹配这些端口：pod 无法申请它们",
		"fabricctl generate fabric --cluster 会生成它",
	},
	{
		"cluster-guids",
		"没有两个节点的端口 GUID 相同",
		"两个节点按同一规则生成了 VF GUID，或复制了某个节点的配置；子网管理器只会配置其中一个端口",
		"用 PF 自己的 GUID 派生 VF 的 GUID（generate nad 不写 GUID），或使用 GUID 池 (ib-kubernetes)",
	},
	{
		"cluster-firmware",
		"所有节点上同一型号的网卡固件一致",
		"更新没有覆盖到每个节点，或者某张网卡被更换过",
		"在这些节点上 flint -d ADDRESS query；mlxfwmanager；然后复位网卡 (mlxfwreset) 或重启",
	},
	{
		"cluster-mtu",
		"所有节点上同一 fabric 的 rail 的 MTU 一致",
		"较大的包在去往较小 MTU 的途中丢失：小消息能到达，大消息会挂起。在 InfiniBand 上还取决于 IPoIB 的模式 (datagram, connected)",
		"在这些节点上 ip link set NETDEV mtu N，以及 Fabric 的 spec.network 里的 mtu；交换机也必须允许",
	},
	{
		"cluster-rate",
		"所有节点上同一位置的端口速率一致",
		"有端口降速：它的线缆或光模块有一个通道损坏，其中之一是较慢的型号，或交换机端口就是这样设置的",
		"在该节点上 fabricctl doctor host（host-rate, host-counters）；mlxlink -d ADDRESS -m -c",
	},
}
