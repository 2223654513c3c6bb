package doctor

// zhPod are podChecks in Chinese.
var zhPod = []Check{
	{
		"pod-interface",
		"pod 的 RDMA 设备有对应的接口",
		"有 verbs 设备而没有接口：缺少注解，或 NetworkAttachmentDefinition 不存在，或 Multus 没有运行，或资源数量少于网络数量。" +
			"shared RDMA 模式下 InfiniBand 不需要接口；RoCE 需要接口，因为它的 GID 要有地址",
		"kubectl get pod POD -o json | fabricctl doctor pod --manifest - 会指出是哪一个",
	},
	{
		"pod-annotation",
		"pod 申请了网络",
		"缺少注解 k8s.v1.cni.cncf.io/networks：Multus 什么也不加。exclusive RDMA 模式下 pod 没有 HCA，NCCL 会不报错地退回 eth0；" +
			"shared 模式下 InfiniBand 没有注解也能用（NCCL 的 NET/IB），RoCE 的 GID 则需要 pod 里有地址",
		"metadata: {annotations: {k8s.v1.cni.cncf.io/networks: \"ib-pf, ib-pf, ib-pf, ib-pf\"}}，每条轨道一个",
	},
	{
		"pod-nad",
		"网络存在",
		"注解里的 NetworkAttachmentDefinition 不存在，或在另一个命名空间",
		"kubectl get network-attachment-definitions -A；在注解中写 NAMESPACE/NAME；或把命名空间加入 Fabric 的 " +
			"spec.namespaces",
	},
	{
		"pod-multus",
		"Multus 已运行",
		"pod 的注解里有网络，却没有 network-status：运行时没有调用 Multus",
		"在节点上 ls /etc/cni/net.d：00-multus.conf 必须排第一 (host-cni-order)；kubectl -n kube-system get pods " +
			"-l app=multus -o wide",
	},
	{
		"pod-count",
		"pod 申请的设备数等于网络数",
		"每个网络占用其资源的一个设备；缺少的得不到设备地址（错误码 7）",
		"limits 和 requests 中资源的数量 = 使用该 resourceName 的网络数",
	},
	{
		"pod-verbs",
		"pod 有 verbs 设备",
		"没有 /dev/infiniband/uverbs*：容器没有从设备插件得到设备",
		"申请该资源；设备插件的 selectors 中 isRdma: true",
	},
	{
		"pod-usable",
		"可见的 HCA 都能打开",
		"HCA 在 pod 里（shared 模式下：在节点上），它的字符设备却不在：库会列出它，但打开失败",
		"两者由同一个设备插件提供；exclusive 模式会隐藏不属于 pod 的设备；在此之前 NCCL_IB_HCA 用 =",
	},
	{
		"pod-foreign",
		"每个字符设备都属于 pod 的某个 HCA",
		"设备插件给了一个字符设备，而它的 HCA 在别处：打开会失败",
		"fabric 的 \"rdma\": \"auto\" 会移动 HCA；检查网络的资源是否就是 pod 的资源",
	},
	{
		"pod-port-state",
		"pod 的端口是 Active",
		"没有链路，或没有子网管理器：NCCL 会不报错地跳过该端口",
		"在节点上运行 fabricctl doctor host",
	},
	{
		"pod-rate",
		"同一种端口以同一速率运行",
		"链路协商到了较低的速率：线缆、光模块或交换机端口脏污、损坏，或被设成较低的速率。fabricctl nccl-env 不使用该端口，" +
			"因为集合通信的速度取决于最慢的端口",
		"在节点上：mlxlink -d ADDRESS -m -c 显示宽度、速率和错误；清洁或更换线缆和光模块；检查交换机端口设定的速率",
	},
	{
		"pod-memlock",
		"可以锁定内存",
		"锁定内存受限，而容器没有 IPC_LOCK 能力：会出现 \"Couldn't allocate MR\"，或 NCCL 崩溃",
		"二者之一：securityContext: {capabilities: {add: [IPC_LOCK]}}，只对 root 有效，而且 pod 安全级别 baseline 和 restricted 的 " +
			"namespace 会拒绝它；或者在节点上为容器运行时 (containerd) 的 unit 设置 LimitMEMLOCK=infinity",
	},
	{
		"pod-memory",
		"内存限制为锁定的缓冲区留有余量",
		"锁定的内存页和 /dev/shm (tmpfs) 里的内容计入 resources.limits.memory，cgroup v1 与 v2 都一样。达到限制时注册失败，或被内核" +
			"杀死：v2 杀整个容器（kubelet 1.28 及以后），v1 只杀一个 rank，其余 rank 会一直等它",
		"调大 resources.limits.memory；/dev/shm 的 emptyDir 的 sizeLimit 要小于它",
	},
	{
		"pod-gids",
		"RoCE 端口有对应地址的 GID",
		"接口没有地址，或只有链路本地地址：RoCE v2 需要 IP 地址",
		"在网络配置中写 \"ipam\"；在 pod 里 ip address",
	},
	{
		"pod-gid-index",
		"NCCL_IB_GID_INDEX、NVSHMEM_IB_GID_INDEX 和 UCX_IB_GID_INDEX 适合每个使用的端口",
		"pod 的地址较少时 GID 表较短；3 只是常见值，并非定律",
		"fabricctl nccl-env",
	},
	{
		"pod-subnets",
		"pod 的每条轨道有自己的子网",
		"两条轨道在同一个子网：内核会在任一接口上应答两个地址的 ARP，并且所有流量都从其中一个接口出去",
		"每条轨道一个子网，或在网络配置中写 \"routing\": {\"sourceBased\": true}",
	},
	{
		"pod-mtu",
		"pod 中同一 fabric 的各轨道 MTU 一致",
		"较大的报文在发往 MTU 较小的一端时会丢失",
		"在各网络配置中写 \"mtu\"；主机的接口：fabricctl doctor host",
	},
	{
		"pod-env-hca",
		"NCCL_IB_HCA、UCX_NET_DEVICES 和 NVSHMEM_HCA_LIST 选中的是 pod 的轨道",
		"是另一个节点或主机上的名字；或列表是为别的硬件、或在端口断开之前写的：所指的端口不存在、不能用、不属于该 pod，或只是它的一部分轨道",
		"fabricctl nccl-env",
	},
	{
		"pod-env-socket",
		"NCCL_SOCKET_IFNAME 和 GLOO_SOCKET_IFNAME 指的接口存在",
		"主机上的接口名在 pod 里不适用；GLOO_SOCKET_IFNAME 只接受单纯的名字，不带 = 和 ^",
		"fabricctl nccl-env",
	},
	{
		"pod-env-off",
		"没有关闭 RDMA",
		"设置了 NCCL_IB_DISABLE=1 或 NCCL_NET=Socket",
		"取消该设置",
	},
	{
		"pod-hcoll",
		"已关闭 HCOLL",
		"Open MPI 的 HCOLL 会自行打开 RDMA 设备，在容器里会挂起：用 RDMA 时 mpirun 停住不动，不用 RDMA 时正常",
		"mpirun -mca coll_hcoll_enable 0 -mca btl tcp,self；或 OMPI_MCA_coll_hcoll_enable=0",
	},
	{
		"pod-shm",
		"/dev/shm 足够大",
		"容器默认只有 64 MiB；八块 GPU 的 NCCL 需要更多",
		"在 /dev/shm 挂载 medium: Memory 的 emptyDir",
	},
}
