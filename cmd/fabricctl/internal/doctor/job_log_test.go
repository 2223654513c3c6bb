package doctor

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What releases of NCCL print when a communicator is made, cut down to what matters here, with the prefixes of
// launchers.
func TestReadLog(t *testing.T) {
	for _, c := range []struct{ name, log, want string }{
		{"2.18, InfiniBand, exclusive", `
train-0:71:71 [0] NCCL INFO Bootstrap : Using eth0:10.244.1.7<0>
train-0:71:71 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2
train-0:71:71 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation
NCCL version 2.18.3+cuda12.2
train-0:71:120 [0] NCCL INFO NCCL_IB_HCA set by environment to =mlx5_0:1,mlx5_3:1
train-0:71:120 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.244.1.7<0>
train-0:71:120 [0] NCCL INFO Using network IB
train-0:71:140 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
train-0:71:140 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1(8)/GDRDMA
`, "train-0 2.18.3+cuda12.2 IB mlx5_0:1,mlx5_3:1 direct 2 NCCL_IB_HCA==mlx5_0:1,mlx5_3:1"},
		{"2.19, RoCE, no GPUDirect, torchrun", `
[rank0]: [default0]:h-1:9:9 [3] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_4:1/RoCE [RO]
[rank0]: [default0]:h-1:9:9 [3] NCCL INFO Using non-device net plugin version 0
[rank0]: [default0]:h-1:9:9 [3] NCCL INFO Using network IB
[rank0]: [default0]:h-1:9:9 [3] NCCL INFO comm 0x8ec0ac0 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0
[rank0]: [default0]:h-1:9:9 [3] NCCL INFO Channel 02/0 : 3[3] -> 11[3] [send] via NET/IB/2
`, "h-1 - IB mlx5_4:1 nodes 2"},
		{"2.21, no device", `
w:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
w:1:2 [0] NCCL INFO NET/IB : No device found.
w:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.244.2.9<0> [1]net1:192.168.1.2<0>
w:1:2 [0] NCCL INFO Using network Socket
w:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
`, "w - Socket TCP eth0,net1 none NCCL_IB_DISABLE=1"},
		{"2.23, SHARP's plugin", `
w:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin IBext_v8 (v8)
w:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB eth0:10.244.2.9<0>
w:1:2 [0] NCCL INFO Using network IBext_v8
w:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IBext_v8/1/GDRDMA
`, "w - IBext_v8 mlx5_1:1 direct 1"},
		{"2.24, ports merged to one device", `
w:1:2 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=400000 ndevs=2
w:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.244.2.9<0>
w:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/2/GDRDMA
`, "w - IB mlx5_0:1,mlx5_1:1 direct 1"},
		{"2.27, mpirun with tags and a clock, two hosts in one log", `
[1,0]<stdout>:[2025-06-01 10:00:00] w-0:5:5 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
[1,0]<stdout>:[2025-06-01 10:00:00] w-0:5:5 [0] NCCL INFO Assigned NET plugin IB to comm
[1,1]<stdout>:[2025-06-01 10:00:00] w-1:5:5 [0] NCCL INFO Assigned NET plugin Socket to comm
[1,1]<stderr>:
[1,1]<stderr>:[2025-06-01 10:00:01] w-1:5:9 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed
`, "w-0 2.27.3+cuda12.9 IB -; w-1 2.27.3+cuda12.9 Socket TCP - warned NCCL WARN Call to ibv_open_device failed"},
		{"perftest and nothing of NCCL", "Couldn't allocate MR\nall is well\n", " - - - warned Couldn't allocate MR"},
		{"nothing", "step 1 loss 3.1\nNCCL_DEBUG is not set\n", ""},
	} {
		list, err := ReadLog(strings.NewReader(c.log))
		if got := logText(list); err != nil || got != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, c.want)
		}
	}
}

