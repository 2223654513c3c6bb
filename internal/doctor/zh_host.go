package doctor

// zhHost are hostChecks in Chinese.
var zhHost = []Check{
	{
		"host-devices",
		"主机有 RDMA 设备",
		"没有这种硬件，或驱动未加载，或设备都在 pod 里",
		"lspci -nn -d 15b3:; modprobe mlx5_ib; fabricctl list",
	},
	{
		"host-soft-rdma",
		"供 pod 使用的设备上没有软件 RDMA 设备",
		"有人创建了软件 RDMA 设备 (rdma link add)；接口移动时内核会销毁它，因此 ADD 以错误 101 拒绝该接口",
		"rdma link delete NAME",
	},
	{
		"host-use",
		"主机没有使用供 pod 使用的 RDMA 设备",
		"内核模块 (NVMe-oF, iSER, NFS/RDMA, SMC, Lustre) 或进程在该设备上有 queue pair；在 exclusive RDMA 模式下，移入 pod 会中断它们的连接，" +
			"因此 ADD 以错误 101 拒绝该设备",
		"结束使用它的程序：rdma resource show qp link HCA；把该设备从 Fabric 中去掉；或在 /etc/cni/fabric.d/policy.json 的 " +
			"allowHostUse 里列出它",
	},
	{
		"host-modules",
		"内核模块已加载",
		"驱动包按需加载模块，目前还没有程序用到；或者没有安装",
		"modprobe -a ib_uverbs rdma_cm ib_ipoib；永久生效：/etc/modules-load.d/rdma.conf",
	},
	{
		"host-rdma-mode",
		"RDMA 网络命名空间模式与下次启动后的一致",
		"该模式在加载 ib_core 时确定，而 ib_core 常由 initramfs 加载；之后只要还存在其他网络命名空间就不能修改 (EBUSY)",
		"在节点上：echo 'options ib_core netns_mode=0' >/etc/modprobe.d/ib_core.conf（1 表示 shared）；" +
			"update-initramfs -u；然后 reboot；或者在内核命令行写 ib_core.netns_mode=0，它优先",
	},
	{
		"host-initramfs",
		"initramfs 里有 RDMA 模式的设置",
		"ib_core 常由 initramfs 加载，使用的是生成 initramfs 时的选项：之后才写入的 netns_mode 在下次启动时不起作用",
		"重启之前在节点上执行 update-initramfs -u (dracut -f)",
	},
	{
		"host-port-state",
		"所有端口都是 Active",
		"没有链路，或没有子网管理器",
		"Down：检查线缆、光模块、交换机端口 (mlxlink -d ADDRESS)；Init：需要有认识该端口 GUID 的子网管理器；" +
			"不打算使用的端口：不要放进设备插件的 selectors",
	},
	{
		"host-rate",
		"没有端口降速",
		"它协商到的通道数或速率低于同一 fabric 中同型号的其他端口：线缆或光模块有一个通道损坏，其中之一是较慢的型号，或交换机端口就是这样设置的",
		"mlxlink -d ADDRESS -m -c；清洁并重新插好两端；更换线缆或光模块",
	},
	{
		"host-counters",
		"端口没有计到链路错误",
		"任意一端的线缆或光模块脏污、老化或没有插好；或者是交换机端口。计数器的阈值和含义：docs/health.md",
		"mlxlink -d ADDRESS -m -c（光模块、通道、错误计数器）；清洁并重新插好两端，然后与正常端口交换，看错误跟随哪一个；" +
			"整个 fabric 用 ibdiagnet --get_phy_info",
	},
	{
		"host-flaps",
		"没有链路反复断开",
		"线缆或光模块松动或损坏，交换机重启或改了配置，或有人把网络接口 down 掉",
		"journalctl -k | grep -i 'link down'；mlxlink -d ADDRESS -m -c 显示上一次链路断开的原因；同一交换机的许多端口同时断开则是交换机的问题",
	},
	{
		"host-loss",
		"途中没有丢包",
		"拥塞，而流量控制或拥塞控制没有起作用（RoCE：主机和交换机上的 PFC 和 ECN），途中其他地方的链路有问题，或对端进程已死：" +
			"作业崩溃会让这些计数器升高一次",
		"在作业运行时再看一次：fabricctl doctor host --for 1m；RoCE：host-roce-qos，以及交换机端口的计数器；InfiniBand：ibqueryerrors",
	},
	{
		"host-firmware",
		"同一型号的网卡固件一致",
		"更新没有覆盖到每一张网卡，或者某张网卡被更换过",
		"flint -d ADDRESS query；mlxfwmanager；然后复位网卡 (mlxfwreset) 或重启",
	},
	{
		"host-roce-qos",
		"RoCE fabric 的各条 rail 对优先级的处理一致",
		"某个设置是手工做的，或者某个 unit 没有对每个接口运行：只有部分 rail 有 PFC、ECN 或标记，或标记对应的优先级没有 PFC，则在负载下丢包",
		"dcb pfc show dev NETDEV，dcb app show dev NETDEV（或 mlnx_qos -i NETDEV）；cma_roce_tos -d HCA；用一个 unit 在启动时设置所有 " +
			"rail；交换机必须有同样的设置",
	},
	{
		"host-picture",
		"节点信息读取完整",
		"不是 root，或读取期间有设备出现或消失",
		"以 root 运行；再运行一次",
	},
	{
		"host-vf-guid",
		"VF 有 GUID",
		"没有 GUID 的 VF 不会被子网管理器配置",
		"ip link set PF vf N node_guid GUID; ip link set PF vf N port_guid GUID；然后重新绑定 VF 的驱动",
	},
	{
		"host-guid",
		"每个端口的 GUID 都是唯一的",
		"某个 VF 被设置成了别人的 GUID，或者复制了配置；子网管理器只会配置其中一个，流量会随机到达其中之一",
		"ip link set PF vf N port_guid GUID，各不相同；然后重新绑定 VF 的驱动",
	},
	{
		"host-names",
		"接口名稳定",
		"ib0、ib1 …… 按探测顺序编号：换一块卡或换一个内核，就指向另一个端口",
		"使用 udev 的可预测命名；或者不按名字，而按 PCI 地址、hwaddr 或 guid 选择",
	},
	{
		"host-subnets",
		"每条轨道有自己的子网",
		"一个节点的两条轨道在同一个子网：内核会在任一接口上应答两个地址的 ARP，并且所有流量都从其中一个接口出去",
		"每条轨道一个子网，或在网络配置中写 \"routing\": {\"sourceBased\": true}",
	},
	{
		"host-mtu",
		"同一 fabric 的各轨道 MTU 一致",
		"较大的报文在发往 MTU 较小的一端时会丢失",
		"在所有轨道上 ip link set NETDEV mtu N，并在网络配置中写 \"mtu\"",
	},
	{
		"host-bond",
		"没有把 bond 当成 InfiniBand",
		"以太网 bond 的 RDMA 设备 (mlx5_bond_0) 是走节点自身网络的 RoCE：ib_write_bw -d、NCCL_IB_HCA=mlx5 " +
			"和设备插件的 selectors 都可能误选它",
		"NCCL_IB_HCA 用 = 加精确名字 (fabricctl nccl-env)；不要放进 selectors",
	},
	{
		"host-pcie",
		"HCA 以完整的 PCIe 速率运行",
		"插槽的通道数较少或代次较旧，或者链路降速",
		"lspci -vv -s ADDRESS | grep LnkSta；重新插卡、换插槽、检查 BIOS",
	},
	{
		"host-acs",
		"PCIe 交换芯片允许 GPU 与 HCA 直接通信",
		"启用访问控制服务 (ACS) 重定向后，PCIe 交换芯片会把其下 GPU 与 HCA 之间的流量送到 root complex 再折返：GPUDirect " +
			"RDMA 变慢或失败。直通设备的虚拟机需要 ACS，裸金属不需要",
		"永久关闭：在 BIOS 中关闭 ACS，或在启动时由 unit 执行同一命令；内核 6.11 及以后：命令行 pci=config_acs=",
	},
	{
		"host-gpudirect",
		"HCA 能访问 GPU 显存",
		"nvidia_peermem 未加载，也没有迹象表明由 DMA-BUF 代替：那需要开源 GPU 内核模块和 Linux 5.12 或以上",
		"modprobe nvidia_peermem; echo nvidia_peermem >/etc/modules-load.d/nvidia_peermem.conf；或使用开源 GPU 内核模块，" +
			"Blackwell 和 Grace 本来就用它",
	},
	{
		"host-iommu",
		"IOMMU 不拖慢点对点流量",
		"IOMMU 已启用且不是直通模式，每次传输都要地址转换",
		"内核命令行加 iommu=pt；另见 host-acs",
	},
	{
		"host-memlock",
		"containerd 给容器的锁定内存不设上限",
		"容器继承 containerd 的限制；systemd 的默认值是 8 MiB",
		"systemctl edit containerd: [Service] LimitMEMLOCK=infinity; systemctl restart containerd",
	},
	{
		"host-plugin",
		"插件已安装",
		"它不在 /opt/cni/bin 里",
		"make install，或使用 DaemonSet",
	},
	{
		"host-version",
		"插件与 fabricctl 版本一致",
		"只更新了其中一个；fabricctl 对插件行为的说明可能不准确",
		"同一版本的 make install 和 make install-ctl，或使用 agent 镜像里的 fabricctl",
	},
	{
		"host-cni-order",
		"Multus 是第一个 CNI 配置",
		"运行时取 /etc/cni/net.d 中按名字排序的第一个文件；如果不是 Multus 的，注解不起作用",
		"让 Multus 写 00-multus.conf (--multus-conf-file=auto)，删除排在它前面的文件",
	},
	{
		"host-stranded",
		"没有被 pod 遗留的设备",
		"pod 的网络命名空间已经消失，而 DEL 没有被调用或失败了",
		"fabricctl repair",
	},
	{
		"host-foreign",
		"插件的状态目录里只有插件自己的文件",
		"另一个程序或某个 root 用户把它放进了 /run/fabric-cni，或损坏了插件的文件：除它自己的连接或 claim 以外，它不影响任何东西",
		"如果该文件属于某个 pod，先删除该 pod；然后查看并删除它：rm -r PATH",
	},
	{
		"host-policy",
		"节点策略可以读取",
		"有笔误；修正之前不会移动任何设备",
		"位置见证据",
	},
}
