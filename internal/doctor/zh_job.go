package doctor

// zhJobChecks are jobChecks in Chinese.
var zhJobChecks = []Check{
	{
		"pod-requests",
		"设备的 requests 等于 limits",
		"设备不能给两次：API server 会拒绝这种资源的 request 与 limit 不相等的 pod",
		"limits 和 requests 写同一个整数，或只写 limits",
	},
	{
		"job-template",
		"作业的 pod 是已知的",
		"TrainJob 自己很少描述 pod：描述在它的 TrainingRuntime 或 ClusterTrainingRuntime 里",
		"fabricctl doctor job -f JOB -f RUNTIME，或加 --cluster；kubectl get clustertrainingruntimes",
	},
	{
		"job-devices",
		"作业申请了计算所需的设备",
		"没有 RDMA 设备，NCCL 会不报错地用 TCP 与其他 pod 通信",
		"fabricctl generate pytorchjob、mpijob、volcano 或 deployment 会写出 worker 所需的内容",
	},
	{
		"job-launcher",
		"launcher 不占用设备",
		"MPIJob 的 launcher 只启动 mpirun：它申请的设备 worker 就得不到，而且它要等有 GPU 的节点",
		"launcher 不要申请 GPU、网络和 RDMA 设备的资源；如果它也计算，写 runLauncherAsWorker: true",
	},
	{
		"job-workers",
		"各 worker 的轨道相同",
		"NCCL 把两个 worker 的轨道逐条配对：轨道少的那个限制所有 worker，没有轨道的走 TCP",
		"每个参与计算的角色写相同的注解和相同的资源数量",
	},
	{
		"job-rails",
		"worker 拥有并使用与其 GPU 相应的轨道",
		"网络数少于这些 GPU 应有的轨道，或 NCCL 略去了一些：NCCL_IB_HCA、端口不是 Active、RoCE 上没有地址、速率与其他端口不同",
		"注解中每条轨道一个网络；在容器里 eval \"$(fabricctl nccl-env)\"；在容器里运行 fabricctl doctor pod 会说轨道缺什么",
	},
	{
		"job-fit",
		"节点容得下该作业",
		"pod 比有空闲设备的节点多，或没有节点有这么多设备，或符合 nodeSelector 的节点太少。不考虑亲和性和污点",
		"减少 worker，或等待；kubectl describe node NAME 显示 Allocatable 和已占用的部分；在节点上 fabricctl list 会说被谁占用",
	},
	{
		"job-access",
		"可以查询作业的 pod",
		"kubectl 无权读日志或 exec，或容器已结束，或镜像里没有 shell",
		"能 get pods/log 和 create pods/exec 的角色；临时容器：kubectl debug POD --image IMAGE --target CONTAINER",
	},
	{
		"job-running",
		"作业的 pod 都在运行",
		"有 pod 在等待或已结束，其他 pod 在等它",
		"fabricctl doctor pod --pod NAMESPACE/NAME 会说缺哪一步；kubectl describe pod",
	},
	{
		"job-net",
		"每个 worker 的 NCCL 都用 RDMA",
		"NCCL 没有找到可用的 RDMA 设备，或被要求不用：它不报错地走 TCP，一个这样的 worker 会拖慢所有 worker",
		"在容器里运行 fabricctl doctor pod；NCCL_NET=IB 会使它成为错误",
	},
	{
		"job-differs",
		"各 worker 做的一样",
		"某个 worker 的轨道、网络或 NCCL 版本与多数不同：节点、镜像或变量不同",
		"与正常的 worker 比较：在两者里运行 fabricctl doctor pod，在两个节点上运行 fabricctl doctor host",
	},
	{
		"job-gdr",
		"NCCL 使用 GPUDirect RDMA",
		"数据经过主机内存：没有加载 nvidia_peermem 也没有 dma-buf，或 GPU 与 HCA 相距太远 (NCCL_NET_GDR_LEVEL)",
		"在节点上运行 fabricctl doctor host：host-gpudirect、host-acs",
	},
	{
		"job-debug",
		"日志说明 NCCL 用哪个网络",
		"NCCL 只在 NCCL_DEBUG=INFO 时、建立通信器时说明：日志里没有这样的行，或它在已读部分之前",
		"在 worker 里 env: {name: NCCL_DEBUG, value: INFO} 和 {name: NCCL_DEBUG_SUBSYS, value: \"INIT,NET,GRAPH\"}；" +
			"mpirun -x NCCL_DEBUG=INFO；NCCL_DEBUG_FILE 不要把它引到别处；--tail 读得更多",
	},
	{
		"job-messages",
		"worker 的日志里没有已知的错误消息",
		"证据中的消息说明了原因",
		"见该消息",
	},
	{
		"job-traffic",
		"worker 的每条轨道都有流量",
		"作业不用该轨道：NCCL_IB_HCA、端口不是 Active、轨道的次序使它没有配对；或作业此刻在计算、加载或等待",
		"用更长的 --interval 再看一次；NCCL 的日志 (NCCL_DEBUG=INFO) 列出它用的轨道",
	},
	{
		"job-memory",
		"worker 低于内存限制",
		"锁定的内存页和 /dev/shm 里的内容计入限制，而且不能回收",
		"提高 resources.limits.memory；为 /dev/shm 的 emptyDir 设置 sizeLimit",
	},
}
