package doctor

// zhClaims are claimChecks in Chinese.
var zhClaims = []Check{
	{
		"pod-claim-access",
		"可以查询 pod 的 ResourceClaim",
		"kubectl 没有列出它们的权限，或 API server 不提供 resource.k8s.io/v1 (Kubernetes 1.34)",
		"需要一个能列出 resource.k8s.io 的 resourceclaims、resourceclaimtemplates、resourceslices 和 deviceclasses 的角色；" +
			"kubectl api-resources --api-group=resource.k8s.io",
	},
	{
		"pod-claim",
		"pod 的 ResourceClaim 存在",
		"spec.resourceClaims 中的名字写错了，或 ResourceClaimTemplate 在另一个命名空间，或 kube-controller-manager " +
			"的控制器没有创建该 claim",
		"kubectl get resourceclaimtemplates,resourceclaims -A；fabricctl generate claim 会生成模板",
	},
	{
		"pod-claim-container",
		"pod 的每个 claim 都有容器使用",
		"spec.resourceClaims 里有 claim 没有被任何容器引用：它的设备会有接口，但没有容器得到设备文件",
		"在容器中写 resources: {claims: [{name: NAME}]}",
	},
	{
		"pod-claim-class",
		"claim 的 DeviceClass 存在",
		"控制器为每个 allocation DRA 的 Fabric 创建 NAME.fabric.dev：Fabric 的名字不同，或其 allocation 是 DevicePlugin，" +
			"或其他设备的驱动没有安装",
		"kubectl get deviceclasses; kubectl get fabrics；在 Fabric 中 spec.allocation: DRA",
	},
	{
		"pod-claim-allocated",
		"调度器能为 pod 的 claim 分配设备",
		"一个 pod 的所有 claim 必须在同一个节点上满足：申请的设备多于节点拥有的、正常的或剩余的设备",
		"少申请一些（fabricctl generate claim --cluster 按多数节点的数量生成）；删除占用设备的 pod；端口 Down：" +
			"fabricctl doctor cluster，并在节点上 doctor host",
	},
	{
		"pod-claim-pool",
		"设备池是完整的",
		"节点的 agent 正在写 ResourceSlice，或中途停止了：在全部写完之前，调度器不会分配其中的设备",
		"kubectl -n fabric-system logs POD（该节点的 fabric-agent）；kubectl get resourceslices --field-selector " +
			"spec.driver=fabric.dev",
	},
	{
		"pod-claim-count",
		"注解中的网络数等于 claim 的设备数",
		"每个网络占用 pod 的 claim 的一个设备：网络多了，ADD 失败（错误码 100）；网络少了，容器不启动，以免缺少轨道运行",
		"在 k8s.v1.cni.cncf.io/networks 中，网络名出现的次数等于 claim 中该 fabric 的设备数；" +
			"fabricctl generate claim --pod 会同时生成两者",
	},
	{
		"pod-claim-shared",
		"一个 claim 只有一个 pod 使用",
		"多个 pod 引用同一个 ResourceClaim (resourceClaimName)，而一个接口只能在一个 pod 里",
		"使用 ResourceClaimTemplate (resourceClaimTemplateName)：每个 pod 有自己的 claim",
	},
	{
		"pod-event",
		"pod 的 Event 中没有已知的错误消息",
		"见证据中的消息",
		"按该消息的处理办法",
	},
	{
		"pod-rails",
		"pod 的每个 HCA 都有接口",
		"注解中的网络少于 pod 的设备，或有网络没有接上",
		"在 k8s.v1.cni.cncf.io/networks 中每个设备一个网络；fabricctl doctor pod --pod NAMESPACE/NAME 会比较它们",
	},
	{
		"cluster-dra-api",
		"API server 提供动态资源分配 (DRA)",
		"有 Fabric 使用 allocation DRA，而 resource.k8s.io/v1 从 Kubernetes 1.34 才有；旧节点的 kubelet 不做准备工作",
		"API server 和节点使用 Kubernetes 1.34 或以后（不带 --runtime-config=resource.k8s.io/v1=false），" +
			"或 spec.allocation: DevicePlugin",
	},
	{
		"cluster-dra-class",
		"每个 allocation DRA 的 Fabric 都有 DeviceClass",
		"控制器不在，或没有写 DeviceClass 的权限，或有人把它删了",
		"kubectl describe fabric NAME；控制器的日志；另见 cluster-controller",
	},
	{
		"cluster-dra-slices",
		"每个节点在 ResourceSlice 中提供 allocation DRA 的 Fabric 的设备",
		"fabric-agent 没有在那里运行，或没有作为驱动 fabric.dev 在该节点的 kubelet 注册（kubelet 会删除不在的驱动的 slice）；" +
			"或设备不健康",
		"kubectl describe fabricnode NODE; kubectl -n fabric-system logs POD；节点上 " +
			"ls /var/lib/kubelet/plugins_registry 里有该驱动的 socket",
	},
}

