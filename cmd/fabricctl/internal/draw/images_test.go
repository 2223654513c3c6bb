package draw_test

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

var update = flag.Bool("update", false, "make the pictures of the documentation again")

// measured is four nodes of which one pair has a bad cable and one a wrong MTU. The figures are made up.
func measured() *perftest.Report {
	var list []perftest.Result
	figures := map[string]float64{
		"gpu-1 gpu-2": 191.8,
		"gpu-1 gpu-3": 161.7,
		"gpu-1 gpu-4": 191.6,
		"gpu-2 gpu-3": 192.6,
		"gpu-2 gpu-4": 94.7,
		"gpu-3 gpu-4": 193.4,
		"gpu-2 gpu-1": 190.9,
		"gpu-3 gpu-1": 192.0, // from gpu-1 to gpu-3 a wrong MTU counts one way only
		"gpu-4 gpu-1": 191.2,
		"gpu-3 gpu-2": 191.7,
		"gpu-4 gpu-2": 94.6,
		"gpu-4 gpu-3": 193.0,
	}
	names := []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4"}
	for i, round := range perftest.Rounds(len(names)) {
		for _, p := range round {
			r := perftest.Result{
				Round:   i + 1,
				A:       names[p.A],
				B:       names[p.B],
				Rail:    "net1",
				HCA:     "mlx5_0",
				Ping:    "reachable",
				GID:     "same subnet prefix",
				RateGb:  200,
				Latency: &perftest.Latency{Typical: 2.73},
			}
			r.Verdict = perftest.Good
			limits := &perftest.Limits{Percent: perftest.Threshold}
			for i, way := range []string{r.A + " " + r.B, r.B + " " + r.A} {
				b := &perftest.Bandwidth{AverageGb: figures[way]}
				v, text := limits.Judge(b.AverageGb, r.RateGb)
				r.Add(v, []string{"", "back "}[i]+text)
				if i == 0 {
					r.Bandwidth = b
				} else {
					r.Reverse = b
				}
			}
			list = append(list, r)
		}
	}
	return perftest.NewReport(list, nil)
}

// The pictures of README and manual: go test ./cmd/fabricctl/internal/draw -run TestImages -update makes them. Another
// Chromium has other fonts, so what is compared is that they are pictures of that size, and that a page shows each.
func TestImages(t *testing.T) {
	n, err := node.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	var picture, report bytes.Buffer
	if err := draw.HTML(&picture, n, n.Fabrics()); err != nil {
		t.Fatal(err)
	}
	if err := draw.Report(&report, measured()); err != nil {
		t.Fatal(err)
	}
	const root = "../../../../"
	for name, c := range map[string]struct {
		html   string
		window string
		height int
		page   string
	}{
		"discover-h20.png":  {picture.String(), "1240,700", 700, "README.md"},
		"verify-report.png": {report.String(), "1240,640", 640, "docs/verify.md"},
	} {
		file := filepath.Join(root, "docs/images", name)
		if *update {
			browser(t)
			_, shot := viewIn(t, c.html, c.window)
			if err := os.WriteFile(file, shot, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		size, err := png.DecodeConfig(bytes.NewReader(b))
		if err != nil || size.Width != 1240 || size.Height != c.height || len(b) > 150<<10 {
			t.Errorf("%s: %v, %d x %d, %d bytes", name, err, size.Width, size.Height, len(b))
		}
		page, err := os.ReadFile(root + c.page)
		if err != nil || !strings.Contains(string(page), "images/"+name+")") {
			t.Errorf("%s does not show %s: %v", c.page, name, err)
		}
	}
}
