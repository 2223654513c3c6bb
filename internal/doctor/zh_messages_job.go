package doctor

// zhJob are jobMessages in Chinese.
var zhJob = []Check{
	{
		"log-port-error",
		"作业运行时端口断链",
		"HCA 的端口断开了链路：线缆、光模块、交换机端口，或有人重启了交换机。即使链路恢复，几秒后经过该端口的传输也会失败",
		"在该节点上：dmesg -T | grep -i link；mlxlink -d ADDRESS -c（误码、温度）；" +
			"/sys/class/infiniband/*/ports/1/counters/link_downed 会计数；链路稳定之前停用该节点或该轨道；" +
			"NCCL_IB_TIMEOUT=22 能撑过短暂的断链",
	},
	{
		"log-hca-fatal",
		"HCA 报告了致命错误",
		"HCA 的固件停止了，或到它的 PCIe 链路断了：它的所有队列对 (QP) 都已失效",
		"在该节点上 dmesg -T | grep mlx5_core；驱动会自行复位 HCA (devlink health show)，否则手工复位或重启；" +
			"使用厂商当前版本的固件；再次出现时请报告厂商",
	},
	{
		"log-peer-closed",
		"另一个 rank 已经结束",
		"对端的 rank 关闭了用于 bootstrap 的 TCP 连接：它崩溃了，或被杀死（内存不足、被抢占），或因自己的错误退出。这一行只是后果",
		"在其他 pod 的日志里找最先停止的 rank：kubectl logs --prefix -l " +
			"SELECTOR --tail=-1 --timestamps | fabricctl doctor explain；kubectl describe pod 查看 OOMKilled 和驱逐",
	},
	{
		"log-bootstrap-connect",
		"NCCL 的 bootstrap 连不上另一个 rank",
		"bootstrap 是所有 rank 之间的 TCP，走 NCCL_SOCKET_IFNAME 指定的或 NCCL 自己选的接口：它与对端不在同一个网络（docker0、" +
			"某条轨道），或 NetworkPolicy 或防火墙丢弃了这些端口，或对端已经结束 (Connection refused)",
		"在每个 pod 里 fabricctl nccl-env 会打印 NCCL_SOCKET_IFNAME；消息里的地址必须是这个 pod 能 ping 通的；" +
			"命名空间的 NetworkPolicy：kubectl get networkpolicies",
	},
	{
		"log-watchdog",
		"PyTorch 等待集合通信超时",
		"在超时时间内，不是所有 rank 都到达这次集合通信：某个 rank 崩溃或挂起，或太慢（checkpoint、数据），或调用了另一个集合通信；" +
			"或它的流量停住了：断链、配对了两个平面、HCOLL。打印这条消息的 rank 多半是在等待的那些",
		"以所有 rank 中最早的消息为准：对所有 pod 的日志执行 explain；没有打印这条消息的，或 SeqNum 最小的 rank，就是要查的 " +
			"(py-spy dump，TORCH_NCCL_TRACE_BUFFER_SIZE=2000 加 TORCH_NCCL_DUMP_ON_TIMEOUT=1)；网络：" +
			"fabricctl verify --pods A,B",
	},
	{
		"log-nccl-system",
		"NCCL 放弃了；原因在此前的 NCCL WARN 行里",
		"NCCL 的某个系统调用或 verbs 调用失败：设备打不开、内存无法锁定、/dev/shm 已满、对端已经消失。只有 NCCL_DEBUG=WARN 或 INFO " +
			"时 NCCL 才会打印是哪个",
		"用 NCCL_DEBUG=INFO 再运行一次，并对所有 rank 的日志执行 explain；在容器里 fabricctl doctor pod 能直接找出常见原因",
	},
	{
		"log-nccl-uds",
		"同一节点上 NCCL 的进程之间不通",
		"同一节点的 rank 通过 Unix socket 互相传递内存，而 Unix socket 属于网络命名空间：同一节点的两个 pod 看不到对方的；" +
			"或另一个进程已经结束",
		"把一个节点的所有 rank 放在一个 pod 里，或 NCCL_CUMEM_ENABLE=0 和 NCCL_CUMEM_HOST_ENABLE=0；" +
			"如果另一个进程已经结束，看它自己的日志",
	},
	{
		"log-perftest-setup",
		"perftest 打不开设备，或建不了队列",
		"它前面的一行会说明是什么失败了。如果没有：字符设备 /dev/infiniband/uverbsN 不在容器里，或它的 HCA 在另一个网络命名空间" +
			" (context)；或容器没有 IPC_LOCK 且锁定内存受限 (resources)",
		"在容器里 fabricctl doctor pod；ls -l /dev/infiniband /sys/class/infiniband；ulimit -l；" +
			"securityContext: {capabilities: {add: [IPC_LOCK]}}",
	},
	{
		"log-cpu-frequency",
		"CPU 频率在变化：无害",
		"perftest 用 CPU 周期计算时间，而各核的频率不同。带宽仍然正确，因为传输由 HCA 完成；延迟可能有百分之几的偏差",
		"不必处理；ib_write_bw -F 不打印它；要精确的延迟，在节点上 cpupower frequency-set -g performance",
	},
}
