package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// wordsAt is how much port_xmit_data rises in a second at so many Gb/s.
func wordsAt(gb uint64) uint64 { return gb * 1e9 / 32 }

// lookedAt is a look at an H20 node with these counters, so many seconds after the start.
func lookedAt(t *testing.T, seconds int, differ map[string]uint64) *watchLook {
	t.Helper()
	m := machines.H20().Counters(differ)
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	up := time.Duration(seconds) * time.Second
	l := &watchLook{at: time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC), up: up}
	l.addTree(n, counters.Read(m.FS, n))
	return l
}

func (l *watchLook) port(t *testing.T, hca string) *watchedPort {
	t.Helper()
	i := slices.IndexFunc(l.ports, func(p watchedPort) bool { return p.HCA == hca })
	if i < 0 {
		t.Fatal("no port " + hca)
	}
	return &l.ports[i]
}

// What two looks at a node are on a terminal of 80 columns: traffic, errors, a flap, a device that moved into a
// pod, one
// that came, one whose counters were reset, and one whose counters can't be read.
func TestWatchTable(t *testing.T) {
	const base = 1 << 40
	before := lookedAt(t, 10, map[string]uint64{"mlx5_5 counters/link_downed": 1, "mlx5_7 " +
		"counters/port_rcv_data": base})
	now := lookedAt(t, 12, map[string]uint64{
		"mlx5_0 counters/port_xmit_data": base + 2*wordsAt(391), "mlx5_0 counters/port_rcv_data": base + 2*wordsAt(40),
		"mlx5_3 counters/symbol_error": 90, "mlx5_3 hw_counters/rp_cnp_handled": 5000,
		"mlx5_5 counters/link_downed": 3, "mlx5_7 counters/port_rcv_data": 7,
	})
	moved := now.port(t, "mlx5_4")
	moved.Place, moved.pod = "in a pod", "ml-team-with-a-long-name/train-worker-17"
	gone := slices.IndexFunc(before.ports, func(p watchedPort) bool { return p.HCA == "mlx5_bond_0" })
	before.ports = slices.Delete(before.ports, gone, gone+1)
	now.port(t, "mlx5_6").Values = nil
	for _, l := range []*watchLook{before, now} {
		l.port(t, "mlx5_0").pod = "ml/a"
	}
	r := compare(before, now)
	r.Node, r.columns, r.rows = "h20", 80, 24
	var out bytes.Buffer
	w := &watcher{app: &app{console: console{stdout: quote.Printer{W: &out}}}, interval: 2 * time.Second}
	if err := w.table(r); err != nil {
		t.Fatal(err)
	}
	const want = `HOMEh20  03:04:12  every 2s  in 40.0 Gb/s  out 391.0 Gb/sEND
END
PORT           POD                        STATE      IN Gb/s    OUT Gb/s  ERRORSEND
mlx5_0:1       ml/a                       Active   40.0  10%  391.0  98%       0END
mlx5_bond_0:1  -                          Active           -           -       -END
  newEND
mlx5_3:1       -                          Active    0.0   0%    0.0   0%      45END
  symbol_error 45.0/sEND
mlx5_4:1       ml-team-with-a-long-name~  Active           -           -       -END
  movedEND
mlx5_5:1       -                          Down      0.0   0%    0.0   0%     1.0END
  the link went down 2 timesEND
mlx5_6:1       -                          Down             -           -       -END
  unreadableEND
mlx5_7:1       -                          Active           -           -       0END
  resetEND
BELOW`
	got := strings.NewReplacer("\x1b[H", "HOME", "\x1b[K", "END", "\x1b[J", "BELOW").Replace(out.String())
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !slices.Equal(r.Ports[2].Over, []string{"symbol_error"}) {
		t.Errorf("%+v", r.Ports[2])
	}
	out.Reset()
	if err := w.lines(r); err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(out.String(), "\n"); line != "03:04:12 mlx5_0:1 ml/a Active in 40.0 Gb/s 10% out "+
		"391.0 Gb/s 98% errors 0/s" {
		t.Error(line)
	}
}

// However wide names are, and whatever they contain, a line fits the terminal; so do the ports.
func TestWatchFits(t *testing.T) {
	for _, columns := range []int{60, 80, 120} {
		for _, pod := range []string{"", strings.Repeat("a", 253), strings.Repeat("訓練", 60), "x\x1b[31m\nmlx5_9:1",
			"a/\u202eb"} {
			before, now := lookedAt(t, 0, nil), lookedAt(t, 1, map[string]uint64{
				"mlx5_0 counters/port_xmit_data": 1 << 62, "mlx5_3 counters/port_rcv_errors": 1 << 60,
			})
			for i := range now.ports {
				now.ports[i].pod = pod
				now.ports[i].HCA = "h" + pod
			}
			for range 300 {
				now.ports = append(now.ports, now.ports[0])
			}
			r := compare(before, now)
			r.columns, r.rows = columns, 24
			var out bytes.Buffer
			w := &watcher{app: &app{console: console{stdout: quote.Printer{W: &out}}}}
			if err := w.table(r); err != nil {
				t.Fatal(err)
			}
			shown := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(out.String())
			lines := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
			for _, l := range lines {
				if quote.Width(l) > columns || strings.ContainsAny(l, "\x1b\u202e") {
					t.Errorf("%d columns: %q has %d", columns, l, quote.Width(l))
				}
			}
			if len(lines) > 24 {
				t.Errorf("%d lines on a terminal of 24", len(lines))
			}
			if !strings.Contains(shown, "more ports") {
				t.Errorf("300 ports, and nobody says that they are not all shown:\n%s", shown)
			}
		}
	}
}

// A counter that wraps, or was reset, makes no rate; neither does a look that took no time.
func TestWatchOdd(t *testing.T) {
	a, b := lookedAt(t, 5, nil), lookedAt(t, 5, map[string]uint64{"mlx5_0 counters/port_xmit_data": 1 << 50})
	for _, p := range compare(a, b).Ports {
		if p.InGb != nil || len(p.Errors) > 0 {
			t.Errorf("no time has passed: %+v", p)
		}
	}
	c := lookedAt(t, 6, map[string]uint64{"mlx5_0 counters/port_xmit_data": 3})
	if p := compare(a, c).Ports[0]; p.OutGb != nil || p.Note != "reset" {
		t.Errorf("%+v", p)
	}
	if got := fmt.Sprint(fit("訓練訓練", 5), fit("abc", 3), fit("abcd", 3)); got != "訓練~ abc ab~" && got != "訓練~abcab~" {
		t.Error(got)
	}
}
