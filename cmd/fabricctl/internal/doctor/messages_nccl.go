package doctor

// jobMessages are those of NCCL and PyTorch about a job as a whole, and of perftest about a test that goes no further.
var jobMessages = []Message{
	{
		ID:    "log-port-error",
		Title: "A port lost its link while the job ran",
		Pattern: said(
			`Got (?:non-fatal )?async (?:error |fatal )?event ?: port error`,
			`UCX .*IB Async event on \S+: port (?:\d+ )?error`,
			`\bIBV_EVENT_PORT_ERR\b`,
		),
		// Unused ports have no cable, too.
		Near: said(`mlx5_core \S+:? .*Cable unplugged`),
		Examples: []string{
			"train-0:42:97 [0] transport/net_ib.cc:92 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
			"NCCL WARN NET/IB : Got async event : port error",
		},
		Cause: "the link of an HCA's port went down: cable, transceiver, switch port, or the switch was " +
			"restarted. Transfers over that port fail a few seconds later, also if the link comes back",
		Cure: "on that node: dmesg -T | grep -i link; mlxlink -d ADDRESS -c (bit errors, temperature); " +
			"/sys/class/infiniband/*/ports/1/counters/link_downed counts it; take the node or the rail out until the " +
			"link is stable; NCCL_IB_TIMEOUT=22 survives short ones",
	},
	{
		ID:    "log-hca-fatal",
		Title: "An HCA reported a fatal error",
		Pattern: said(
			`Got (?:non-fatal )?async (?:error |fatal )?event ?: (?:local catastrophic error|device fatal)`,
			`\bIBV_EVENT_DEVICE_FATAL\b`,
			`mlx5_core \S+:? .*(?:device's health compromised|assert_exit_ptr|in fatal state)`,
		),
		Examples: []string{
			"NCCL WARN NET/IB : mlx5_0:1 Got async fatal event: local catastrophic error",
			"mlx5_core 0000:3b:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
		},
		Cause: "the HCA's firmware has stopped, or the PCIe link to it is broken: all of its queue pairs are dead",
		Cure: "dmesg -T | grep mlx5_core on that node; the driver resets the HCA by itself (devlink health show), " +
			"otherwise reset or reboot; firmware of the vendor's current release; report it if it comes again",
	},
	{
		ID:    "log-peer-closed",
		Title: "Another rank has ended",
		Pattern: said(
			`socketProgress\w*: Connection closed by remote peer`,
			`NCCL WARN.*Connection closed by remote peer`,
			`ncclRemoteError: A call failed possibly due to a network error`,
			`gloo/transport/tcp/\S+.*Connection (?:closed by peer|reset by peer)`,
			`NCCL WARN.*recv(?:from)? .*failed : Connection reset by peer`,
		),
		Examples: []string{
			"train-0:42:97 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer " +
				"train-1.train.ml.svc.cluster.local<53735>",
			"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
		},
		Cause: "the rank at the other end has closed its TCP connection for the bootstrap: it crashed, was killed " +
			"(out of memory, preempted), or gave up because of an error of its own. This line is a consequence",
		Cure: "look for the rank that stopped first, in the logs of the other pods: kubectl logs --prefix -l " +
			"SELECTOR --tail=-1 --timestamps | fabricctl doctor explain; kubectl describe pod for OOMKilled and " +
			"evictions",
	},
	{
		ID:    "log-bootstrap-connect",
		Title: "NCCL can't connect to another rank for its bootstrap",
		Pattern: said(
			`socket(?:Start|Poll)Connect:? Connect to \S+ (?:failed|returned)`,
			`NCCL WARN.*Connect to \S+ (?:failed|returned)`,
			`NCCL WARN Call to connect (?:to \S+ )?(?:failed|returned|timed out)`,
		),
		Examples: []string{
			"train-1:42:97 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.244.1.7<45763> failed " +
				": Connection refused",
			"NCCL WARN Net : Connect to 192.168.122.1<47722> failed : No route to host",
		},
		Cause: "the bootstrap is TCP between all ranks, over the interface that NCCL_SOCKET_IFNAME names or NCCL " +
			"took by itself: it is another network than the peers' (docker0, a rail), a NetworkPolicy or firewall " +
			"drops the ports, or the peer has ended (Connection refused)",
		Cure: "fabricctl nccl-env in each pod prints NCCL_SOCKET_IFNAME; the address in the message has to be one " +
			"that this pod can ping; NetworkPolicies of the namespace: kubectl get networkpolicies",
	},
	{
		ID:    "log-watchdog",
		Title: "PyTorch waited too long for a collective",
		Pattern: said(
			`Watchdog caught collective operation timeout`,
			`Some NCCL operations have failed or timed out`,
		),
		Examples: []string{
			"[rank0]:[E1122 10:11:12.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective " +
				"operation timeout: WorkNCCL(SeqNum=64214, OpType=ALLREDUCE, NumelIn=131072000, NumelOut=131072000, " +
				"Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
		},
		Cause: "not all ranks came to this collective within the timeout: one had crashed or hung, was slow " +
			"(checkpoint, data), or called another collective; or its traffic stands still: a lost link, two planes " +
			"paired, HCOLL. The ranks that print this are mostly the ones that waited",
		Cure: "the first message of any rank counts: explain the logs of all pods; the rank that does not print " +
			"this, or has the smallest SeqNum, is the one to look at (py-spy dump, TORCH_NCCL_TRACE_BUFFER_SIZE=2000 " +
			"with TORCH_NCCL_DUMP_ON_TIMEOUT=1); the network: fabricctl verify A B",
	},
	{
		ID:    "log-nccl-system",
		Title: "NCCL gave up; the reason is in the lines of NCCL WARN before",
		Pattern: said(
			`(?i:nccl).*unhandled system error`,
			`unhandled system error(?:, NCCL version| \(run with NCCL_DEBUG|$)`,
			`ncclSystemError: System call \(`,
		),
		Follows: true,
		Examples: []string{
			"torch.distributed.DistBackendError: NCCL error in: " +
				"../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error (run with " +
				"NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
			"ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
		},
		Cause: "a system call or a verbs call of NCCL failed: a device that can't be opened, memory that can't be " +
			"locked, /dev/shm that is full, a peer that is gone. NCCL prints which only with NCCL_DEBUG=WARN or INFO",
		Cure: "run again with NCCL_DEBUG=INFO and explain the logs of all ranks; fabricctl doctor pod in the " +
			"container finds the usual causes at once",
	},
	{
		ID:    "log-wc-flushed",
		Title: "A transfer was dropped because its queue pair had failed",
		Pattern: said(
			`Got completion (?:from peer (?:\S+ )?)?with (?:error |status=)(?:5\b|IBV_WC_WR_FLUSH_ERR)`,
			`IBV_WC_WR_FLUSH_ERR`,
		),
		Follows: true,
		Examples: []string{
			"NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249",
		},
		Cause: "the queue pair was in its error state: an earlier transfer over it had failed, or the port or the " +
			"peer went down. This line is a consequence",
		Cure: "the first completion with another status than 5, of any rank, has the cause: explain the logs of " +
			"all pods",
	},
	{
		ID:    "log-nccl-internal",
		Title: "NCCL found a state that it does not expect",
		Pattern: said(
			`internal error - please report this issue to the NCCL developers`,
			`ncclInternalError: Internal check failed`,
		),
		Follows: true,
		Examples: []string{
			"NCCL error: internal error - please report this issue to the NCCL developers",
		},
		Cause: "mostly not a bug: ranks with different versions of NCCL, a peer that has ended, or devices that " +
			"differ between ranks. NCCL prints which with NCCL_DEBUG=WARN or INFO",
		Cure: "run again with NCCL_DEBUG=INFO and explain the logs of all ranks; one image for all of them",
	},
	{
		ID:    "log-mpirun-root",
		Title: "mpirun does not run as root",
		Pattern: said(
			`mpirun has detected an attempt to run as root`,
		),
		Examples: []string{"mpirun has detected an attempt to run as root."},
		Cause: "Open MPI refuses root unless it is told to accept it; containers of training jobs mostly run " +
			"as root",
		Cure: "mpirun --allow-run-as-root, or OMPI_ALLOW_RUN_AS_ROOT=1 with OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	},
	{
		ID:    "log-umad",
		Title: "The management device of the port can't be opened",
		Pattern: said(
			`mad_rpc_open_port: can't open UMAD port`,
			`ibwarn: .*mad_rpc_open_port`,
		),
		Examples: []string{"ibwarn: [42] mad_rpc_open_port: can't open UMAD port ((null):0)"},
		Cause: "tools of infiniband-diags (ibstat excepted) need /dev/infiniband/umadN, which containers do not get: " +
			"who has it can act as subnet manager",
		Cure: "run them on the node, as root; a pod gets the file with deviceFiles in its Fabric",
	},
	{
		ID:    "log-nccl-uds",
		Title: "NCCL's processes on a node can't reach each other",
		Pattern: said(
			`NCCL WARN (?:\[Proxy Service UDS\]|UDS: )`,
			`NCCL WARN.*ncclProxyServiceUDS`,
			`NCCL WARN.*ncclIpcSocket`,
		),
		Examples: []string{
			"train-0:42:99 [0] misc/ipcsocket.cc:216 NCCL WARN UDS: Sending data over socket /tmp/nccl-socket-1-2a " +
				"failed : Connection refused (111)",
		},
		Cause: "ranks of one node hand memory to each other through Unix sockets, which belong to a network " +
			"namespace: two pods on one node do not see each other's; or the other process has ended",
		Cure: "all ranks of a node in one pod, or NCCL_CUMEM_ENABLE=0 and NCCL_CUMEM_HOST_ENABLE=0; if the other " +
			"process has ended, its own log says why",
	},
	{
		ID:    "log-perftest-setup",
		Title: "perftest could not open the device or make its queues",
		Pattern: said(
			`Couldn't get context for the device`,
			`Couldn't create IB resources`,
			`Unable to create RDMA_CM resources`,
		),
		Follows: true,
		Examples: []string{
			" Couldn't get context for the device",
			" Couldn't create IB resources",
		},
		Cause: "the line before it says what failed. Without one: the character device /dev/infiniband/uverbsN is " +
			"not in the container, or its HCA is in another network namespace (context); or the container lacks " +
			"IPC_LOCK and its locked memory is limited (resources)",
		Cure: "fabricctl doctor pod in the container; ls -l /dev/infiniband /sys/class/infiniband; ulimit -l; " +
			"securityContext: {capabilities: {add: [IPC_LOCK]}}",
	},
	{
		ID:       "log-cpu-frequency",
		Title:    "The CPU changes its frequency: harmless",
		Pattern:  said(`Conflicting CPU frequency values detected`),
		Harmless: true,
		Examples: []string{
			"Conflicting CPU frequency values detected: 2100.000000 != 3700.000000. CPU Frequency is not max.",
		},
		Cause: "perftest computes times from CPU cycles, and cores run at different frequencies. Bandwidth is right " +
			"all the same, because the HCA does the transfer; a latency may be off by some percent",
		Cure: "nothing; ib_write_bw -F does not print it; for exact latencies cpupower frequency-set -g performance " +
			"on the node",
	},
}

func init() { Messages = append(Messages, jobMessages...) }
