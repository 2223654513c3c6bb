package fabric_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// third is a network namespace that a pod has made, without a name: what holds it is all that leads to it.
type third struct{ ns *netns.NS }

func newThird(t *testing.T, how string) third {
	t.Helper()
	if how == "user namespace" {
		return ofUser(t)
	}
	name := "third" + strings.ReplaceAll(sandbox.New(t).Name, "test", "")
	sandbox.Run(t, "ip", "netns", "add", name)
	ns, err := netns.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	sandbox.Run(t, "ip", "netns", "delete", name)
	return third{ns}
}

// ofUser is a namespace that belongs to a user namespace.
func ofUser(t *testing.T) third {
	t.Helper()
	pid, _ := sandbox.Hold(t, "", "unshare", "-Urn")
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return third{ns}
}

// take moves an interface of the pod there.
func (x third) take(t *testing.T, n *node, name string) {
	t.Helper()
	n.pod.IP(t, "link", "set", name, "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), x.ns.FD()))
}

// hold keeps the namespace and nothing else of it; release ends it.
func (x third) hold(t *testing.T, how string) (release func()) {
	t.Helper()
	defer x.ns.Close()
	switch how {
	case "user namespace": // its process has it
		return func() {}
	case "process":
		_, end := sandbox.Hold(t, "", "nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), x.ns.FD()))
		return end
	case "file":
		fd, err := unix.Dup(x.ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		return func() { unix.Close(fd) }
	case "socket":
		var fd int
		if err := x.ns.Do(func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return func() { unix.Close(fd) }
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendmsg(p[0], []byte("x"), unix.UnixRights(x.ns.FD()), nil, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { unix.Close(p[0]); unix.Close(p[1]) }
}

// A pod moves its interface to a network namespace of its own, which something else holds than the pod's namespace:
// DEL finds it there.
func TestAdversaryThirdNamespaceReturn(t *testing.T) {
	for _, how := range []string{"process", "file", "socket", "user namespace"} {
		for name, steps := range map[string]string{
			"":         "",
			" renamed": "link set net1 down name other address 02:66:66:66:66:66",
			" upper":   "link add link net1 name kid type macvlan mode bridge",
		} {
			t.Run(how+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, everything...)
				n.must(t, n.call("ADD", conf()))
				x := newThird(t, how)
				x.take(t, n, "net1")
				inThird := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), x.ns.FD())
				sandbox.Run(t, "nsenter", inThird, "ip", "link", "set", "net1", "up")
				if steps != "" {
					sandbox.Run(t, "nsenter", append([]string{inThird, "ip"}, strings.Fields(steps)...)...)
				}
				defer x.hold(t, how)()
				n.must(t, n.call("DEL", conf()))
				n.same(t, "after DEL")
			})
		}
	}
}

// The pod's own namespace has ended meanwhile.
func TestAdversaryThirdNamespacePodGone(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	n.must(t, n.call("ADD", conf()))
	x := newThird(t, "")
	x.take(t, n, "net1")
	defer x.hold(t, "process")()
	sandbox.Run(t, "ip", "netns", "delete", n.pod.Name)
	defer sandbox.Run(t, "ip", "netns", "add", n.pod.Name) // for its cleanup
	c := n.call("DEL", conf())
	c.netns = ""
	n.must(t, c)
	n.same(t, "after DEL")
}

// A namespace that only a descriptor on its way holds can't be looked into. The interface is not deleted, as its peer
// lives: it keeps its addresses until it is found, and the pod ends with the third DEL.
func TestAdversaryInFlight(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	dir := t.TempDir()
	n.policy(t, allowIPAM(dir))
	of := confOf("1.1.0", `"device":"v0"`, fmt.Sprintf(`"ipam":{"type":"host-local","dataDir":%q,`+
		`"ranges":[[{"subnet":"10.9.0.0/24"}]]}`, dir))
	address := filepath.Join(dir, "rail", "10.9.0.2")
	n.must(t, n.call("ADD", of))
	x := newThird(t, "")
	x.take(t, n, "net1")
	release := x.hold(t, "in flight")
	for try := 1; try <= 4; try++ {
		a := n.run(t, n.call("DEL", of))
		if want := try >= 3; a.ok != want || !want && !strings.Contains(a.Msg, "no network namespace") {
			t.Errorf("DEL %d: %+v", try, a)
		}
	}
	list, err := journal.Store{Dir: n.state}.List()
	if err != nil || len(list) != 1 || !list[0].Missing {
		t.Errorf("entries: %+v, %v", list, err)
	}
	if _, err := os.Stat(address); err != nil {
		t.Errorf("its address was given back: %v", err)
	}
	second := n.call("ADD", of)
	second.id = "c2"
	if a := n.run(t, second); a.ok {
		t.Error("another pod was given the device")
	}
	again := n.call("ADD", of) // its container has another network namespace: what it had is to be returned first
	again.netns = sandbox.New(t).Path
	if a := n.run(t, again); a.ok || !strings.Contains(a.Msg, "no network namespace") {
		t.Errorf("ADD of the same container: %+v", a)
	}
	if list, err := (journal.Store{Dir: n.state}).List(); err != nil || len(list) != 1 || !list[0].Missing {
		t.Errorf("entries after that ADD: %+v, %v", list, err)
	}
	release() // that deletes the interface, and its peer with it
	sandbox.Until(t, "its peer has ended", func() bool { return !n.far.Has(t, "v1") })
	n.must(t, n.call("DEL", of))
	if _, err := os.Stat(address); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its address is held still: %v", err)
	}
	if files := n.files(t); len(files) > 0 {
		t.Errorf("left on file: %v", files)
	}
}
