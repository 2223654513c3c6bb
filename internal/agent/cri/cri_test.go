package cri_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
)

func TestNoRuntime(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []cri.Runtime{
		{Socket: "/nowhere/containerd.sock"}, {HostProc: dir}, {Socket: filepath.Join(dir, "a.sock")},
	} {
		_, err := r.Sandboxes(t.Context())
		if !errors.Is(err, cri.ErrNoRuntime) || !strings.Contains(err.Error(), "--cri-socket") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A listener that speaks no CRI is an error, seen through the node's /proc as well.
func TestNotARuntime(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "1/root/run/crio"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "1/root/run/crio/crio.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if _, err := (cri.Runtime{HostProc: dir}).Sandboxes(
		t.Context(),
	); err == nil || errors.Is(err, cri.ErrNoRuntime) ||
		!strings.Contains(err.Error(), "crio.sock") {
		t.Errorf("%v", err)
	}
}
