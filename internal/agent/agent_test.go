package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// place is a node's directories.
type place struct {
	dir  string
	t    *testing.T
	logs lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newPlace(t *testing.T) *place {
	p := &place{dir: t.TempDir(), t: t}
	p.write("image/fabric", "the binary")
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) write(name, content string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path(name), []byte(content), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) main(ctx context.Context, command string, more ...string) error {
	args := append(
		[]string{command, "--source", p.path("image/fabric"), "--bin-dir", p.path("bin"), "--state-dir", p.path("run"),
			"--policy", p.path("policy.json"), "--conf-dir", p.path("net.d"),
			"--device-plugin-dir", p.path("dp"), "--device-info-dir", p.path("info"),
			"--kubelet-plugins-dir", p.path("plugins"), "--cdi-dir", p.path("cdi"),
			"--health-address", "127.0.0.1:9468"},
		more...)
	return agent.Main(ctx, "v1", args, io.Discard, &p.logs)
}

func TestInstallUninstall(t *testing.T) {
	p := newPlace(t)
	if err := p.main(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	p.write("net.d/fabric-agent-a.conf", "{}")
	p.write("net.d/other.conf", "{}")
	p.write("run/node-addresses.json", `{"addresses":[]}`)
	p.write("run/attachments/a@net1", `{"version":1,"containerID":"a","ifName":"net1","kind":"device"}`)
	if err := p.main(t.Context(), "uninstall"); err == nil || !strings.Contains(err.Error(), "container a, net1") {
		t.Errorf("%v", err)
	}
	if err := p.main(t.Context(), "uninstall", "--force"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{
		"bin/fabric": false, "net.d/fabric-agent-a.conf": false, "net.d/other.conf": true,
		"run/node-addresses.json": false,
		"run/attachments/a@net1":  true,
	} {
		if _, err := os.Stat(p.path(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Once nothing is on file, nothing stays.
	p.write("run/agent.json", "{}")
	p.write("run/locks/attachments", "")
	p.write("cdi/fabric.dev-claim_c1.json", "{}")
	p.write("cdi/nvidia.json", "{}")
	p.write("plugins/fabric.dev/dra.sock", "")
	if err := os.Remove(p.path("run/attachments/a@net1")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.main(t.Context(), "uninstall"); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]bool{
		"run": false, "cdi/fabric.dev-claim_c1.json": false, "cdi/nvidia.json": true, "plugins/fabric.dev": false,
	} {
		if _, err := os.Stat(p.path(name)); (err == nil) != want {
			t.Errorf("%s at the end: %v", name, err)
		}
	}
	for line := range strings.Lines(p.logs.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"fly"}, {"run"}, {"install", "--what"}, {"install", "now"}, {"run", "--no-cluster", "--interval", "0s"},
		{"run", "--no-cluster", "--metrics-secure"}, {"run", "--no-cluster", "--metrics-cert-dir", "/tls"},
	} {
		if err := agent.Main(t.Context(), "v1", args, io.Discard, io.Discard); !errors.Is(err, agent.ErrUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
	var out bytes.Buffer
	err := agent.Main(t.Context(), "v1", []string{"version"}, &out, io.Discard)
	if err != nil || out.String() != "v1\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := agent.Main(t.Context(), "v1", []string{"run", "-h"}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

// get asks the running agent where it listens by default; empty while it does not answer.
func get(path string) (int, string) {
	port := "9468"
	if path == "/metrics" {
		port = "9467"
	}
	res, err := http.Get("http://127.0.0.1:" + port + path)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(b)
}

// A node without RDMA and without fabrics: the binary is installed and kept.
func TestRun(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.main(ctx, "run", "--no-cluster", "--interval", "20ms", "--grace", "0s") }()
	sandbox.Until(t, "it is ready", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	p.write("bin/fabric", "somebody else's")
	sandbox.Until(t, "the binary is back", func() bool {
		b, err := os.ReadFile(p.path("bin/fabric"))
		return err == nil && string(b) == "the binary"
	})
	sandbox.Until(t, "the agent has counted that", func() bool { // after the rename comes an fsync
		_, text := get("/metrics")
		return strings.Contains(text, "\nfabric_reinstalled_total 2\n")
	})
	sandbox.Until(t, "a file is in the state directory's place", func() bool { // the agent writes there meanwhile
		return os.RemoveAll(p.path("run")) == nil && os.WriteFile(p.path("run"), []byte("a file"), 0o600) == nil
	})
	sandbox.Until(t, "it is not ready", func() bool {
		code, text := get("/readyz")
		return code == http.StatusServiceUnavailable && text == "not ok\n" &&
			strings.Contains(p.logs.String(), "is not writable")
	})
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	_, text := get("/metrics")
	if !strings.Contains(text, "\nfabric_ready 0\n") {
		t.Errorf("metrics:\n%s", text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// runMain runs one command.
func runMain(t *testing.T, stderr io.Writer, args ...string) error {
	t.Helper()
	return agent.Main(t.Context(), "v1", args, io.Discard, stderr)
}
