package doctor

import "regexp"

// Messages are the log lines that doctor explain recognises, each id once.
var Messages = []Message{
	{
		ID:    "log-mr",
		Title: "Memory could not be registered",
		Pattern: said(
			`(?:Couldn't|Failed to) (?:allocate|register) MR\b`,
			`ibv_reg_(?:dmabuf_)?mr\w*\b.*(?:Cannot allocate memory|ENOMEM)`,
			`ibv_create_(?:qp|cq|srq)\w*\b.*(?:Cannot allocate memory|ENOMEM)`,
			`Unable to create QP\b`,
			`mlx5\w*.*(?:create|reg)_mr\b.*ENOMEM`,
			`^Failed to create MR$`,
		),
		Near: said(
			`(?i)^failed to create mr\b.{0,20}$`,
			`^Couldn't register memory\b`,
		),
		Examples: []string{
			"Couldn't allocate MR",
			"Couldn't register MR",
			"misc/ibvwrap.cc:180 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
		},
		Cause: "verbs pin memory. The limit of locked memory (memlock) of the container's user is too small and the " +
			"container lacks the capability IPC_LOCK, or the pod's memory limit is smaller than what is to be pinned",
		Cure: "securityContext: {capabilities: {add: [IPC_LOCK]}}, and for users other than root ulimit -l " +
			"unlimited (LimitMEMLOCK=infinity for containerd.service); raise or remove resources.limits.memory; see " +
			"it with: fabricctl doctor pod",
	},
	{
		ID:    "log-segfault",
		Title: "A crash in NCCL, UCX or libmlx5",
		Pattern: said(
			`segfault at .* in lib(?:nccl|mlx[45]|ibverbs|rdmacm|uc[mpst]|hcoll|sharp)\S*`,
			`(?i)segfault in (?:NCCL|UCX|lib(?:nccl|mlx5|ibverbs))\b`,
		),
		Near: said(
			`\*\*\* SIGSEGV\b`,
			`\[\S+ *:\d+:\d+\] Caught signal 11 \(Segmentation fault`,
			`\[\S+:\d+\] Signal: Segmentation fault \(11\)`,
			`^(?:\S+: line \d+: +\d+ )?Segmentation fault(?: +\(core dumped\).{0,200})?$`,
			`\bncclProxyService(?:UDS)?\b`,
		),
		Examples: []string{
			"[train-0:00042:0:42] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
			"Segmentation fault (core dumped)",
		},
		Cause: "if it comes with the first RDMA transfer: without the capability IPC_LOCK a queue or a buffer could " +
			"not be pinned, and the library did not check. Elsewhere: another bug",
		Cure: "securityContext: {capabilities: {add: [IPC_LOCK]}}; then fabricctl doctor pod in the container; " +
			"NCCL_DEBUG=INFO shows how far it got",
	},
	{
		ID:    "log-port-down",
		Title: "The port is not up",
		Pattern: said(
			`(?i)Port number \d+ state is (?:Down|Init|Armed)\b`,
			`RDMA device \S+ port \d+ is not Active`,
			`Couldn't set the link layer`,
			`(?:mlx[45]|bnxt_re|irdma|hns|efa|rxe|siw|ibp|rocep)\S*:? port (?:\d+ )?(?:is )?not (?:in )?active`,
		),
		Examples: []string{
			"Port number 1 state is Down",
			"fabric: could not attach net1 to container c1: RDMA device mlx5_1 port 1 is not Active: state Down, " +
				"physical state Polling: no peer answers: cable, switch port or transceiver; \"allowDown\": true " +
				"attaches it all the same",
		},
		Cause: "this port of the HCA has no link (Down), or no subnet manager has configured it (Init). A device " +
			"plugin may list it as usable all the same",
		Cure: "fabricctl discover shows the ports and their states; choose an Active one (ib_write_bw -d), leave " +
			"the others out of the device plugin's selectors",
	},
	{
		ID:    "log-no-such-device",
		Title: "There is no RDMA device of this name",
		Pattern: said(
			`\bIB device \S+ not found`,
			`Unable to find the Infiniband/RoCE device`,
			`^Did not detect devices$`,
		),
		Examples: []string{"IB device mlx5_bond_0 not found", "Unable to find the Infiniband/RoCE device"},
		Cause: "the name is another node's, or the device is not in this network namespace: in exclusive RDMA " +
			"mode a pod sees its own devices only",
		Cure: "ls /sys/class/infiniband in the container; fabricctl discover on the node",
	},
	{
		ID:    "log-qp-timeout",
		Title: "A queue pair found no way to its peer",
		Pattern: said(
			`ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Connection timed out|No route to host|`+
				`Network is unreachable)`,
			`Failed to modify QP\b.*(?:timed out|No route|unreachable)`,
			`\bibv_create_ah\b.*(?:Network is unreachable|No route to host|Connection timed out)`,
		),
		Examples: []string{
			"Failed to modify QP to RTR: Connection timed out",
			"ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
			"misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev " +
				"mlx5_2:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:192.168.10.11, " +
				"remote GID ::ffff:192.168.11.12",
		},
		Cause: "the kernel could not resolve the peer's address on this port: two planes were paired that do not " +
			"reach each other, or ARP is answered by the wrong rail, or a VLAN or a switch is in the way",
		Cure: "pair the same rail on both nodes: NCCL_IB_HCA with = and in rail order (fabricctl nccl-env), " +
			"NCCL_CROSS_NIC=0; ping -I NETDEV PEER on that rail; two rails in one subnet: \"routing\": " +
			"{\"sourceBased\": true}",
	},
	{
		ID:    "log-qp-modify",
		Title: "A queue pair was given a GID that is not there",
		Pattern: said(
			`ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Invalid argument|No such device|No data available)`,
			`Failed to modify QP(?: (?:0x)?\w+)? to RTR`,
			`[Ii]nvalid GID index`,
			`ibv_query_gid\b.*failed`,
			`(?:UCX|NCCL|mlx[45]_|ibv_|rdma).*Failed to query GID`,
		),
		Except: regexp.MustCompile(`timed out|No route|unreachable`),
		Examples: []string{
			"NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument",
			"Failed to modify QP 0x1a2 to RTR",
		},
		Cause: "the GID index has no entry on this port: the pod has fewer addresses than the host, so the table is " +
			"shorter; or RoCE v1 and v2 were mixed",
		Cure: "do not set NCCL_IB_GID_INDEX by habit; fabricctl nccl-env computes it; fabricctl discover -o json " +
			"shows each port's gids",
	},
	{
		ID:    "log-wc-retry",
		Title: "The peer did not answer any more",
		Pattern: said(
			`Got completion (?:from peer (?:\S+ )?)?with (?:error |status=)(?:12\b|IBV_WC_RETRY_EXC_ERR)`,
			`IBV_WC_RETRY_EXC_ERR`,
			`(?i)transport retry count(?:er)? exceeded`,
			`Failed status 12: wr_id`,
			`(?i)vendor[_ ]err(?:or)?[ :=]*(?:129|0x81)\b`,
			`Did not get Message for \d+ Seconds`,
		),
		Near: said(
			`Completion with error at (?:client|server)`,
		),
		Except: regexp.MustCompile(`status=(?:4|10|11)\b`),
		Examples: []string{
			"NCCL WARN NET/IB : Got completion from peer 192.168.10.12<47722> with status=12 opcode=0 len=0 vendor " +
				"err 129 (Send)",
			"NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
			"mlx5_2: got completion with error: transport retry counter exceeded",
		},
		Cause: "packets or acknowledgements are lost: the path has another MTU, RoCE runs without PFC or ECN, a " +
			"firewall drops UDP 4791, the port has errors, or the peer's process has died",
		Cure: "look at the peer's log first; same MTU on all hops (ping -M do -s 8972); mlnx_qos, ethtool -S " +
			"NETDEV | grep -E 'discard|pause'; /sys/class/infiniband/*/ports/1/counters/symbol_error",
	},
	{
		ID:    "log-tcp",
		Title: "NCCL goes over TCP",
		Pattern: said(
			`NET/IB ?: No device found`,
			`NET/Socket ?: Using \[`,
			`NCCL INFO Using network Socket\b`,
			`NCCL INFO Assigned NET plugin Socket\b`,
			`via NET/Socket/`,
			`NCCL INFO Failed to open libibverbs\.so`,
			`NCCL_IB_DISABLE set by environment to 1\b`,
		),
		Examples: []string{"train-0:42:42 [0] NCCL INFO NET/IB : No device found.", "NCCL INFO Using network Socket"},
		Cause: "NCCL found no usable RDMA device and fell back to eth0 without an error: no device in the pod, " +
			"its port is not Active, no character device, the image lacks libibverbs.so, or NCCL_IB_HCA or " +
			"NCCL_IB_DISABLE excludes it",
		Cure: "fabricctl doctor pod in the container; NCCL_NET=IB turns the fallback into an error",
	},
	{
		ID:    "log-no-verbs",
		Title: "The RDMA device can't be opened",
		Pattern: said(
			`No (?:IB|RDMA) devices? found`,
			`(?i)ibv_get_device_list\b.*failed`,
			`(?i)failed to get IB devices?\b`,
			`ibv_open_device\b.*failed`,
			`Failed to open IB device`,
			`NET/IB ?: Unable to open device`,
			`(?i)(?:failed|unable|couldn't|can't) (?:to )?open device ['\"]?(?:mlx[45]|bnxt_re|irdma|hns|efa|`+
				`erdma|qedr|rxe|siw|rocep|ibp|rdmap)_?\w*`,
			`(?i)(?:unable|failed|couldn't|can't|cannot) (?:to )?open.{0,20}/dev/infiniband/`,
			`/dev/infiniband/(?:uverbs|umad|issm|rdma_cm)\w*.{0,60}(?:No such file|No such device|`+
				`Permission denied|not permitted)`,
		),
		Near: said(
			`^(?:NET/IB ?: )?Unable to open device$`,
			`^Couldn't get (?:IB )?device list\b`,
		),
		Examples: []string{
			"No IB devices found: ibv_get_device_list() failed",
			"libibverbs: Warning: unable to open /dev/infiniband/uverbs0",
		},
		Cause: "the character device /dev/infiniband/uverbsN is not in the container (that is a device plugin's " +
			"doing), or belongs to an HCA in another network namespace (exclusive mode)",
		Cure: "ask for the resource of a device plugin that hands out RDMA devices (isRdma: true); ls -l " +
			"/dev/infiniband /sys/class/infiniband_verbs",
	},
	{
		ID:    "log-provider",
		Title: "The image lacks the user space driver",
		Pattern: said(
			`no userspace device-specific driver found`,
			`couldn't load driver '[^']*lib(?:mlx5|mlx4|irdma|bnxt)`,
			`libibverbs: Warning: couldn't open config directory`,
			`libibverbs\.so[.\d]*: cannot open shared object`,
		),
		Examples: []string{
			"libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
		},
		Cause: "libibverbs finds the device, but not the provider for it",
		Cure:  "apt-get install ibverbs-providers libibverbs1 in the image (rdma-core on other distributions)",
	},
	{
		ID:      "log-data-direct",
		Title:   "libmlx5 of the image does not know Data Direct",
		Pattern: said(`undefined symbol: mlx5dv_get_data_direct_sysfs_path`),
		Examples: []string{
			"NCCL INFO dlvsym failed on mlx5dv_get_data_direct_sysfs_path - /lib/x86_64-linux-gnu/libmlx5.so: " +
				"undefined symbol: mlx5dv_get_data_direct_sysfs_path, version MLX5_1.25",
		},
		Cause: "NCCL asks libmlx5 for the Data Direct function of each HCA, and the image's libmlx5 is older than " +
			"that. Where lspci -d 15b3:2100 lists none, nothing is lost: another line has the reason of a failure",
		Cure: "where it lists some (GB300, Rubin): a newer rdma-core in the image (libibverbs1, ibverbs-providers)",
	},
	{
		ID:    "log-hcoll",
		Title: "HCOLL in Open MPI",
		Pattern: said(
			`hcoll_create_context\b`,
			`coll_hcoll_module\.c\b`,
			`HCOL-E\b`,
			`\bHcol library init failed`,
			`\[LOG_CAT_(?:COMMPATTERNS|MLB|P2P|SBGP|BASESMUMA|ML|RCACHE)\]`,
		),
		Examples: []string{
			"[LOG_CAT_COMMPATTERNS] isend failed in comm_allreduce_hcolrte at iterations 1",
			"Error: coll_hcoll_module.c:310 - mca_coll_hcoll_comm_query() Hcol library init failed",
		},
		Cause: "Open MPI's HCOLL collectives open RDMA devices by themselves and hang, or fail, in containers with " +
			"some of them",
		Cure: "mpirun -mca coll_hcoll_enable 0 -mca btl tcp,self (NCCL's own traffic is untouched), or " +
			"OMPI_MCA_coll_hcoll_enable=0",
	},
	{
		ID:    "log-openib",
		Title: "Open MPI's old RDMA transport",
		Pattern: said(
			`error initializing an OpenFabrics device`,
			`No preset parameters were found for the device`,
			`OpenFabrics \(openib\) BTL failed`,
			`No OpenFabrics connection schemes`,
			`allocate some locked memory`,
		),
		Examples: []string{
			"WARNING: There was an error initializing an OpenFabrics device.",
			"The OpenFabrics (openib) BTL failed to initialize while trying to allocate some locked memory.",
		},
		Cause: "the openib BTL does not know the device, or has no locked memory",
		Cure: "mpirun --mca pml ucx --mca btl ^openib, or -mca btl tcp,self when only NCCL is to use RDMA; locked " +
			"memory: capability IPC_LOCK",
	},
	{
		ID:    "log-gpudirect",
		Title: "GPUDirect RDMA is off",
		Pattern: said(
			`GPU Direct RDMA Disabled`,
			`ibv_reg_mr\w* failed with (?:error )?(?:14 )?Bad address`,
			`nvidia[-_]peermem\b.{0,60}(?:not (?:found|loaded)|Invalid argument)`,
			`(?:could not insert|failed to load|FATAL: Module) .{0,10}nv(?:idia)?[-_]peer_?mem\b`,
			`\bnv_peer_mem\b.{0,60}(?:not (?:found|loaded)|failed)`,
			`^ERRNO: Bad address\b`,
		),
		Examples: []string{
			"NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
			"Call to ibv_reg_mr_iova2 failed with error Bad address",
			"ERRNO: Bad address.",
		},
		Cause: "the HCA can't reach GPU memory: neither nvidia_peermem nor dma-buf is there, or the GPU is too far " +
			"away on PCIe",
		Cure: "modprobe nvidia_peermem on the host, or the open GPU kernel modules and kernel 5.12 or later for " +
			"dma-buf; the distance: fabricctl discover, column GPUS",
	},
	{
		ID:    "log-peer-gone",
		Title: "The other end of perftest has ended",
		Pattern: said(
			`Couldn't read remote address`,
			`Unable to (?:read|write) (?:to|from) socket/rdma_cm`,
			`Failed to exchange data between server and clients`,
			`Unable to exchange data between servers?\b`,
			`^(?:ethernet_client_connect: )?Couldn't connect to \S+:1[89]\d{3}$`,
		),
		Examples: []string{
			"ethernet_read_keys: Couldn't read remote address",
			"Couldn't connect to 192.168.10.2:18515",
		},
		Cause: "its own message is on that side; or no server listens there yet, or the two versions of perftest " +
			"differ",
		Cure: "start the server first, and read what it prints; the same perftest on both sides",
	},
	{
		ID:    "log-shm",
		Title: "/dev/shm is too small",
		Pattern: said(
			`NCCL WARN.*(?:creating|attaching to|mapping) shared memory segment`,
			`NCCL WARN.*/dev/shm/nccl-`,
			`NCCL WARN Call to (?:posix_fallocate|shm_open|ftruncate)\b.*failed`,
			`/dev/shm/(?:nccl|torch_|cuda)\S*.*No space left on device`,
			`No space left on device.{0,80}/dev/shm/(?:nccl|torch_|cuda)`,
			`This might be caused by insufficient shared memory \(shm\)`,
			`DataLoader worker .*killed by signal: Bus error`,
		),
		Examples: []string{"NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1b2c3 (size 9637888)"},
		Cause:    "containers get 64 MiB of /dev/shm unless told otherwise",
		Cure:     "mount an emptyDir with medium: Memory at /dev/shm",
	},
	{
		ID:    "log-bootstrap",
		Title: "NCCL found no interface for its bootstrap",
		Pattern: said(
			`(?i)bootstrap ?: no socket interface found`,
			`NCCL WARN.*[Nn]o (?:usable )?(?:socket|IP|network) interface`,
			`No IP interface found \(starting with`,
			`Could not find any socket interface`,
			`gloo/transport/tcp/device\.cc.*Unable to find (?:interface|address) for`,
		),
		Examples: []string{"bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"},
		Cause:    "NCCL_SOCKET_IFNAME names an interface that is not in the pod: names of the host do not count there",
		Cure:     "fabricctl nccl-env in the pod prints the right one; ip -br address",
	},
	{
		ID:    "log-wc-error",
		Title: "A transfer was refused",
		Pattern: said(
			`Got completion (?:from peer (?:\S+ )?)?with (?:error |status=)(?:4|10|11|IBV_WC_(?:LOC_PROT|`+
				`REM_ACCESS|REM_OP)_ERR)\b`,
			`IBV_WC_(?:LOC_PROT|REM_ACCESS|REM_OP)_ERR`,
			`(?i)(?:UCX|NCCL|ibv|mlx5|completion).*(?:local protection error|remote access error|`+
				`remote operation error)`,
			`Failed status (?:4|10|11): wr_id`,
		),
		Examples: []string{
			"NCCL WARN NET/IB : Got completion from peer with status=10 opcode=129 len=0 vendor err 136 (Recv)",
		},
		Cause: "the memory on one side is not registered (any more) or not for this: GPUDirect with a broken IOMMU " +
			"or ACS setting, or a bug",
		Cure: "try NCCL_NET_GDR_LEVEL=LOC: if that helps, it is GPUDirect: iommu=pt, ACS off on the PCIe switches, " +
			"nvidia_peermem of the same version as the driver",
	},
}

func init() { Messages = append(Messages, clusterMessages...) }
