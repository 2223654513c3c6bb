package doctor

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// The script runs in the shells that images have; what it prints of this machine can be read.
func TestLook(t *testing.T) {
	for _, shell := range [][]string{{"sh"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(shell[0]); err != nil && shell[0] != "sh" {
			continue
		}
		out, err := exec.Command(shell[0], append(shell[1:], "-c", Look, "look", "0.05")...).Output()
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		s := ReadLook(out)
		if s.Seconds <= 0 || !strings.Contains(string(out), "\nN lo ") {
			t.Errorf("%s: %s%+v", shell, out, s)
		}
	}
}

func TestReadLook(t *testing.T) {
	const gid = "fe80:0000:0000:0000:b83f:d203:00fa:00"
	for _, c := range []struct{ name, text, want string }{
		{"exclusive: what it sees is its own", "U mlx5_0\nU mlx5_3\n" +
			"P mlx5_0 1 ACTIVE InfiniBand " + gid + "01 ib0\nP mlx5_3 1 INIT InfiniBand " + gid + "02 ib1\n" +
			"N eth0 02:00:00:00:00:01\nN ib0 x\nN ib1 x\n" +
			"T 10.0\nC mlx5_0 1 100 200\nC mlx5_3 1 5 5\nT 12.0\nC mlx5_0 1 350 700\nC mlx5_3 1 5 5\n",
			"mlx5_0:1 ACTIVE 1000 2000, mlx5_3:1 INIT 0 0 in 2 s"},
		{"shared, InfiniBand: the interface has the port's GUID", "U mlx5_0\nU mlx5_1\n" +
			"P mlx5_0 1 ACTIVE InfiniBand " + gid + "01\nP mlx5_1 1 ACTIVE InfiniBand " + gid + "02\n" +
			"N net1 00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:fa:00:02\n", "mlx5_1:1 ACTIVE ? ?"},
		{"shared, no interface: what it can open", "U mlx5_1\nP mlx5_0 1 ACTIVE InfiniBand " + gid + "01\n" +
			"P mlx5_1 1 ACTIVE InfiniBand " + gid + "02\nN eth0 02:00:00:00:00:01\n", "mlx5_1:1 ACTIVE ? ?"},
		{"not the bond beside them", "U mlx5_0\nU mlx5_bond_0\nP mlx5_0 1 ACTIVE Ethernet " + gid + "01 \n" +
			"P mlx5_bond_0 1 ACTIVE Ethernet " + gid + "02\n", "mlx5_0:1 ACTIVE ? ?"},
		{"but a bond alone", "U mlx5_bond_0\nP mlx5_bond_0 1 ACTIVE Ethernet " + gid + "02\n", "mlx5_bond_0:1 ACTIVE " +
			"? ?"},
		{"counters that were reset", "U a\nP a 1 ACTIVE InfiniBand " + gid + "01\nT 1\nC a 1 100 100\nT 2\nC a 1 5 5\n",
			"a:1 ACTIVE ? ? in 1 s"},
		{"one look only: no sleep", "U a\nP a 1 ACTIVE InfiniBand " + gid + "01\nT 1\nC a 1 100 100\n", "a:1 ACTIVE " +
			"? ?"},
		{"cgroup v2", "M 2 max 4096\nK shmem 1024\nK oom_kill 3\nV 16\nV 4\n", " v2 limit -1 used 4096 shm 1024 " +
			"pinned 20480 killed 3"},
		{"cgroup v1 without limit", "M 1 9223372036854771712 4096\n", " v1 limit -1 used 4096 shm 0 pinned 0 killed 0"},
		{"cgroup v1", "M 1 8192 4096\n", " v1 limit 8192 used 4096 shm 0 pinned 0 killed 0"},
		{"nonsense", "T x\nU\nC a b c d\nP a 1\nM 3 1 1\nV -1\nV 99999999999999999999\nK shmem -5\nT 5\nT 1\n", ""},
	} {
		s := ReadLook([]byte(c.text))
		var ports []string
		for _, p := range s.Ports {
			switch {
			case p.Given && p.Counted:
				ports = append(ports, fmt.Sprintf("%s %s %d %d", p.Name, p.State, p.Send, p.Receive))
			case p.Given:
				ports = append(ports, p.Name+" "+p.State+" ? ?")
			}
		}
		got := strings.Join(ports, ", ")
		if s.Seconds > 0 {
			got += fmt.Sprintf(" in %g s", s.Seconds)
		}
		if s.Cgroup > 0 {
			got += fmt.Sprintf(" v%d limit %d used %d shm %d pinned %d killed %d", s.Cgroup, s.Limit, s.Used, s.Shm,
				s.Pinned, s.OOMKills)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if n := len(ReadLook([]byte(strings.Repeat("P a 1 ACTIVE x y\n", 1<<16))).Ports); n > maxSeenPorts {
		t.Errorf("%d ports", n)
	}
}

// worker is a pod with GPUs and networks, with this log and what it sees.
func worker(t *testing.T, name, log, look string) Worker {
	t.Helper()
	m := &Manifest{}
	m.Metadata.Name, m.Metadata.Namespace, m.Spec.Node, m.Status.Phase = name, "ml", "n-"+name, "Running"
	m.Metadata.Annotations = map[string]string{networksAnnotation: "ib, ib"}
	m.Spec.Containers = []container{{Name: "c"}}
	m.Spec.HostIPC = true // so that nothing is to be said of /dev/shm
	m.Spec.Containers[0].Resources.Limits = map[string]any{"nvidia.com/gpu": "8"}
	w := Worker{Pod: m}
	if log != "" {
		list, err := ReadLog(strings.NewReader(strings.ReplaceAll(log, "$", name+":1:2 [0] NCCL INFO ")))
		if err != nil {
			t.Fatal(err)
		}
		one := []Worker{w}
		Logs(one, [][]*RankLog{list})
		w = one[0]
	}
	if look != "" {
		w.Seen = ReadLook([]byte(look))
	}
	return w
}

func withEnv(w Worker, pairs ...string) Worker {
	for i := 0; i < len(pairs); i += 2 {
		c := &w.Pod.Spec.Containers[0]
		c.Env = append(c.Env, envVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return w
}

func TestCheckWorkers(t *testing.T) {
	const using = "$NET/IB : Using [0]a:1/IB [1]b:1/IB\n$Using network IB\n"
	const good = using + "$0 [send] via NET/IB/0/GDRDMA\n$0 [send] via NET/IB/1/GDRDMA\n"
	const ports = "U a\nU b\nP a 1 ACTIVE InfiniBand g\nP b 1 ACTIVE InfiniBand g\n"
	look := func(a, b int) string { // in Gb/s, each direction
		const words = 1e9 / 8 / 4
		return ports + fmt.Sprintf("T 1\nC a 1 0 0\nC b 1 0 0\nT 2\nC a 1 %d %[1]d\nC b 1 %d "+
			"%[2]d\n", int(float64(a)*words),
			int(float64(b)*words))
	}
	busy := look(100, 100)
	for _, c := range []struct {
		name string
		list []Worker
		want string
	}{
		{"in order", []Worker{worker(t, "w0", good, busy), worker(t, "w1", good, busy)}, ""},
		{"one has a silent rail", []Worker{worker(t, "w0", good, busy), worker(t, "w1", good, look(100, 0))},
			"WARN job-traffic ml/w1 on n-w1: b:1 had 0.00 Gb/s in both directions together, the other rails 200.00 " +
				"on average\n"},
		{"nobody sends", []Worker{worker(t, "w0", good, look(0, 0)), worker(t, "w1", good, look(0, 0))},
			"WARN job-traffic no rail of 2 workers had traffic within 1.0 s\n"},
		{"one goes over TCP, on purpose", []Worker{worker(t, "w0", good, ""), worker(t, "w1",
			"$NCCL_IB_DISABLE set by environment to 1.\n$NET/Socket : Using [0]eth0:1.2.3.4<0>\n$Using network "+
				"Socket\n"+
				"$0 [send] via NET/Socket/0\n", "")},
			"FAIL job-net ml/w1 on n-w1: NCCL uses TCP (NET/Socket over eth0); NCCL_IB_DISABLE=1; the pod has 2 " +
				"rails\n"},
		{"TCP on one node matters to nobody yet", []Worker{worker(t, "w0", "$Using network Socket\n", "")},
			"WARN job-net ml/w0 on n-w0: NCCL uses TCP (NET/Socket); the pod has 2 rails; all ranks are on one node, " +
				"so nothing goes over it yet\n"},
		{"one of three uses one rail", []Worker{worker(t, "w0", good, ""), worker(t, "w1", good, ""), worker(t, "w2",
			"$NET/IB : Using [0]a:1/IB\n$0 [send] via NET/IB/0/GDRDMA\n", "")},
			"WARN job-rails ml/w2 on n-w2: NCCL uses 1 of 2 rails: a:1\n" +
				"WARN job-differs rails that NCCL uses: 1 of ml/w2, and 2 of 2 others\n"},
		{"no GPUDirect", []Worker{worker(t, "w0", using+"$0 [send] via NET/IB/0\n$0 [send] via NET/IB/1\n", "")},
			"WARN job-gdr 1 of 1 workers have no channel with GDRDMA: ml/w0\n"},
		{"NCCL says nothing", []Worker{worker(t, "w0", "", ""), worker(t, "w1", "step 1\n", "")},
			"WARN job-debug 2 of 2 workers: nothing of NCCL's network in the log (the manifest does not set " +
				"NCCL_DEBUG): ml/w0, ml/w1\n"},
		{"NCCL says it elsewhere", []Worker{withEnv(worker(t, "w0", "", ""), "NCCL_DEBUG", "INFO", "NCCL_DEBUG_FILE",
			"/tmp/%h")}, "WARN job-debug 1 of 1 workers: nothing of NCCL's network in the log " +
			"(NCCL_DEBUG_FILE=/tmp/%h " +
			"takes it): ml/w0\n"},
		{"the manifest says why", []Worker{withEnv(worker(t, "w0", good, busy), "NCCL_IB_DISABLE", "1")},
			"FAIL pod-env-off ml/w0: container c: NCCL_IB_DISABLE=1\n"},
		{"near the limit by pinned pages", []Worker{worker(t, "w0", good, busy+"M 2 1073741824 1073000000\nK shmem "+
			"536870912\nV 490000\n")}, "WARN job-memory ml/w0 on n-w0: 1023 MiB used, limit 1024 MiB (cgroup v2), " +
			"512 of them in /dev/shm, 478 MiB pinned for RDMA\n"},
		{"a cache of files near the limit is no fault", []Worker{worker(t, "w0", good, busy+
			"M 2 1073741824 1073000000\nK shmem 1024\nV 4\n")}, ""},
		{"killed", []Worker{worker(t, "w0", good, busy+"M 1 1073741824 1024\nK oom_kill 1\n")},
			"FAIL job-memory ml/w0 on n-w0: the kernel has killed processes of the container for want of memory: 1; " +
				"0 MiB used, limit 1024 MiB (cgroup v1), 0 of them in /dev/shm, 0 MiB pinned for RDMA\n"},
		{"no workers", []Worker{{Pod: &Manifest{}}},
			"WARN job-devices its pods ask neither for GPUs nor for RDMA devices\n"},
	} {
		if got := text(CheckWorkers(c.list)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// Who belongs to a job is what controllers write on pods.
func TestPartOf(t *testing.T) {
	pod := func(name string, labels map[string]string, owners ...Owner) *Manifest {
		m := &Manifest{}
		m.Metadata.Name, m.Metadata.Labels, m.Metadata.Owners = name, labels, owners
		return m
	}
	kubeflow := pod("train-worker-0", map[string]string{"training.kubeflow.org/job-name": "train"})
	deployed := pod("web-5d5-x", map[string]string{"pod-template-hash": "5d5"}, Owner{Kind: "ReplicaSet",
		Name: "web-5d5", Controller: true})
	stateful := pod("db-0", nil, Owner{Kind: "StatefulSet", Name: "db", Controller: true})
	for _, c := range []struct {
		pod        *Manifest
		kind, name string
		want       bool
	}{
		{kubeflow, "", "train", true}, {kubeflow, "pytorchjob", "train", true},
		{kubeflow, "PyTorchJobs", "train", true},
		{kubeflow, "mpijobs.kubeflow.org", "train", true}, {kubeflow, "job", "train", false},
		{kubeflow, "", "trai", false},
		{kubeflow, "pod", "train-worker-0", true}, {kubeflow, "", "train-worker-0", true}, {kubeflow, "", "", false},
		{deployed, "deployment", "web", true}, {deployed, "deploy", "web", true}, {deployed, "", "web", true},
		{deployed, "rs", "web-5d5", true}, {deployed, "deployment", "web-5d5", false}, {deployed, "sts", "web", false},
		{stateful, "statefulset.apps", "db", true}, {stateful, "", "db", true}, {stateful, "ds", "db", false},
		{pod("x", nil, Owner{Kind: "StatefulSet", Name: "db"}), "", "db", false},
	} {
		if got := c.pod.PartOf(c.kind, c.name); got != c.want {
			t.Errorf("%s part of %s/%s: %v", c.pod.Metadata.Name, c.kind, c.name, got)
		}
	}
}
