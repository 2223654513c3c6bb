package doctor

// zhFabric are fabricChecks in Chinese.
var zhFabric = []Check{
	{
		"fabric-wrong-rail",
		"每根线缆都接在本轨道的 leaf 交换机上",
		"与布线相同的其他节点相比，线缆接到了另一台交换机，或接在节点的另一个端口上：轨道内的流量要绕经 spine，并占用它的链路",
		"如果证据给出了一对线缆：在交换机一侧对调这两根；否则移动这一根；然后再检查一次",
	},
	{
		"fabric-cable-missing",
		"没有缺少线缆",
		"线缆未插好或损坏、光模块故障，或端口被关闭：同类节点有这条链路",
		"Down 且物理状态为 Polling：线缆或光模块 (ibdiagnet, mlxlink -d ADDRESS)；Disabled：ibportstate LID PORT enable",
	},
	{
		"fabric-link-slow",
		"链路速率与同类链路相同",
		"线缆或光模块质量差，链路以较少的 lane 或较低的速率建立；或者端口速率被配置限制",
		"重新插拔或更换线缆；ibportstate LID PORT query 显示启用了哪些速率",
	},
	{
		"fabric-oversubscribed",
		"leaf 的上行带宽不低于下行带宽",
		"到 spine 的链路少于到节点的链路：设计如此，或缺少链路",
		"如果是设计如此：让作业留在一台 leaf 或一个组内：fabricctl generate topology；否则增加链路",
	},
	{
		"fabric-isolated",
		"所有设备都在同一个网络里",
		"网络的一部分与其余部分没有链路，或这些端口在另一个子网里",
		"在每个子网里各运行一次 ibnetdiscover，全部用 -f 给出；各部分之间的链路：检查线缆和交换机端口",
	},
	{
		"fabric-shortcut",
		"交换机之间的链路都只跨一级",
		"树形网络里一根线缆连接了同一级的两台交换机：up/down 路由不使用它，或者会死锁",
		"把线缆移到下一级的交换机上",
	},
	{
		"fabric-identity",
		"每个端口都属于它所声称的节点",
		"HCA 的描述是另一个节点的：镜像是复制的，或有人冒充；该端口不算作任何节点的",
		"在节点上执行 rdma-ndd (systemctl restart rdma-ndd)；在所有节点上执行 discover --record，并给出这些记录",
	},
}
