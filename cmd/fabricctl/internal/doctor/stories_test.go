package doctor

import (
	"slices"
	"strings"
	"testing"
)

// The messages that people running GPU clusters quoted when they asked for this project, as they wrote them, and as the
// programs print them. Each is recognised alone, in the middle of a log, and copied from a page that makes quotation
// marks round.
func TestStories(t *testing.T) {
	for _, c := range []struct{ line, id, cause, cure string }{
		// Verbs devices in the pod, no interface: NCCL falls back without an error.
		{"NCCL INFO NET/IB : No device found.", "log-tcp", "eth0", "fabricctl doctor pod"},
		{"train-0:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.244.1.7<0>", "log-tcp", "eth0", "NCCL_NET=IB"},
		{"NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", "log-tcp", "eth0", "NCCL_NET=IB"},
		// Two fabrics in one cluster.
		{"Couldn't allocate MR", "log-mr", "memory limit", "IPC_LOCK"},
		{"NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "log-mr", "memlock",
			"IPC_LOCK"},
		{"segfault in NCCL", "log-segfault", "IPC_LOCK", "IPC_LOCK"},
		{"[gpu-0:00042] Signal: Segmentation fault (11)", "log-segfault", "IPC_LOCK", "IPC_LOCK"},
		{"python[4242]: segfault at 8 ip 00007f1 sp 00007f2 error 4 in libnccl.so.2.18.5", "log-segfault", "IPC_LOCK",
			"IPC_LOCK"},
		{"Port number 1 state is Down", "log-port-down", "no link", "Active"},
		{"IB device mlx5_bond_0 not found", "log-no-such-device", "Ethernet bond (RoCE)", "fabricctl discover"},
		// NCCL's choice of device: two planes were paired.
		{"ibv_modify_qp failed with 110 Connection timed out, ... curr state INIT, next state RTR, local GID index 3",
			"log-qp-timeout", "two planes", "NCCL_IB_HCA"},
		// The MPIJob that hangs: what Open MPI prints about HCOLL before it stands still.
		{"[LOG_CAT_MLB] Failed to grow mlb dynamic memory manager", "log-hcoll", "HCOLL", "-mca coll_hcoll_enable 0"},
		{"[LOG_CAT_P2P] UCX returned connect error: Destination is unreachable", "log-hcoll", "HCOLL",
			"-mca btl tcp,self"},
		{"[train-0:00089] Error: coll_hcoll_module.c:310 - mca_coll_hcoll_comm_query() Hcol library init failed",
			"log-hcoll", "hang", "-mca coll_hcoll_enable 0"},
	} {
		for _, log := range []string{c.line, "some noise\n" + c.line + "\nand more\n",
			strings.ReplaceAll(c.line, "'", "’"), "\x1b[31m" + c.line + "\x1b[0m"} {
			got := Explain(log)
			i := slices.IndexFunc(got, func(e Explanation) bool { return e.ID == c.id })
			switch {
			case i < 0:
				t.Errorf("%q: not %s but %+v", log, c.id, got)
			case !strings.Contains(got[i].Title+" "+got[i].Cause, c.cause) || !strings.Contains(got[i].Cure, c.cure):
				t.Errorf(
					"%q: cause %q does not say %q, or cure %q not %q",
					log,
					got[i].Cause,
					c.cause,
					got[i].Cure,
					c.cure,
				)
			case len(got) > 1:
				t.Errorf("%q has %d explanations: %+v", log, len(got), got)
			}
		}
	}
	// What NCCL prints when all is well.
	if got := Explain(
		"NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.244.1.7<0>\nNCCL INFO Using " +
			"network IB",
	); len(
		got,
	) > 0 {
		t.Errorf("%+v", got)
	}
}