func logText(list []*RankLog) string {
	var out []string
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, l := range list {
		s := fmt.Sprintf("%s %s %s", l.Host, or(l.Version), or(l.network()))
		if l.tcp() {
			s += " TCP " + or(strings.Join(l.Socket, ","))
		} else {
			s += " " + or(strings.Join(l.used(), ","))
		}
		if l.Direct > 0 {
			s += fmt.Sprint(" direct ", l.Direct)
		}
		if l.None {
			s += " none"
		}
		if l.Nodes > 0 {
			s += fmt.Sprint(" nodes ", l.Nodes)
		}
		for _, k := range slices.Sorted(maps.Keys(l.Env)) {
			s += " " + k + "=" + l.Env[k]
		}
		if len(l.Warned) > 0 {
			s += " warned " + strings.Join(l.Warned, "; ")
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// repeated is a text again and again.
type repeated struct {
	text string
	more int // bytes
	at   int
}

func (r *repeated) Read(b []byte) (n int, err error) {
	for n < len(b) && r.more > 0 {
		k := copy(b[n:min(len(b), n+r.more)], r.text[r.at:])
		n, r.more, r.at = n+k, r.more-k, (r.at+k)%len(r.text)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A log may be anything: lines without end, hosts without number, values without bound. What is kept is bounded.
func TestHostileLog(t *testing.T) {
	var hosts, values strings.Builder
	for i := range maxHosts + 10 {
		fmt.Fprintf(&hosts, "h%d:1:2 [0] NCCL INFO Using network IB\n", i)
	}
	for i := range 10 * maxKept {
		fmt.Fprintf(&values, "h:1:2 [0] NCCL INFO Using network N%d\nh:1:2 [0] NCCL INFO NCCL_X%d set to %s\n"+
			"h:1:2 [0] x.cc:1 NCCL WARN %d %s\nh:1:2 [0] NCCL INFO 0 [send] via NET/IB/%d\n"+
			"h:1:2 [0] NCCL INFO NET/IB : Made virtual device [%d] name=x\nh:1:2 [0] NCCL INFO NET/IB : Using "+
			"[%d]m:1/IB\n"+
			"h:1:2 [0] NCCL INFO NET/Socket : Using [0]e%d:\n", i, i, strings.Repeat("v", i%999), i,
			strings.Repeat("w", 999), i%999, i%999, i%999, i)
	}
	for name, r := range map[string]io.Reader{
		"a line without end": &repeated{text: "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ", more: 1 << 20},
		"no text":            &repeated{text: "\x00\xff\x1b[2J\r", more: 4 * maxLogLine},
		"many hosts":         strings.NewReader(hosts.String()),
		"many values":        strings.NewReader(values.String()),
	} {
		list, err := ReadLog(r)
		if err != nil || len(list) > maxHosts {
			t.Errorf("%s: %d hosts, %v", name, len(list), err)
		}
		for _, l := range list {
			for what, n := range map[string]int{
				"networks": len(l.Network), "devices": len(l.Devices), "env": len(l.Env),
				"socket": len(l.Socket), "via": len(l.Via), "virtual": len(l.virtual), "warned": len(l.Warned)} {
				if n > maxKept {
					t.Errorf("%s: %d %s", name, n, what)
				}
			}
			for _, s := range slices.Concat(l.Warned, l.Network, l.Socket, slices.Collect(maps.Values(l.Env))) {
				if len(s) > maxValue {
					t.Fatalf("%s: a value of %d bytes", name, len(s))
				}
			}
			_, _, _ = l.used(), l.network(), l.spoken()
		}
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add("h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\nh:1:2 [0] NCCL INFO 0 [send] via NET/IB/0/GDRDMA\n")
	f.Add("T 1\nU mlx5_0\nP mlx5_0 1 ACTIVE InfiniBand fe80:0000:0000:0000:0002:c903:00fa:0010 ib0\nC mlx5_0 1 1 " +
		"2\nT 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadLog(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		pod := &Manifest{}
		pod.Metadata.Name, pod.Status.Phase = "h", "Running"
		workers := []Worker{{Pod: pod, Seen: ReadLook([]byte(text))}, {Pod: pod, Launcher: true}}
		Logs(workers, [][]*RankLog{list, list})
		CheckWorkers(workers)
		workers[0].Row()
	})
}
