package doctor

import (
	"slices"
	"strings"
	"testing"
)

// ids are what is recognised in a text, in order.
func ids(list []Explanation) (out []string) {
	for _, e := range list {
		out = append(out, e.ID)
	}
	return out
}

// Each example is recognised as its own message, and as no other: alone, in the middle of a log, and in all that a log
// may be wrapped in.
func TestExamples(t *testing.T) {
	for _, m := range Messages {
		for _, e := range m.Examples {
			for _, log := range []string{e, "noise\n" + e + "\nmore noise", e + "\r\n", "\x1b[1;31m" + e + "\x1b[0m",
				"[pod/train-0/pytorch] " + e,
				"2026-11-22T10:11:12.123456789Z stderr F " + e,
				"[1,3]<stderr>:" + e,
				strings.ReplaceAll(e, "_", `\_`),
			} {
				if got := ids(Explain(log)); !slices.Equal(got, []string{m.ID}) {
					t.Errorf("%q is %v, want %s", log, got, m.ID)
				}
			}
		}
	}
	if got := Explain("IB device mlx5_bond_0 not found"); !strings.Contains(got[0].Cause, "Ethernet bond") {
		t.Errorf("bond: %v", got)
	}
}

// recognised are lines that were not recognised at sites, or not as what they are, by the id that they have now.
var recognised = map[string][]string{
	"log-mr": {
		"Failed to create MR",
		" failed to create mr",
		"Couldn&#39;t allocate MR",
		`{"log":"Couldn't allocate MR\n","stream":"stderr","time":"2026-11-22T10:11:12Z"}`,
		"C\x00o\x00u\x00l\x00d\x00n\x00'\x00t\x00 \x00a\x00l\x00l\x00o\x00c\x00a\x00t\x00e\x00 \x00M\x00R\x00",
		"  42%|####2     | 42/100 [00:10]\rCouldn't allocate MR",
		"\xff\xfeCouldn't allocate MR\xc3",
	},
	"log-tcp": {
		"train-0:42:42 [0] NCCL INFO Failed to open libibverbs.so[.1]",
		"NCCL INFO NCCL_IB_DISABLE set by environment to 1",
	},
	"log-shm": {
		"RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. It is possible that dataloader's " +
			"workers are out of shared memory. Please try to raise your shared memory limit.",
	},
	"log-openib": {
		"No OpenFabrics connection schemes reported that they were able to be used on a specific port.",
	},
	"log-perftest-setup": {
		" Couldn't create IB resources",
		" Couldn't get context for the device",
	},
	"log-peer-gone": {
		" Unable to read to socket/rdma_cm",
		"ethernet_read_keys: Couldn't read remote address",
	},
	"log-peer-closed": {
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer " +
			"[10.0.0.2]:29500",
		"socketProgress: Connection closed by remote peer",
	},
	"log-nccl-system": {
		"Failed, NCCL error common.cu:958 'unhandled system error'",
		"unhandled system error",
		"unhandled system error, NCCL version 2.14.3",
		"Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",
		"RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled system error, NCCL version 2.14.3",
	},
	"log-watchdog": {
		"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)",
	},
	"log-no-verbs": {
		"NET/IB : Unable to open device mlx5_3",
		"train-0:30:97 [0] transport/net_ib.cc:117 NCCL WARN NET/IB : Unable to open device mlx5_0",
		"Unable to open device",
	},
	"log-port-error": {
		"mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged",
		"Got async event : port error",
		"NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
	},
	"log-bootstrap": {
		"NCCL WARN Bootstrap : Could not find any socket interface",
		"Could not find any socket interface",
	},
	"log-qp-timeout": {
		"[1795335759.339802] [train-0:42:0] ib_iface.c:1 UCX  ERROR ibv_create_ah(dlid=0 sl=0) failed: " +
			"Network is unreachable",
		`NCCL WARN Call to ibv\_modify\_qp failed with error Connection timed out`,
	},
	"log-qp-modify": {
		`ibv\_modify\_qp failed with 22 Invalid argument`,
		"Failed to modify QP 123 to RTR",
	},
	"log-wc-retry": {
		" Did not get Message for 120 Seconds, exiting..",
		"NCCL WARN NET/IB : Got completion from peer 10.0.0.1<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0",
	},
	"log-segfault": {
		"    @     0x7f52 ncclProxyServiceUDS()",
		"*** SIGSEGV (@0x8) received by PID 42 (TID 0x7f) from PID 8; stack trace: ***",
	},
	"log-cpu-frequency": {
		"Conflicting CPU frequency values detected: 1600.000000 != 3301.000000",
	},
	"log-insufficient": {
		"0/8 nodes are available: 8 Insufficient rdma/hca_shared_devices_a.",
		"0/8 nodes are available: 8 Insufficient nvidia.com/mlnxnics.",
		"0/8 nodes are available: 8 Insufficient fabric.dev/ib-400g.",
	},
}

func TestRecognised(t *testing.T) {
	for want, lines := range recognised {
		for _, line := range lines {
			if got := ids(Explain(line)); !slices.Equal(got, []string{want}) {
				t.Errorf("%q is %v, want %s", line, got, want)
			}
		}
	}
}

// What is a whole line of perftest is found in a log of any length.
func TestWholeLine(t *testing.T) {
	log := strings.Repeat("step loss 1.2\n", 20)
	if got := ids(scanned(t, strings.NewReader(log+" Failed to create "+
		"MR\n"+log))); !slices.Equal(got, []string{"log-mr"}) {
		t.Error(got)
	}
}

