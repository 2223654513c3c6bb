package fabric_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// An IPAM plugin that hangs in DEL keeps the device from no other pod.
func TestDelHangingIPAM(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, everything...), newGate(t, "gate")
	n.must(t, g.call(n, "ADD", "c1"))
	g.shut(t, "DEL", "c1")
	del := n.start(t, g.call(n, "DEL", "c1"))
	n.home(t)
	second := sandbox.New(t)
	c2 := g.call(n, "ADD", "c2")
	c2.netns = second.Path
	n.must(t, c2)
	c2.command = "DEL"
	n.must(t, c2)
	g.open(t, "DEL", "c1")
	del.succeeds(t, "DEL")
	n.same(t, "after both")
}

// /run is full, and the device's name is taken on the host by the time of DEL: the third DEL ends.
func TestDelEndsOnFullRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := unix.Mount("full", n.state, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(n.state, 0); err != nil {
			t.Error(err)
		}
	})
	n.must(t, n.call("ADD", conf()))
	n.host.IP(t, "link", "add", "v0", "type", "bridge")
	f, err := os.Create(filepath.Join(n.state, "filler"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	for range 2 {
		if a := n.run(t, n.call("DEL", conf())); a.ok {
			t.Fatal("the name is free?")
		}
	}
	n.must(t, n.call("DEL", conf()))
	if err := os.Remove(filepath.Join(n.state, "filler")); err != nil {
		t.Error(err)
	}
	if files := n.files(t); len(files) > 0 {
		t.Errorf("left on file: %v", files)
	}
	if n.pod.Has(t, "net1") {
		t.Error("the device is in the pod still")
	}
}
