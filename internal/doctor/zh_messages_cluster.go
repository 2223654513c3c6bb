package doctor

// zhClusterMessages are clusterMessages in Chinese.
var zhClusterMessages = []Check{
	{
		"log-nad-missing",
		"NetworkAttachmentDefinition 不存在",
		"注解里的网络不存在，或在另一个命名空间",
		"kubectl get network-attachment-definitions -A；在注解中写 NAMESPACE/NAME；或把 pod 的命名空间加入 Fabric 的 " +
			"spec.namespaces；没有 fabric-agent 时 fabricctl generate nad 会生成网络",
	},
	{
		"log-no-deviceid",
		"Multus 没有传递设备",
		"三处必须一致而有一处不一致：pod 申请的资源、NAD 的注解 k8s.v1.cni.cncf.io/resourceName、pod 注解中的网络数" +
			"（四个网络需要数量 4）",
		"kubectl get pod POD -o json | fabricctl doctor pod --manifest - 会指出是哪一处",
	},
	{
		"log-insufficient",
		"没有节点有该资源",
		"任何节点上都没有设备插件提供该资源，或设备都已占用，或设备插件启动后没有看到它们",
		"fabric.dev/NAME 用 kubectl get fabrics 和 kubectl get fabricnodes；kubectl get node NODE -o " +
			"jsonpath='{.status.allocatable}'；其他设备插件看它的日志和 selectors（fabricctl " +
			"generate device-plugin 会生成）",
	},
	{
		"log-plugin-missing",
		"没有安装某个 CNI 插件",
		"该节点上，运行时的插件目录里没有这个程序",
		"make install，或使用安装它的 DaemonSet；whereabouts 用它自己的 DaemonSet；目录见 containerd 配置中的 bin_dir",
	},
	{
		"log-multus-kubeconfig",
		"Multus 或 whereabouts 连不上 API server",
		"其 DaemonSet 写到节点上的 kubeconfig 不存在，或在另一个目录，或其中的 token 已过期",
		"ls -l /etc/cni/net.d/multus.d /etc/cni/net.d/whereabouts.d；重启该 DaemonSet；检查 IPAM 配置的 " +
			"kubernetes.kubeconfig 字段",
	},
	{
		"log-range-full",
		"whereabouts 没有剩余地址",
		"地址段对这些 pod 来说太小，或已结束的 pod 的地址还没有释放",
		"kubectl get ippools.whereabouts.cni.cncf.io -A -o yaml；更大的地址段（/27 有 30 个地址，要够轨道数乘 pod 数）；" +
			"whereabouts 的 ip-reconciler；在节点上 fabricctl repair",
	},
	{
		"log-range-lease",
		"whereabouts 等待超时",
		"一个集群的所有地址都经过一个 lease：数百个 pod 同时启动会慢，API server 也可能慢",
		"它会重试；同时启动的 pod 少一些，每条轨道一个地址段，或使用节点分片（enable_slices，每个 network_name " +
			"的 range 相同）",
	},
	{
		"log-whereabouts-rbac",
		"whereabouts 没有权限",
		"它的 CRD 或 ClusterRole 不存在，或是另一个版本",
		"一起应用同一版本 whereabouts 的 CRD 和 DaemonSet",
	},
	{
		"log-netns-mode",
		"现在不能切换 RDMA 模式",
		"只有不存在主机以外的网络命名空间时才能切换模式",
		"在节点上：echo 'options ib_core netns_mode=0' >/etc/modprobe.d/ib_core.conf; update-initramfs -u (dracut " +
			"-f); reboot",
	},
	{
		"log-shared-plugin",
		"RDMA shared device plugin 不启动",
		"exclusive 模式下 pod 不能使用主机的 RDMA 设备，而该插件只会给这种设备",
		"exclusive：SR-IOV network device plugin 加 fabric；shared：rdma system set netns shared " +
			"（见 host-rdma-mode）",
	},
	{
		"log-rdma-spec",
		"设备插件找不到某个 HCA 的字符设备",
		"ib_umad 或 ib_uverbs 没有加载，或端口是以太网：它没有 issm 设备，那是用于 InfiniBand 管理的",
		"modprobe -a ib_umad ib_uverbs rdma_ucm；RoCE 用不要求它的插件版本；不是轨道的 function 不要放进 selectors",
	},
	{
		"log-mode-shared",
		"该网络需要 exclusive 模式",
		"配置要移动 RDMA 设备，而该节点的模式不允许",
		"\"rdma\": \"auto\" 两种模式都可用；或在启动时设置模式：在节点的 /etc/modprobe.d 中写 options ib_core netns_mode=0",
	},
	{
		"log-not-movable",
		"该 RDMA 设备不能移动",
		"驱动不支持 (rxe, siw)，或系统是 shared 模式",
		"rdma system；对这种驱动用 \"rdma\": \"shared\" 或 \"none\"",
	},
	{
		"log-in-use",
		"设备被另一个 pod 占用",
		"没有对设备计数（网络自己指定了设备），或旧的 pod 还没有结束",
		"fabricctl list；给网络一个设备插件的资源；pod 已不在时 fabricctl repair",
	},
	{
		"log-address-in-use",
		"网络上已有别人使用该地址",
		"某个主机或 pod 有这个地址，而这个 IPAM 地址段不知道：固定地址、另一个集群或另一个地址段",
		"在该网络的节点上 ip neigh 能看出是谁；把该地址从地址段中排除 (exclude)",
	},
	{
		"log-no-device-here",
		"网络的设备不在这个节点上",
		"各节点的接口名不同，或设备在某个 pod 里，或驱动没有加载",
		"在该节点上 fabricctl discover；按资源 (deviceID) 而不是按名字选择；fabricctl " +
			"generate nad 为每个 fabric 建议一个网络",
	},
	{
		"log-pkey",
		"端口不在该分区里",
		"子网管理器没有把端口放进网络所指定的分区",
		"在该节点上 cat /sys/class/infiniband/*/ports/1/pkeys/*；在子网管理器上把端口的 GUID 加入该分区，" +
			"或改正网络中的 \"pkey\"",
	},
	{
		"log-policy",
		"节点的所有者不允许",
		"该设备承载节点自己的网络，或不在允许使用的设备之中",
		"换一个设备；或修改该节点上的 /etc/cni/fabric.d/policy.json",
	},
	{
		"log-name-taken",
		"名字已被占用",
		"已经有同名的接口或 altname",
		"在注解中换一个名字 (NETWORK@INTERFACE)；在主机上：ip link show dev NAME，fabricctl " +
			"repair",
	},
	{
		"log-text-busy",
		"插件无法被覆盖",
		"安装程序在写一个正在运行的可执行文件",
		"先写到旁边再改名，如 make install 所做",
	},
}
