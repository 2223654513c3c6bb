package link_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// What we set, ip shows, and nothing else changes.
func TestSet(t *testing.T) {
	tests := map[string]struct {
		change link.Change
		edit   func(*shown)
	}{
		"nothing":  {link.Change{}, func(*shown) {}},
		"name":     {link.Change{Name: "a23456789012345"}, func(s *shown) { s.Name = "a23456789012345" }},
		"alias":    {link.Change{Alias: ptr("rail 0")}, func(s *shown) { s.Alias = "rail 0" }},
		"no alias": {link.Change{Alias: ptr("")}, func(s *shown) { s.Alias = "" }},
		"mtu":      {link.Change{MTU: 4092}, func(s *shown) { s.MTU = 4092 }},
		"txqueue":  {link.Change{TxQueue: ptr(0)}, func(s *shown) { s.TxQueue = 0 }},
		"group":    {link.Change{Group: ptr(uint32(7))}, func(s *shown) { s.Group = "7" }},
		"no group": {link.Change{Group: ptr(uint32(0))}, func(s *shown) { s.Group = "default" }},
		"addrgen":  {link.Change{AddrGen: ptr(uint8(1))}, func(s *shown) { s.AddrGen = "none" }},
		"down":     {link.Change{Mask: device.FlagUp}, func(s *shown) { s.Flags = nil }},
		"promisc": {
			link.Change{Flags: device.FlagPromisc, Mask: device.FlagPromisc},
			func(s *shown) { s.Flags = append(s.Flags, "PROMISC") },
		},
		"no ARP": {
			link.Change{Flags: device.FlagNoARP, Mask: device.FlagNoARP},
			func(s *shown) { s.Flags = append(s.Flags, "NOARP") },
		},
		"allmulti": {
			link.Change{Flags: device.FlagAllMulti, Mask: device.FlagAllMulti},
			func(s *shown) { s.Flags = append(s.Flags, "ALLMULTI") },
		},
		"unmasked":  {link.Change{Flags: device.FlagNoARP}, func(*shown) {}},
		"ipv4 conf": {link.Change{IPv4Conf: map[int]uint32{19: 1, 8: 2}}, func(*shown) {}},
		"several": {
			link.Change{
				MTU:      2044,
				TxQueue:  ptr(256),
				Group:    ptr(uint32(9)),
				Alias:    ptr("x"),
				AddrGen:  ptr(uint8(3)),
				IPv4Conf: map[int]uint32{18: 2},
			},
			func(s *shown) { s.MTU, s.TxQueue, s.Group, s.Alias, s.AddrGen = 2044, 256, "9", "x", "random" },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, peer := sandbox.New(t), sandbox.New(t)
			n.Veth(t, "v0", peer, "v1")
			for _, c := range []string{"alias was", "group 5"} {
				n.IP(t, append([]string{"link", "set", "v0"}, strings.Fields(c)...)...)
			}
			c := n.Link(t)
			before, want := byName(t, c, "v0"), known(show(t, n, "v0"))
			tt.edit(&want)
			slices.Sort(want.Flags)
			if err := c.Set(before.Index, tt.change); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, known(show(t, n, want.Name))); diff != "" {
				t.Errorf("-want +ip:\n%s", diff)
			}
			wantConf := slices.Clone(before.IPv4Conf)
			for k, v := range tt.change.IPv4Conf {
				wantConf[k-1] = v
			}
			if diff := cmp.Diff(wantConf, byName(t, c, want.Name).IPv4Conf); diff != "" {
				t.Errorf("IPv4 conf: -want +got:\n%s", diff)
			}
		})
	}
}

