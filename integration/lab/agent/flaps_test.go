//go:build labguest

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// running is an agent that runs in this process, and what it has said.
type running struct {
	mu   sync.Mutex
	logs bytes.Buffer
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(p)
}

// said are the device conditions that it has raised and resolved, in their order: "raised Flapping".
func (r *running) said(t *testing.T) (out []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.logs.Bytes()) {
		var l struct{ Msg, Reason, Object string }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !strings.HasPrefix(l.Object, "device/") {
			continue
		}
		what := "raised "
		if strings.HasPrefix(l.Msg, "resolved: ") {
			what = "resolved "
		}
		out = append(out, what+l.Reason)
	}
	return out
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.String()
}

// metricsAt is where the agent listens.
const metricsAt = "127.0.0.1:9467"

// value is that of the first metric whose line has all these texts, or 0.
func (r *running) value(t *testing.T, has ...string) float64 {
	t.Helper()
	res, err := http.Get("http://" + metricsAt + "/metrics")
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
lines:
	for line := range strings.Lines(string(b)) {
		for _, h := range has {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, h) {
				continue lines
			}
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return v
	}
	return 0
}

// run starts an agent that looks every interval, with one fabric of these HCAs, as it would have it from the API server
// of an earlier time. It ends with the test.
func run(t *testing.T, interval time.Duration, health string, hcas ...string) *running {
	t.Helper()
	devices, err := json.Marshal(hcas)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(journal.DefaultDir, "agent.json")
	state := fmt.Sprintf(`{"fabrics": [{"name": "rails", "generation": 1, "spec": {"match": {"devices": %s},
		"health": %s}}]}`, devices, health)
	if err := os.MkdirAll(journal.DefaultDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	// No kubelet has given these devices to a pod.
	if err := os.MkdirAll(filepath.Dir(policy.DefaultPath), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policy.DefaultPath, []byte(`{"requireAllocated": false}`), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &running{}
	o := &agent.Options{
		Source: filepath.Join(guest.BinDir(), "fabric"), BinDir: filepath.Join(dir, "bin"),
		StateDir: journal.DefaultDir,
		Policy:   policy.DefaultPath, Node: "guest", NoCluster: true, Metrics: metricsAt,
		Interval: interval, Grace: time.Hour,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, o, "test", slog.New(slog.NewJSONHandler(r, nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		addresses := filepath.Join(journal.DefaultDir, policy.NodeAddressesFile)
		for _, f := range []string{file, addresses, policy.DefaultPath} {
			if err := os.Remove(f); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Log(r.text())
		}
	})
	guest.Until(t, "the agent judges", func() error {
		if r.value(t, "fabric_ready ") != 1 || !strings.Contains(r.text(), `"running"`) {
			return errors.New(r.text())
		}
		return nil
	})
	return r
}

// until waits until the last thing that was said of a device is this.
func (r *running) until(t *testing.T, want string) {
	t.Helper()
	guest.Until(t, want, func() error {
		if all := r.said(t); len(all) == 0 || all[len(all)-1] != want {
			return fmt.Errorf("said %q", all)
		}
		return nil
	})
}

// flaps takes the port of an HCA down and up until the agent has said that it flaps.
func (r *running) flaps(t *testing.T, n *guest.Node, hca string) {
	t.Helper()
	guest.Until(t, hca+" is said to flap", func() error {
		guest.SetStates(t, states(n, hca)...)
		guest.SetStates(t, states(n, "")...)
		if r.value(t, "fabric_device_unhealthy{", `hca="`+hca+`"`, `reason="Flapping"`) != 1 {
			return fmt.Errorf("said %q", r.said(t))
		}
		return nil
	})
}

// A port that comes and goes is said once, and once that it is over: on the host, and in a pod, where the host's sysfs
// does not show it.
func TestAgentFlaps(t *testing.T) {
	n := guest.S1(t)
	guest.Unchanged(t)
	rail := n.Rails[0]
	r := run(t, 100*time.Millisecond, `{"recovery": "3s"}`, rail.HCA, n.Rails[1].HCA)
	pod := guest.NewPod(t, "pod")
	for _, where := range []string{"host", "pod"} {
		before := len(r.said(t))
		if where == "pod" {
			c := attach(pod, "ADD", rail.Netdev)
			if config, ok := c.Config.(map[string]any); ok {
				config["rdmaName"] = "train_0" // the fabric has the device by the name that it has here
			}
			c.Must(t)
		}
		r.flaps(t, n, rail.HCA)
		r.until(t, "resolved Flapping")
		var flapping []string
		for _, s := range r.said(t)[before:] {
			if strings.HasSuffix(s, "Flapping") {
				flapping = append(flapping, s)
			}
		}
		if want := "[raised Flapping resolved Flapping]"; fmt.Sprint(flapping) != want {
			t.Errorf("%s: %v, want %s", where, flapping, want)
		}
	}
	attach(pod, "DEL", rail.Netdev).Must(t)
	if text := r.text(); !strings.Contains(text, "the port left Active") ||
		!strings.Contains(text, "it is in container pod") {
		t.Error("the pod is not named")
	}
	if got := r.value(t, "fabric_device_unhealthy{"); got != 0 {
		t.Errorf("fabric_device_unhealthy %v", got)
	}
}

// A port that goes down is said once wherever it is, also when its device goes into a pod and returns meanwhile.
func TestAgentPortDown(t *testing.T) {
	n := guest.S1(t)
	guest.Unchanged(t)
	rail := n.Rails[0]
	r := run(t, 50*time.Millisecond, `{}`, rail.HCA, n.Rails[1].HCA)
	pod := guest.NewPod(t, "pod")
	attach(pod, "ADD", rail.Netdev).Must(t)
	guest.SetStates(t, states(n, rail.HCA)...)
	r.until(t, "raised PortDown")
	attach(pod, "DEL", rail.Netdev).Must(t)
	guest.SetStates(t, states(n, "")...)
	r.until(t, "resolved PortDown")
	if want := "[raised PortDown resolved PortDown]"; fmt.Sprint(r.said(t)) != want {
		t.Errorf("%v, want %s", r.said(t), want)
	}
}

// A mere move says nothing, to an agent that takes a single flap for too many and looks all the time.
func TestAgentMoves(t *testing.T) {
	n := guest.S1(t)
	guest.Unchanged(t)
	r := run(t, 20*time.Millisecond, `{"flapsPerTenMinutes": 1}`, n.Rails[0].HCA, n.Rails[1].HCA)
	for i := range 5 {
		pod := guest.NewPod(t, fmt.Sprint("pod", i))
		for _, rail := range n.Rails[:2] {
			c := attach(pod, "ADD", rail.Netdev)
			c.IfName = rail.Netdev
			c.Must(t)
		}
		if i%2 == 0 { // its namespace goes, and DEL comes after
			pod.Delete(t)
		}
		for _, rail := range n.Rails[:2] {
			c := attach(pod, "DEL", rail.Netdev)
			c.IfName = rail.Netdev
			c.Must(t)
		}
	}
	if all := r.said(t); len(all) > 0 {
		t.Errorf("said %q", all)
	}
	if got := r.value(t, "fabric_port_flaps_total{", `hca="`+n.Rails[0].HCA+`"`); got != 0 {
		t.Errorf("%v flaps", got)
	}
	r.flaps(t, n, n.Rails[0].HCA) // it would have said it
}
