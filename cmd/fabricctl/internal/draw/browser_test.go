package draw_test

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// look is what a reader's eye would do: it lists texts that are wider than their card, or outside of the picture, or on
// top of a badge; then the number of cards, badges and rows that the browser has laid out.
const look = `<script>
addEventListener('load', () => {
  const bad = [], box = e => e.getBoundingClientRect();
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 &&
    a.bottom <= b.bottom + 1;
  const cross = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  document.querySelectorAll('svg').forEach(svg => svg.querySelectorAll('text').forEach(t => {
    if (!inside(box(t), box(svg))) bad.push('outside: ' + t.textContent);
  }));
  document.querySelectorAll('g.card').forEach(g => {
    const texts = [...g.querySelectorAll('text')], rects = [...g.querySelectorAll('rect')];
    texts.forEach((t, i) => {
      if (!inside(box(t), box(rects[0]))) bad.push('over its card: ' + t.textContent);
      texts.slice(i + 1).forEach(o => { if (cross(box(t), box(o))) bad.push('on top of each other: ' + t.textContent +
        ' / ' + o.textContent); });
    });
  });
  if (document.documentElement.scrollWidth > innerWidth) bad.push('page wider than the window');
  document.title = 'LOOK ' + document.querySelectorAll('g.card').length + ' ' +
    document.querySelectorAll('rect.badge').length + ' ' +
    document.querySelectorAll('table tr').length + ' [' + bad.join(' | ') + ']';
});</script>`

// browser is Chromium, which scripts/setup.sh installs for these tests.
func browser(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("capability missing: the browser chromium")
	}
	return path
}

// view opens a page and returns what look has found, and the screenshot.
func view(t *testing.T, page string) (title string, shot []byte) {
	t.Helper()
	return viewIn(t, page, "1240,1400")
}

func viewIn(t *testing.T, page, window string) (title string, shot []byte) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(strings.Replace(page, "</body>", look+"</body>", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		base := []string{
			"--headless",
			"--no-sandbox",
			"--disable-gpu",
			"--disable-dev-shm-usage",
			"--hide-scrollbars",
			"--no-first-run",
			"--user-data-dir=" + filepath.Join(dir, "profile"),
			"--window-size=" + window,
		}
		cmd := exec.CommandContext(t.Context(), browser(t), append(append(base, args...), "file://"+file)...)
		cmd.WaitDelay = 5 * time.Second // helpers may hold the pipe
		var diag bytes.Buffer
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			t.Fatalf("chromium %v: %v\n%s", args, err, diag.String())
		}
		return out
	}
	m := regexp.MustCompile(`<title>(LOOK[^<]*)</title>`).FindSubmatch(run("--virtual-time-budget=5000", "--dump-dom"))
	if m == nil {
		t.Fatal("the page's script has not run")
	}
	run("--screenshot=" + filepath.Join(dir, "shot.png"))
	shot, err := os.ReadFile(filepath.Join(dir, "shot.png"))
	if err != nil {
		t.Fatal(err)
	}
	return string(m[1]), shot
}

// seen tells which of the colours are on the picture.
func seen(t *testing.T, shot []byte, colours ...string) (missing []string) {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			c, ok := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			if ok {
				there[fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)] = true
			}
		}
	}
	for _, c := range colours {
		if !there[c] {
			missing = append(missing, c)
		}
	}
	return missing
}

// Cards, badges, rows, and nothing that is cut off or on top of something else; colours by state.
func TestPictureInBrowser(t *testing.T) {
	for _, c := range []struct {
		machine string
		want    string
		colours []string
	}{
		{"h20", "LOOK 15 4 8 []", []string{"#e3f2fd", "#fbe9e7", "#eeeeee", "#e8f0e0", "#0072b2"}},
		{"roce", "LOOK 13 4 6 []", []string{"#e3f2fd", "#eeeeee"}},
		{"a100", "LOOK 11 1 4 []", []string{"#fbe9e7"}},
		{"gb200", "LOOK 8 4 5 []", []string{"#e3f2fd"}},
		{"v100", "LOOK 6 2 3 []", []string{"#e3f2fd", "#e8f0e0", "#0072b2"}}, // a card of two functions
		{"two ports", "LOOK 7 2 4 []", []string{"#e3f2fd", "#fbe9e7", "#0072b2"}},
		{"plain", "LOOK 0 0 1 []", nil},
	} {
		t.Run(c.machine, func(t *testing.T) {
			browser(t)
			n, err := node.Open(machines.Named(strings.Replace(c.machine, "two ports", "v100", 1)).FS, journal.Store{})
			if err != nil {
				t.Fatal(err)
			}
			if c.machine == "two ports" { // one function with both, as ConnectX-3 has them: one up, one down
				n.HCAs[0].Ports = append(
					n.HCAs[0].Ports,
					node.Port{Number: 2, LinkLayer: device.InfiniBand, State: "Down", Phys: "Polling", Netdev: "ib1"},
				)
				n.HCAs[1].Ports[0].Netdev = "ib2"
			}
			if c.machine == "h20" { // names as long as they come
				n.HCAs[0].InPod = "a-namespace-with-a-long-name/training-job-with-a-long-name-worker-0"
				n.HCAs[2].Ports[0].Netdev = "enp161s0f1np1v0"
				n.HCAs[2].Model = "BlueField-3 with a long name <b>"
			}
			var page bytes.Buffer
			if err := draw.HTML(&page, n, n.Fabrics()); err != nil {
				t.Fatal(err)
			}
			got, shot := view(t, page.String())
			if got != c.want {
				t.Errorf("looks like %s, want %s", got, c.want)
			}
			if missing := seen(t, shot, c.colours...); len(missing) > 0 {
				t.Errorf("colours that are not on the picture: %v", missing)
			}
		})
	}
}

func TestReportInBrowser(t *testing.T) {
	browser(t)
	list := []perftest.Result{
		{
			Round:     1,
			A:         "p1",
			B:         "p2",
			Rail:      "net1",
			HCA:       "mlx5_0",
			Ping:      "reachable",
			RateGb:    200,
			Bandwidth: &perftest.Bandwidth{AverageGb: 183.6},
			Latency:   &perftest.Latency{Typical: 2.73},
			Verdict:   perftest.Good,
			Text:      "183.6 of 200 Gb/s: good; 2.73 us",
		},
		{
			Round:     2,
			A:         "p1",
			B:         "p3",
			Rail:      "net1",
			HCA:       "mlx5_0",
			Ping:      "reachable",
			RateGb:    200,
			Bandwidth: &perftest.Bandwidth{AverageGb: 94.7},
			Verdict:   perftest.Slow,
			Text:      "half",
		},
		{
			Round:   3,
			A:       "p2",
			B:       "p3",
			Rail:    "net1",
			Ping:    "unreachable",
			Verdict: perftest.Failed,
			Text:    "ping: 100% of the packets are lost",
		},
	}
	var page bytes.Buffer
	if err := draw.Report(&page, perftest.NewReport(list, nil)); err != nil {
		t.Fatal(err)
	}
	got, shot := view(t, page.String())
	if got != "LOOK 0 0 8 []" {
		t.Errorf("looks like %s", got)
	}
	if missing := seen(t, shot, "#d7301f", "#f4f6f8"); len(missing) > 0 {
		t.Errorf("colours that are not on the picture: %v", missing)
	}
}
