package doctor

// zhMessages are the messages of NCCL, verbs, perftest and Open MPI in Chinese.
var zhMessages = []Check{
	{
		"log-mr",
		"内存注册失败",
		"verbs 要锁定内存。容器用户的锁定内存上限 (memlock) 太小而且容器没有 IPC_LOCK 能力，或 pod 的内存限制小于要锁定的量",
		"securityContext: {capabilities: {add: [IPC_LOCK]}}；非 root 用户还要 ulimit -l unlimited（为 " +
			"containerd.service 设置 LimitMEMLOCK=infinity）；调大或去掉 resources.limits.memory；查看：fabricctl doctor pod",
	},
	{
		"log-segfault",
		"NCCL、UCX 或 libmlx5 崩溃",
		"如果发生在第一次 RDMA 传输时：没有 IPC_LOCK 能力，队列或缓冲区无法锁定，而库没有检查。其他情况：另有缺陷",
		"securityContext: {capabilities: {add: [IPC_LOCK]}}；然后在容器里 fabricctl doctor pod；" +
			"NCCL_DEBUG=INFO 会显示进行到哪一步",
	},
	{
		"log-port-down",
		"端口没有 Active",
		"HCA 的这个端口没有链路 (Down)，或没有子网管理器配置它 (Init)。设备插件仍可能把它列为可用",
		"fabricctl discover 会列出端口和状态；选 Active 的 (ib_write_bw -d)，其余不要放进设备插件的 selectors",
	},
	{
		"log-no-such-device",
		"没有这个名字的 RDMA 设备",
		"这是另一个节点的名字，或设备不在这个网络命名空间里：RDMA exclusive 模式下 pod 只看得到自己的设备",
		"在容器里 ls /sys/class/infiniband；在节点上 fabricctl discover",
	},
	{
		"log-qp-timeout",
		"队列对 (QP) 找不到到对端的路径",
		"内核无法在这个端口上解析对端地址：配对了两个互不相通的平面，或 ARP 由错误的轨道应答，或中间有 VLAN 或交换机阻隔",
		"两个节点上用同一条轨道配对：NCCL_IB_HCA 用 = 并按轨道顺序 (fabricctl nccl-env)，NCCL_CROSS_NIC=0；" +
			"在该轨道上 ping -I NETDEV PEER；两条轨道在同一个子网：\"routing\": {\"sourceBased\": true}",
	},
	{
		"log-qp-modify",
		"给队列对 (QP) 的 GID 不存在",
		"该端口在这个 GID index 上没有条目：pod 的地址比主机少，因此表较短；或混用了 RoCE v1 和 v2",
		"不要习惯性地设置 NCCL_IB_GID_INDEX；fabricctl nccl-env 会计算它；fabricctl discover -o json " +
			"会列出每个端口的 gids",
	},
	{
		"log-wc-retry",
		"对端不再应答",
		"报文或确认丢失：路径上的 MTU 不同，或 RoCE 没有 PFC 或 ECN，或防火墙丢弃 UDP 4791，或端口有误码，或对端进程已退出",
		"先看对端的日志；每一跳 MTU 一致 (ping -M do -s 8972)；mlnx_qos，ethtool -S " +
			"NETDEV | grep -E 'discard|pause'；/sys/class/infiniband/*/ports/1/counters/symbol_error",
	},
	{
		"log-tcp",
		"NCCL 走 TCP",
		"NCCL 没有找到可用的 RDMA 设备，不报错地退回 eth0：pod 里没有设备，或端口不是 Active，或没有字符设备，" +
			"或被 NCCL_IB_HCA 或 NCCL_IB_DISABLE 排除",
		"在容器里 fabricctl doctor pod；NCCL_NET=IB 会把退回变成报错",
	},
	{
		"log-no-verbs",
		"RDMA 设备打不开",
		"字符设备 /dev/infiniband/uverbsN 不在容器里（由设备插件负责），或属于另一个网络命名空间里的 HCA (exclusive 模式)",
		"申请提供 RDMA 设备的设备插件的资源 (isRdma: true)；ls -l " +
			"/dev/infiniband /sys/class/infiniband_verbs",
	},
	{
		"log-provider",
		"镜像缺少用户态驱动",
		"libibverbs 找到了设备，但没有对应的 provider",
		"在镜像里 apt-get install ibverbs-providers libibverbs1（其他发行版是 rdma-core）",
	},
	{
		"log-hcoll",
		"Open MPI 的 HCOLL",
		"Open MPI 的 HCOLL 集合通信会自行打开 RDMA 设备；容器里只有其中一部分设备时会挂起或失败",
		"mpirun -mca coll_hcoll_enable 0 -mca btl tcp,self（不影响 NCCL 自己的流量），或 " +
			"OMPI_MCA_coll_hcoll_enable=0",
	},
	{
		"log-openib",
		"Open MPI 的旧 RDMA 传输",
		"openib BTL 不认识该设备，或没有锁定内存",
		"mpirun --mca pml ucx --mca btl ^openib；只有 NCCL 要用 RDMA 时用 -mca btl tcp,self；锁定内存：IPC_LOCK 能力",
	},
	{
		"log-gpudirect",
		"GPUDirect RDMA 没有启用",
		"HCA 访问不到 GPU 显存：既没有 nvidia_peermem 也没有 dma-buf，或 GPU 在 PCIe 上离得太远",
		"在主机上 modprobe nvidia_peermem，或使用开源 GPU 内核模块和内核 5.12 及以后的 dma-buf；距离：fabricctl discover 的 " +
			"GPUS 列",
	},
	{
		"log-peer-gone",
		"perftest 的另一端已经结束",
		"另一端有它自己的错误消息；或那里还没有启动 server，或两端 perftest 版本不同",
		"先启动 server，看它打印什么；两端用同一版本的 perftest",
	},
	{
		"log-shm",
		"/dev/shm 太小",
		"容器默认只有 64 MiB 的 /dev/shm",
		"在 /dev/shm 挂载 medium: Memory 的 emptyDir",
	},
	{
		"log-bootstrap",
		"NCCL 找不到用于 bootstrap 的接口",
		"NCCL_SOCKET_IFNAME 指的接口不在 pod 里：主机上的名字在那里不适用",
		"在 pod 里 fabricctl nccl-env 会打印正确的值；ip -br address",
	},
	{
		"log-wc-error",
		"传输被拒绝",
		"某一端的内存没有注册（或已注销），或没有这种权限：GPUDirect 遇到有问题的 IOMMU 或 ACS 设置，或者是缺陷",
		"试 NCCL_NET_GDR_LEVEL=LOC：如果有效，就是 GPUDirect 的问题：iommu=pt，关闭 PCIe 交换芯片的 ACS，" +
			"nvidia_peermem 与驱动版本一致",
	},
}

