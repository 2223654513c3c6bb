package counters

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIn(t *testing.T) {
	const dir = "class/infiniband/mlx5_0/ports/1/"
	sys := fstest.MapFS{}
	for name, text := range map[string]string{
		"counters/symbol_error": "12\n", "counters/port_xmit_data": "18446744073709551615",
		"counters/broken": "N/A (no PMA)",
		"counters/empty":  "", "counters/negative": "-1", "hw_counters/lifespan": "10",
		"hw_counters/out_of_buffer": "3\n",
	} {
		sys[dir+name] = &fstest.MapFile{Data: []byte(text)}
	}
	want := map[string]uint64{"symbol_error": 12, "port_xmit_data": 1<<64 - 1, "out_of_buffer": 3}
	if d := cmp.Diff(want, Sum(In(sys, dir, 1))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Counter{{1, "counters", "symbol_error", 12}}, In(sys, dir, 1, "symbol_error", "none")); d != "" {
		t.Errorf("one of them (-want +got):\n%s", d)
	}
	if got := Sum(In(sys, "class/infiniband/mlx5_1/ports/1", 1)); got != nil {
		t.Errorf("no port: %v", got)
	}
}

func TestUptime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1000.50 12.00\n": 1000*time.Second + 500*time.Millisecond, "": 0, "soon": 0, "-5 1": 0, "1e300 1": 0, "NaN": 0,
	} {
		if got := uptime(fstest.MapFS{"proc/uptime": &fstest.MapFile{Data: []byte(text)}}); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A rate is what rose; none where a counter was reset, or the port does not count it.
func TestGbps(t *testing.T) {
	look := func(seconds int, in, out uint64) *Look {
		return &Look{Up: time.Duration(seconds) * time.Second, Ports: []Port{{HCA: "mlx5_0", Number: 1,
			Values: map[string]uint64{"port_rcv_data": in, "port_xmit_data": out}}}}
	}
	before := look(10, 1000, 5e9)
	c := Changes(before, look(12, 1000+25e9, 5e9+625e6))[0]
	if in, out, ok := c.Gbps(); !ok || in != 400 || out != 10 {
		t.Errorf("in %g, out %g, %v", in, out, ok)
	}
	for name, now := range map[string]*Look{
		"reset": look(12, 3, 5e9), "at once": look(10, 2000, 6e9),
		"not counted": {Up: time.Minute, Ports: []Port{{HCA: "mlx5_0", Number: 1, Values: map[string]uint64{}}}},
	} {
		if in, out, ok := Changes(before, now)[0].Gbps(); ok {
			t.Errorf("%s: in %g, out %g", name, in, out)
		}
	}
	if !AtEnd("symbol_error", 65535) || AtEnd("symbol_error", 65534) || AtEnd("port_xmit_data", 65535) ||
		AtEnd("x", 0) {
		t.Error("the ends of counters")
	}
}