func TestSetRefused(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	n.IP(t, "link", "property", "add", "dev", "v1", "altname", "other")
	n.IP(t, "link", "property", "add", "dev", "v0", "altname", "own")
	c := n.Link(t)
	v0 := byName(t, c, "v0").Index
	tests := map[string]struct {
		index  int
		change link.Change
		want   error
	}{
		"no such index":                 {1 << 20, link.Change{MTU: 1500}, fs.ErrNotExist},
		"name taken":                    {v0, link.Change{Name: "v1"}, unix.EEXIST},
		"name taken as an altname":      {v0, link.Change{Name: "other"}, unix.EEXIST},
		"name taken by its own altname": {v0, link.Change{Name: "own"}, unix.EEXIST},
		"mtu too large":                 {v0, link.Change{MTU: 1 << 20}, unix.EINVAL},
		"unknown IPv4 conf":             {v0, link.Change{IPv4Conf: map[int]uint32{4000: 1}}, unix.EINVAL},
		"unknown addrgen":               {v0, link.Change{AddrGen: ptr(uint8(9))}, unix.EINVAL},
	}
	for name, tt := range tests {
		if err := c.Set(tt.index, tt.change); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestAltNames(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	n.IP(t, "link", "property", "add", "dev", "v1", "altname", "taken")
	c := n.Link(t)
	v0 := byName(t, c, "v0").Index
	want := func(names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, show(t, n, "v0").AltNames); diff != "" {
			t.Errorf("-want +ip:\n%s", diff)
		}
		if diff := cmp.Diff(names, byName(t, c, "v0").AltNames); diff != "" {
			t.Errorf("-want +we:\n%s", diff)
		}
	}
	add := func(wantErr error, names ...string) {
		t.Helper()
		if err := c.AddAltNames(v0, names); !errors.Is(err, wantErr) {
			t.Errorf("add %v: %v, want %v", names, err, wantErr)
		}
	}
	add(nil, "one", "two", longName)
	want("one", "two", longName)
	add(unix.EEXIST, "taken")
	add(unix.EEXIST, "v1")
	add(unix.EEXIST, "v0") // its own name
	add(unix.EEXIST, "one")
	want("one", "two", longName)
	if err := c.DelAltNames(v0, []string{"one", longName}); err != nil {
		t.Error(err)
	}
	want("two")
	if err := c.DelAltNames(v0, []string{"one"}); err == nil {
		t.Error("removed an altname that is not there")
	}
	if err := c.AddAltNames(1<<20, []string{"x"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such netdev: %v", err)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	c := n.Link(t)
	v0 := byName(t, c, "v0").Index
	if err := c.Delete(v0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ByName("v0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if err := c.Delete(v0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second time: %v", err)
	}
}

// A kernel without RDMA refuses in words, and leaves nothing behind.
func TestNewChildRefused(t *testing.T) {
	t.Parallel()
	n, pod := sandbox.New(t), sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	c := n.Link(t)
	before := n.State(t)
	err := c.NewChild(link.Child{Parent: byName(t, c, "v0").Index, NetNS: pod.Open(t).FD(), Name: "net1", PKey: 0x8001})
	if err == nil {
		t.Fatal("made an IPoIB child of a veth")
	}
	if diff := cmp.Diff(before, n.State(t)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if _, err := pod.Link(t).ByName("net1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in the pod: %v", err)
	}
}

// All go together, one of them on another, and what is in another group or in none stays. One that has no way to be
// deleted, as a loopback device, keeps all.
func TestDeleteAll(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	before := n.State(t)
	c := n.Link(t)
	for _, s := range []string{
		"link add link v0 up1 type macvlan", "link add link v0 up2 type macvlan",
		"link add link up2 up3 type macvlan",
	} {
		n.IP(t, strings.Fields(s)...)
	}
	index := func(name string) int { return byName(t, c, name).Index }
	all := []int{index("up1"), index("up2"), index("up3"), 1 << 20}
	if err := c.DeleteAll(append(all, index("lo"))); err == nil || !n.Has(t, "up1") {
		t.Errorf("with lo: %v", err)
	}
	n.IP(t, "link", "set", "lo", "group", "0")
	if err := c.DeleteAll(all); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, n.State(t)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}
