package fabric_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// foreign puts things into the state directory that no program of this project writes, as an IPAM plugin that runs as
// root with a dataDir of a network can.
func (n *node) foreign(t *testing.T) {
	t.Helper()
	for _, dir := range []string{
		"attachments/dir@net1/lock", "attachments/nothing", "claims/netdev+v0/owner/n", "claims/netdev+v0/.owner/n",
		"locks/netdev+v0/n", "locks/attachments/n", "prepared/p/lock", "ipam/x/y",
	} {
		if err := os.MkdirAll(filepath.Join(n.state, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{
		"attachments/lock", "attachments/c8@net1", "claims/lock", "claims/netdev+w0", "prepared/lock", "prepared/q/c",
		"locks/netdev+v0/n/lock", "claims/netdev+v0/owner/n/lock", "prepared/p/lock/lock", "ipam/lock",
	} {
		path := filepath.Join(n.state, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, fifo := range []string{"attachments/c9@net1", "prepared/p/fifo", "locks/netdev+w0", "locks/ipam"} {
		if err := unix.Mkfifo(filepath.Join(n.state, fifo), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(n.state, "attachments", "c7@net1")); err != nil {
		t.Fatal(err)
	}
}

// What is foreign or damaged in the state directory costs itself only: devices whose lock or claim it has the place of
// are given and returned, and GC ends well.
func TestForeignState(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	n.host.Veth(t, "w0", n.far, "w1")
	n.before = n.host.State(t)
	n.foreign(t)
	second := n.call("ADD", confOf("1.1.0", `"device":"w0"`,
		`"ipam":{"type":"static","addresses":[{"address":"192.168.20.7/24"}]}`))
	second.id, second.ifName = "dir", "net1" // its entry's name is a directory
	gc := call{command: "GC", conf: confOf("1.1.0", static,
		`"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"},{"containerID":"dir","ifname":"net1"}]`)}
	first := n.call("ADD", conf())
	first.ifName = "net2"
	for range 2 {
		for _, c := range []call{first, second, gc} {
			n.must(t, c)
		}
		for _, c := range []call{first, second} {
			c.command = "DEL"
			n.must(t, c)
		}
		var diff string
		if !sandbox.Soon(func() bool { diff = cmp.Diff(n.before, n.host.State(t)); return diff == "" }) {
			t.Errorf("-before +after:\n%s", diff)
		}
	}
	for _, file := range n.files(t) {
		if strings.Contains(file, "netdev+") || strings.Contains(file, "dir@net1") {
			t.Errorf("left on file: %s", file)
		}
	}
}
