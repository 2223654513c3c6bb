package perftest

import (
	"strings"
	"testing"
)

func path(a, b, rail string, there, back, us float64, v Verdict) Result {
	r := Result{A: a, B: b, NodeA: "n" + a, NodeB: "n" + b, Rail: rail, RateGb: 200, Verdict: v}
	if there > 0 {
		r.Bandwidth = &Bandwidth{AverageGb: there}
	}
	if back > 0 {
		r.Reverse = &Bandwidth{AverageGb: back}
	}
	if us > 0 {
		r.Latency = &Latency{Typical: us}
	}
	return r
}

// A path is compared with itself: by nodes, in either order of the ends, way by way.
func TestCompare(t *testing.T) {
	l := &Limits{MaxRegress: 10}
	last := []Result{path("1", "2", "net1", 190, 180, 2, Good)}
	for name, c := range map[string]struct {
		is       Result
		compared int
		text     string
	}{
		"the same":    {path("1", "2", "net1", 190, 180, 2, Good), 3, ""},
		"turned":      {path("2", "1", "net1", 180, 190, 2, Good), 3, ""},
		"less there":  {path("1", "2", "net1", 150, 180, 2, Good), 3, "21 % less than in the last run: 190 Gb/s"},
		"less back":   {path("1", "2", "net1", 190, 90, 2, Good), 3, "back 50 % less than in the last run: 180 Gb/s"},
		"turned less": {path("2", "1", "net1", 180, 100, 2, Good), 3, "back 47 % less than in the last run: 190 Gb/s"},
		"latency": {path("1", "2", "net1", 190, 180, 3, Good), 3,
			"latency 50 % more than in the last run: 2.00 us"},
		"noise":        {path("1", "2", "net1", 190, 180, 2.4, Good), 3, ""},
		"one way":      {path("1", "2", "net1", 190, 0, 0, Good), 1, ""},
		"another rail": {path("1", "2", "net2", 10, 10, 9, Good), 0, ""},
	} {
		list := []Result{c.is}
		compared, missing := Compare(list, last, l)
		if compared != c.compared || list[0].Text != c.text || (list[0].Verdict == Good) != (c.text == "") {
			t.Errorf("%s: %d compared, %+v", name, compared, list[0])
		}
		if (len(missing) == 1) != (c.compared == 0) {
			t.Errorf("%s: missing %q", name, missing)
		}
	}
}

// The node that most bad paths have in common is to blame, and not its peers.
func TestNodes(t *testing.T) {
	for name, c := range map[string]struct {
		bad  string // pairs
		want string // guilty nodes
	}{
		"nobody": {"", ""}, "one node": {"14 24 34", "4"}, "one path": {"12", "12"},
		"two nodes": {"13 14 23 24 34", "34"},
	} {
		var list []Result
		for _, p := range []string{"12", "13", "14", "23", "24", "34"} {
			v := Good
			if strings.Contains(c.bad, p) {
				v = Slow
			}
			list = append(list, path(p[:1], p[1:], "net1", 0, 0, 0, v))
		}
		got := ""
		for _, n := range Nodes(list) {
			if !n.Verified {
				got += strings.TrimPrefix(n.Name, "n")
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What was not measured is no success, and neither is an empty list.
func TestWorst(t *testing.T) {
	for _, c := range []struct {
		list []Verdict
		want Verdict
	}{
		{nil, Skipped}, {[]Verdict{Good}, Good}, {[]Verdict{Good, Skipped}, Skipped}, {[]Verdict{Slow, Skipped}, Slow},
		{[]Verdict{Failed, Slow}, Failed},
	} {
		var list []Result
		for _, v := range c.list {
			list = append(list, Result{Verdict: v})
		}
		if got := NewReport(list, nil).Summary.Verdict; got != c.want {
			t.Errorf("%v: %s", c.list, got)
		}
	}
}

func TestThresholdByRate(t *testing.T) {
	l := &Limits{Percent: 90, ByRate: map[float64]float64{400: 320}, MaxLatency: 3}
	for _, c := range []struct {
		gb, rate float64
		want     Verdict
	}{{321, 400, Good}, {319, 400, Slow}, {170, 200, Slow}, {181, 200, Good}} {
		if v, text := l.Judge(c.gb, c.rate); v != c.want {
			t.Errorf("%v of %v: %s %s", c.gb, c.rate, v, text)
		}
	}
	if v, _ := l.JudgeLatency(3.1); v != Slow {
		t.Error(v)
	}
	if v, _ := l.JudgeLatency(2.9); v != Good {
		t.Error(v)
	}
}

const allReduce = `# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8589934592 step: 2(factor)
#  Rank  0 Group  0 Pid     31 on gpu-1 device  0 [0x18] NVIDIA H20
#  Rank  1 Group  0 Pid     31 on gpu-2 device  0 [0x18] NVIDIA H20
gpu-1:31:31 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
gpu-1:31:31 [0] NCCL INFO Using network IB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     8388608       2097152     float     sum      -1    312.1   26.88   50.40      0    310.2   27.04   50.70      0
  8589934592    2147483648     float     sum      -1    48217  178.15  334.03      0    48190  178.25  334.22      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 192.338
`

func TestNCCL(t *testing.T) {
	for name, c := range map[string]struct {
		log   string
		least float64
		want  Verdict
		text  string
	}{
		"good": {allReduce, 300, Good, "334.2 GB/s bus bandwidth over NET/IB"},
		"slow": {allReduce, 350, Slow, "350 are wanted"},
		"TCP": {strings.NewReplacer("NET/IB", "NET/Socket", "network IB", "network Socket").Replace(
			allReduce), 0, Failed, "NET/Socket"},
		"wrong":   {strings.Replace(allReduce, "values : 0 OK", "values : 3 FAILED", 1), 0, Failed, "3 wrong values"},
		"unknown": {strings.ReplaceAll(allReduce, "NCCL INFO", ""), 0, Skipped, "is not known"},
		"nothing": {"x NCCL WARN Cuda failure 'out of memory'\n", 0, Failed, "out of memory"},
		"empty":   {"", 0, Failed, "no bandwidth"},
	} {
		n := ParseNCCL(c.log, c.least)
		if n.Verdict != c.want || !strings.Contains(n.Text, c.text) {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if n := ParseNCCL(allReduce, 0); n.Ranks != 2 || n.AverageGB != 192.338 || n.Bytes != 8589934592 {
		t.Errorf("%+v", n)
	}
}

func FuzzNCCL(f *testing.F) {
	f.Add(allReduce)
	f.Fuzz(func(t *testing.T, log string) {
		if n := ParseNCCL(log, 1); n.BusGB < 0 || n.BusGB > maxBus || n.AverageGB > maxBus {
			t.Errorf("%+v", n)
		}
	})
}