// zhUCX are ucxMessages in Chinese.
var zhUCX = []Check{
	{
		"log-ucx-device",
		"要求 UCX 使用 pod 没有的设备",
		"UCX_NET_DEVICES 指的是另一个 pod 或主机的设备：mpirun -x UCX_NET_DEVICES 把一个 pod 的值传给所有 rank，" +
			"而 RDMA exclusive 模式下没有两个 pod 的设备相同。UCX 会用剩下的（如共享内存或 TCP），或者无法启动",
		"不要用 -x UCX_NET_DEVICES：在每个 pod 里、rank 启动之前设置：eval \"$(fabricctl nccl-env)\"。" +
			"消息里列出了 pod 拥有的设备",
	},
	{
		"log-ucx-transport",
		"要求 UCX 使用不存在的传输",
		"UCX_TLS 指的传输是这个 HCA 或这个 UCX 版本没有的：dc 和带 _mlx5 的需要 Mellanox HCA 和带 mlx5 provider 的 UCX。" +
			"如果消息列出的传输里没有 rc、ud 和 ib，说明 UCX 根本没有找到 RDMA 设备",
		"UCX_TLS=rc,sm,self，或不设置；在 pod 里 ucx_info -d；fabricctl doctor pod",
	},
	{
		"log-ucx-unreachable",
		"UCX 没有到对端的传输",
		"两端没有共同的传输：其中一端没有 RDMA 设备，或两端在不同的 fabric 上，或 UCX_TLS 排除了它们有的传输",
		"在两个 pod 里 fabricctl doctor pod；fabricctl verify --pods A,B",
	},
	{
		"log-ucx-tcp",
		"UCX 走 TCP",
		"UCX 没有找到可用的 RDMA 设备，或被 UCX_TLS 或 UCX_NET_DEVICES 排除，于是不报错地用了该名字的接口",
		"在容器里 fabricctl doctor pod；UCX_TLS=rc,sm,self 会把退回变成报错",
	},
	{
		"log-pml-ucx",
		"Open MPI 不能使用 UCX",
		"要求了 -mca pml ucx，而 UCX 在这个 pod 里没有找到 RDMA 设备：没有设备，或被 UCX_NET_DEVICES 或 UCX_TLS 排除。" +
			"只有 TCP 不足以使用该组件",
		"UCX 在这一行之前打印的内容会说明是哪种；在 Host 所指的 pod 里 fabricctl doctor pod；" +
			"只有 NCCL 要用 RDMA 时用 -mca pml ob1 -mca btl tcp,self",
	},
}
