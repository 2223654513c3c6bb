//go:build labguest

package guest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// gate is an IPAM plugin whose ADD waits until the test opens it.
type gate struct{ dir, path string }

func newGate(t *testing.T, typ string) *gate {
	t.Helper()
	g := &gate{dir: t.TempDir()}
	if err := unix.Mkfifo(g.dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	g.path = plugins(t, map[string]string{typ: `[ $CNI_COMMAND = ADD ] || { rm -f ` + g.dir + `/address; exit 0; }
read -r x <` + g.dir + `/fifo
: >` + g.dir + `/address
echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24"}]}'`})
	return g
}

// open waits until the plugin waits.
func (g *gate) open(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(g.dir+"/fifo", []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
}

func (g *gate) given() bool {
	_, err := os.Stat(g.dir + "/address")
	return err == nil
}

// start runs a call beside the test.
func start(t *testing.T, c Call) <-chan Outcome {
	t.Helper()
	out := make(chan Outcome, 1)
	go func() {
		o, err := c.run(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		out <- o
	}()
	return out
}

// claimed lists the claims of an attachment.
func (a *attachment) claimed(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"owner", "children/*"} {
		links, err := filepath.Glob("/run/fabric-cni/claims/*/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && filepath.Base(to) == filepath.Base(a.entryFile()) {
				out = append(out, l)
			}
		}
	}
	return out
}

// lateAdd has an ADD hang in its IPAM plugin. Its DEL returns the device at once, the next pod takes it, and the ADD,
// when it goes on, leaves it alone and gives its address back.
func lateAdd(t *testing.T, typ string, dev config) {
	t.Helper()
	before := Unchanged(t)
	g := newGate(t, typ)
	with := func(ipam config) config {
		c := network(maps.Clone(dev))
		c["ipam"] = ipam
		return c
	}
	late := interfaceOf(NewPod(t, "late"), "net1", with(config{"type": typ}))
	late.path = g.path
	add := start(t, late.call("ADD"))
	Until(t, "the interface is in the pod", func() error {
		_, err := late.pod.Command("ip", "link", "show", "net1")
		return err
	})
	del := start(t, late.call("DEL"))
	Until(t, "the device is nobody's", func() error {
		if c := late.claimed(t); len(c) > 0 {
			return fmt.Errorf("claimed: %v", c)
		}
		return nil
	})
	next := interfaceOf(NewPod(t, "next"), "net1", with(static("10.0.0.1/24")))
	next.add(t)
	const show = "ip -d link; ip -4 address; ip -4 route show table all; rdma -d dev"
	has := next.pod.sh(t, show)
	g.open(t)
	wantError(t, <-add, 3, "while ADD waited")
	if out := <-del; out.Failed() && !strings.Contains(out.String(), "another call holds the IPAM plugin") {
		t.Errorf("DEL: %s", out)
	}
	late.del(t)
	if now := next.pod.sh(t, show); now != has {
		t.Errorf("the next pod has\n%s\nand had\n%s", now, has)
	}
	if g.given() {
		t.Error("the address is still given")
	}
	next.del(t)
	Same(t, before)
}

// "gate" runs before the interface is in the pod, "dhcp" after it.
func TestVFRaceLateAdd(t *testing.T) {
	for _, typ := range []string{"gate", "dhcp"} {
		t.Run(typ, func(t *testing.T) {
			vfs := VFHost(t, 2, Fabric{})
			lateAdd(t, typ, vfConf(vfs[0], guidA, nil))
		})
	}
}

func TestPluginRaceLateAdd(t *testing.T) {
	for name, dev := range map[string]config{
		"port": {"device": "ibs108"}, "child": {"mode": "ipoib", "master": "ibs112"},
	} {
		for _, typ := range []string{"gate", "dhcp"} {
			t.Run(name+" "+typ, func(t *testing.T) {
				S1(t)
				lateAdd(t, typ, dev)
			})
		}
	}
}

// Two ADDs at once ask for one GUID, on VFs of one PF: one of them gets it.
func TestVFRaceGUID(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	Unchanged(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for range 6 {
		var list []*attachment
		var done []<-chan Outcome
		for i, pod := range pods {
			a := interfaceOf(pod, "net1", vfConf(vfs[i], guidA, nil))
			list, done = append(list, a), append(done, start(t, a.call("ADD")))
		}
		var got int
		for i := range done {
			out := <-done[i]
			if !out.Failed() {
				got++
				hasGUID(t, pods[i], "net1", guidA)
			} else {
				wantError(t, out, 101, "guid", pods[1-i].Name)
			}
		}
		if got != 1 {
			t.Errorf("%d of 2 pods have the GUID", got)
		}
		for _, a := range list {
			a.del(t)
		}
	}
}
