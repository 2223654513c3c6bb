package doctor

// zhHostPhrases are those of doctor host about ports.
var zhHostPhrases = []phrase{
	{"disabled by the VF's link state, or its interface is down", "被 VF 的 link state 禁用，或其网络接口为 down"},
	{"the link is up, the port is not: the VF's link state", "链路已建立而端口没有：VF 的 link state"},
	{
		"its interface is down, or has no carrier: cable, transceiver or switch port",
		"其网络接口为 down，或没有 carrier：检查线缆、光模块或交换机端口",
	},
	{
		"disabled by the administrator (mlxlink, ibportstate), or by the firmware's configuration",
		"被管理员禁用 (mlxlink, ibportstate)，或被固件配置禁用",
	},
	{"the link is up, the port is not: the firmware or the driver hangs", "链路已建立而端口没有：固件或驱动挂起"},
	{
		"; a port that is not meant to be used: leave it out of the device plugin's selectors",
		"；不打算使用的端口：不要放进设备插件的 selectors",
	},
	{
		"sminfo on this node says which subnet manager answers; it has to know the port GUID ",
		"在该节点上 sminfo 显示哪个子网管理器应答；它必须知道端口 GUID ",
	},
	{", and to configure VFs (opensm: virt_enabled 2)", "，并且会配置 VF（opensm：virt_enabled 2）"},
	{"the port of its PF is ", "其 PF 的端口是 "},
	{"see the PF's port", "见 PF 的端口"},
	{" up; an idle VF may stay down: fabric brings it up in the pod", " up；空闲的 VF 可以保持 down：fabric 会在 pod 里把它 up"},
	{" is down: a RoCE port follows it", " 为 down：RoCE 端口跟随它"},
	{"; InfiniBand also needs a GUID (host-vf-guid)", "；InfiniBand 还需要 GUID (host-vf-guid)"},
	{", PF being the interface of ", "，其中 PF 是该设备的网络接口："},
	{"the interface ", "网络接口 "},
	{"its interface is down or has no carrier in ", "其网络接口为 down 或没有 carrier，在 "},
	{"ip -d link in the pod; fabricctl doctor pod", "在 pod 里 ip -d link；fabricctl doctor pod"},
	{
		" is up and has no carrier: cable, transceiver or switch port",
		" 为 up 但没有 carrier：检查线缆、光模块或交换机端口",
	},
	{" (Link detected); the module: ethtool", "（Link detected）；光模块：ethtool"},
	{"; then reset the card (mlxfwreset), without pods on it", "；然后在没有 pod 使用它时复位网卡 (mlxfwreset)"},
	{"cable, transceiver and switch port: mlxlink", "检查线缆、光模块和交换机端口：mlxlink"},
	{" -m -c shows the module and why the link is down", " -m -c 显示光模块以及链路 down 的原因"},
	{
		" -m -c shows width, speed and errors of each lane, and the module",
		" -m -c 显示每个通道的宽度、速率和错误，以及光模块",
	},
	{" show the speed and the module", " 显示速率和光模块"},
	{
		"; clean and seat both ends, then swap cable or transceiver with a sound port's and see what the rate " +
			"follows; " +
			"nccl-env leaves this port out as long",
		"；清洁并重新插好两端，然后与正常端口交换线缆或光模块，看速率跟随哪一个；在此之前 nccl-env 不使用该端口",
	},
	{"the journal and the network namespaces of pods are root's", "journal 和 pod 的网络命名空间属于 root"},
	{
		"LimitMEMLOCK=infinity in the unit of the container runtime (containerd) on the nodes, or run as root: " +
			"Kubernetes gives other users no ambient capabilities",
		"在节点上为容器运行时 (containerd) 的 unit 设置 LimitMEMLOCK=infinity，或以 root 身份运行：Kubernetes 不给其他用户 ambient " +
			"能力",
	},
	{"run as root", "以 root 身份运行"},
	{
		"nvidia_peermem is not loaded, and the kernel is too old for DMA-BUF",
		"nvidia_peermem 没有加载，而内核太旧，不支持 DMA-BUF",
	},
	{
		"whereabouts is not installed: a node without /opt/cni/bin/whereabouts starts no pod with these networks, " +
			"and " +
			"nobody frees the addresses of pods that have died",
		"whereabouts 没有安装：没有 /opt/cni/bin/whereabouts 的节点无法启动使用这些网络的 pod，已死 pod 的地址也没有人释放",
	},
	{
		"apply whereabouts' DaemonSet and CRDs of one release; or addresses of fabric-cni itself: " +
			"addresses.nodeRanges in the Fabric",
		"应用同一版本的 whereabouts 的 DaemonSet 和 CRD；或使用 fabric-cni 自己的地址：Fabric 的 addresses.nodeRanges",
	},
	{"the counter does not wrap: it has stopped, maybe long ago", "该计数器不会回绕：它已经停住，也许很久以前"},
	{
		"perfquery -r resets the counters of this node's port (-C HCA -P PORT); then fabricctl doctor host --for 1m",
		"perfquery -r 复位本节点端口的计数器（-C HCA -P PORT）；然后 fabricctl doctor host --for 1m",
	},
	{
		"echo datagram >/sys/class/net/NETDEV/mode on all rails, before the MTU",
		"在所有轨道上先 echo datagram >/sys/class/net/NETDEV/mode，再设 MTU",
	},
}