// zhClaimMessages are claimMessages in Chinese.
var zhClaimMessages = []Check{
	{
		"log-dra-allocate",
		"没有节点拥有 claim 所要的设备",
		"一个 pod 的所有 ResourceClaim 连同 selectors 和 constraints 必须在同一个节点上满足：没有节点有这么多设备，" +
			"或设备不正常，或已被占用",
		"fabricctl doctor pod --pod NAMESPACE/NAME 会指出是哪个请求，以及节点有什么",
	},
	{
		"log-dra-not-created",
		"pod 的 ResourceClaim 不存在",
		"pod 引用的 ResourceClaimTemplate 或 ResourceClaim 不在它的命名空间里，或 kube-controller-manager 还没有创建该 claim",
		"kubectl get resourceclaimtemplates,resourceclaims -n NAMESPACE; fabricctl doctor pod --pod " +
			"NAMESPACE/NAME",
	},
	{
		"log-dra-class",
		"DeviceClass 不存在",
		"控制器为每个 allocation DRA 的 Fabric 创建 DeviceClass NAME.fabric.dev，而没有这个名字的",
		"kubectl get deviceclasses,fabrics；在 Fabric 中 spec.allocation: DRA；fabricctl doctor cluster",
	},
	{
		"log-dra-in-use",
		"claim 被另一个 pod 占用",
		"多个 pod 引用同一个 ResourceClaim，而一个接口只能在一个 pod 里",
		"使用 ResourceClaimTemplate (resourceClaimTemplateName)：每个 pod 有自己的 claim",
	},
	{
		"log-dra-unregistered",
		"kubelet 不认识该驱动",
		"fabric-agent 没有在该节点上运行，或正在启动，或没有挂载 kubelet 的插件目录。pod 会等待，驱动恢复后启动",
		"kubectl -n fabric-system get pods -o wide；查看其日志；在节点上 ls /var/lib/kubelet/plugins_registry " +
			"/var/lib/kubelet/plugins/fabric.dev",
	},
	{
		"log-dra-prepare",
		"无法准备 claim 的设备",
		"agent 检查了插件能否接上该设备，结果不能：消息末尾有设备和原因。kubelet 会重试，在此之前 pod 不会启动",
		"按消息所说处理；在节点上 fabricctl doctor host；参数错误的 claim 必须连同 pod 一起重建",
	},
	{
		"log-dra-cdi",
		"运行时找不到 claim 的设备",
		"agent 已把该 claim 的 CDI spec 写到 /var/run/cdi，而运行时不读该目录，或关闭了 CDI，或文件已不在",
		"containerd 1.7 及以后：enable_cdi = true，且 cdi_spec_dirs 包含 /var/run/cdi（2.0 默认如此）；CRI-O：" +
			"cdi_spec_dirs；在节点上 ls /var/run/cdi；删除该 pod",
	},
	{
		"log-dra-not-attached",
		"pod 的 claim 中有设备在 pod 里没有接口",
		"容器没有启动，以免缺少轨道运行：注解中该网络的次数少于 claim 的设备数，或 Multus 没有在该节点上运行",
		"注解中的网络数按消息所说（fabricctl generate claim --pod 会同时生成两者）；Multus 见 host-cni-order；" +
			"然后删除该 pod，它不会被重新接入",
	},
	{
		"log-dra-hook",
		"读不到 agent 为 pod 准备的内容，或检查它的 hook 无法运行",
		"带 claim 的容器启动之前，运行时会运行已安装的插件；插件无法运行，或读不到 agent 准备的内容",
		"在节点上 ls -l /opt/cni/bin/fabric 和 ls /run/fabric-cni/prepared；插件由 agent 安装；删除该 pod",
	},
	{
		"log-dra-uid",
		"插件不知道是哪个 pod",
		"该网络的设备来自属于 pod 的 ResourceClaim，而 CNI_ARGS 里没有 pod 的 UID：运行时，或它与插件之间的程序，没有传递",
		"containerd 1.4、CRI-O 1.20 或 Multus 3.8 及以后会传递；手工调用：CNI_ARGS=K8S_POD_UID=UID",
	},
	{
		"log-dra-no-claim",
		"网络没有对应的 claim，或网络多于设备",
		"该 Fabric 的 allocation 是 DRA：注解中的每个网络占用 pod 的 claim 的一个设备，而已经没有剩余",
		"fabricctl doctor pod --pod NAMESPACE/NAME 会比较它们；fabricctl generate claim --pod 会同时生成两者",
	},
	{
		"log-dra-given",
		"设备已由某个 ResourceClaim 给了另一个 pod",
		"使用另一个网络的 pod 要的设备，已被调度器给了别人：同一设备有两个分配者，例如 allocation DRA 的 Fabric " +
			"之外还有另一个设备插件，或者有网络直接写了该设备",
		"一个设备只有一个分配者：把它从另一个设备插件的 selectors 或另一个网络中去掉；否则等那个 pod 结束",
	},
}