// What was recognised at sites, and is something else.
func TestNotRecognised(t *testing.T) {
	for _, line := range []string{
		"",
		"all is well",
		"status=0 opcode=1 vendor err 0",
		"mpirun -np 16 -mca coll_hcoll_enable 0 -mca btl tcp,self all_reduce_perf",
		"OMPI_MCA_coll_hcoll_enable=0",
		`"kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},`,
		"time=x level=info msg=\"kubeconfig saved to /host/etc/cni/net.d/multus.d/multus.kubeconfig\"",
		"train-0:42:97 [0] NCCL INFO MMAP allocated shareable host buffer /dev/shm/nccl-a1b2c3 size 9637888 ptr 0x7f00",
		"0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available",
		"0/5 nodes are available: 5 Insufficient nvidia.com/mig-1g.10gb, 5 Insufficient cpu.",
		"Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7",
		"redis_1  | 1:M 22 Nov 2026 10:11:12.123 # Can't save in background: fork: Cannot allocate memory",
		"Could not connect to Redis at 127.0.0.1:6379: Connection refused",
		"Couldn't connect to redis:6379",
		"1:M 22 Nov 10:11:12.123 # Redis 7.0.5 crashed by signal: 11, si_code: 1",
		"mv: cannot move 'a' to 'b': File exists",
		"mv /tmp/a /tmp/b failed: File exists",
		"cp: cannot create regular file '/usr/bin/app': Text file busy",
		"listen tcp 0.0.0.0:8080: address 0.0.0.0:8080 is in use by another process",
		"ERROR: could not resize shared memory segment \"/PostgreSQL.1\" to 8388608 bytes: No space left on device",
		"LOG:  server process (PID 71) was terminated by signal 11: Segmentation fault",
		"java.lang.OutOfMemoryError: unable to create native thread",
		"fork: retry: cannot allocate memory",
		"usb 1-1: Unable to open device /dev/bus/usb/001/002",
		"ERROR: Failed to create MR for branch main",
		"failed to find device for root filesystem",
		"error creating kubernetes client: invalid configuration",
		"Error: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
		"DRA driver gpu.nvidia.com is not registered",
		"host-local: no IP addresses available in range set: 10.244.1.1-10.244.1.254",
		"port is not active, waiting",
		"bond0: (slave eth1): port is not in active state",
		"ETHTOOL: Remote access error, see the VPN log",
		"train-0:42:97 [0] NCCL INFO [Proxy Service UDS] Device 0 CPU core 12",
		"train-0:42:97 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.244.1.7<0>",
		"train-0:42:97 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
		"train-0:42:97 [0] NCCL INFO Using network IB",
		"NCCL INFO NET/IB : mlx5_0:1 Got async event : port active",
		"NCCL INFO NET/IB : mlx5_0:1 Got async event : client reregistration",
		"nvidia_peermem is not needed with dma-buf",
		"GIT_TERMINAL_PROMPT=0 failed status 12",
		"libibverbs: version 1.14.44",
	} {
		if got := Explain(line); len(got) != 0 {
			t.Errorf("%q is %v", line, ids(got))
		}
	}
}

// A line whose meaning depends on those before it: in a log, not when a user asks for it alone.
func TestContext(t *testing.T) {
	crash := "*** SIGSEGV (@0x8) received by PID 42 (TID 0x7f) from PID 8; stack trace: ***\n"
	few, many := strings.Repeat("step loss 1.2\n", 20), strings.Repeat("step loss 1.2\n", 2000)
	for _, c := range []struct{ log, want string }{
		{few + crash + few, ""},
		{few + "Couldn't allocate MR\n" + few + crash, "log-mr log-segfault"},
		{few + "Couldn't allocate MR\n" + many + crash, "log-mr"},
		{few + "Couldn't allocate MR\nFailed to create MR\n Couldn't create IB resources\n", "log-mr"},
		{few + "failed to create mr\n", ""},
		{few + " Couldn't create IB resources\n", "log-perftest-setup"},
		{few + "Couldn't allocate MR\n" + many + " Couldn't create IB resources\n", "log-mr log-perftest-setup"},
		{crash, "log-segfault"},
		// A link that was lost, as the ranks tell it: the cause first, and what NCCL gives up with not at all.
		{few + "gpu-1:42:97 [0] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error\n" + few +
			"gpu-1:42:98 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 " +
			"vendor err 129 (Send)\ngpu-1:42:98 [0] NCCL INFO transport/net.cc:1137 -> 6\n" +
			"ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n" +
			few +
			"gpu-2:42:98 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gpu-1<5>\n" +
			"RuntimeError: NCCL error in: P.cpp:1, unhandled system error, NCCL version 2.20.5\n" + few +
			"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)\n",
			"log-port-error log-wc-retry log-peer-closed log-watchdog"},
	} {
		s := NewScan()
		if err := s.Read("", strings.NewReader(c.log)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ids(s.Explanations()), " "); got != c.want {
			t.Errorf("%d bytes: %q, want %q", len(c.log), got, c.want)
		}
	}
}

// No pattern is without a literal to look for.
func TestLiterals(t *testing.T) {
	for _, w := range catalogue().weak {
		t.Errorf("no literal in %s", w)
	}
}
