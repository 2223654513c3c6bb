package link_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// One message moves, names and brings up (kernel fact 3 in docs/kernel.md). What the move itself keeps and drops is
// what plan builds on.
func TestMove(t *testing.T) {
	t.Parallel()
	host, pod, peer := sandbox.New(t), sandbox.New(t), sandbox.New(t)
	host.Veth(t, "v0", peer, "v1")
	for _, cmd := range [][]string{
		{"link", "set", "v0", "mtu", "4092", "alias", "rail", "group", "6"},
		{"link", "property", "add", "dev", "v0", "altname", longName},
		{"addr", "add", "10.1.0.1/24", "dev", "v0"}, {"addr", "add", "2001:db8::1/64", "dev", "v0"},
		{"route", "add", "10.2.0.0/16", "via", "10.1.0.9", "dev", "v0"},
	} {
		host.IP(t, cmd...)
	}
	h, p := host.Link(t), pod.Link(t)
	was := byName(t, h, "v0")
	err := h.Set(
		was.Index,
		link.Change{Move: true, NetNS: pod.Open(t).FD(), Name: "net1", Flags: device.FlagUp, Mask: device.FlagUp},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.ByName("v0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on the host still: %v", err)
	}
	now := byName(t, p, "net1")
	if !now.Up() || now.MTU != 4092 || now.Alias != "rail" || !slices.Equal(now.AltNames, []string{longName}) ||
		!slices.Equal(now.HWAddr, was.HWAddr) {
		t.Errorf("in the pod: %+v", now)
	}
	addrs, err := p.Addrs(now.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			t.Errorf("came along: %s", a.Prefix)
		}
	}
	routes, err := p.Routes(now.Index)
	routes = slices.DeleteFunc(
		routes,
		func(r device.Route) bool { return r.Protocol == unix.RTPROT_KERNEL },
	) // of its link-local address
	if err != nil || len(routes) != 0 {
		t.Errorf("routes came along: %v, %v", routes, err)
	}
}

func TestMoveRefused(t *testing.T) {
	tests := map[string]struct {
		setup  [][]string // in the target
		own    [][]string // at home
		change link.Change
		moved  bool // although it was refused
	}{
		"target name taken": {
			[][]string{{"link", "add", "net1", "type", "bridge"}},
			nil,
			link.Change{Name: "net1"},
			true, // moved first, renamed then
		},
		"both names taken": {
			[][]string{
				{"link", "add", "net1", "type", "bridge"},
				{"link", "add", "v0", "type", "bridge"},
			},
			nil,
			link.Change{Name: "net1"},
			false,
		},
		"target name taken as an altname": {
			[][]string{
				{"link", "add", "x", "type", "bridge"},
				{"link", "property", "add", "dev", "x", "altname", "net1"},
			},
			nil,
			link.Change{Name: "net1"},
			true,
		},
		"own altname taken": {
			[][]string{{"link", "add", "eth0", "type", "bridge"}},
			[][]string{{"link", "property", "add", "dev", "v0", "altname", "eth0"}},
			link.Change{Name: "net1"},
			false,
		},
		"target name is its own altname": {
			nil,
			[][]string{{"link", "property", "add", "dev", "v0", "altname", "net1"}},
			link.Change{Name: "net1"},
			true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, pod, peer := sandbox.New(t), sandbox.New(t), sandbox.New(t)
			host.Veth(t, "v0", peer, "v1")
			for _, c := range tt.setup {
				pod.IP(t, c...)
			}
			for _, c := range tt.own {
				host.IP(t, c...)
			}
			h := host.Link(t)
			tt.change.Move, tt.change.NetNS = true, pod.Open(t).FD()
			if err := h.Set(byName(t, h, "v0").Index, tt.change); !errors.Is(err, unix.EEXIST) {
				t.Fatalf("got %v, want EEXIST", err)
			}
			_, err := h.ByName("v0")
			if moved := errors.Is(err, fs.ErrNotExist); moved != tt.moved {
				t.Errorf("moved: %v, want %v", moved, tt.moved)
			}
		})
	}
	t.Run("name taken on the host only", func(t *testing.T) {
		t.Parallel()
		host, pod, peer := sandbox.New(t), sandbox.New(t), sandbox.New(t)
		host.Veth(t, "v0", peer, "v1")
		host.IP(t, "link", "add", "net1", "type", "bridge")
		pod.IP(t, "link", "add", "v0", "type", "bridge") // the old name may be taken where it goes
		h := host.Link(t)
		if err := h.Set(
			byName(t, h, "v0").Index,
			link.Change{Move: true, NetNS: pod.Open(t).FD(), Name: "net1"},
		); err != nil {
			t.Error(err)
		}
		if got := byName(t, pod.Link(t), "net1").Kind; got != "veth" {
			t.Errorf("net1 in the pod is a %s", got)
		}
	})
}

// A parent in another namespace may have the very number of its child: that is a parent all the same.
func TestParentOfTheSameNumber(t *testing.T) {
	t.Parallel()
	host, pod := sandbox.New(t), sandbox.New(t)
	host.IP(t, "link", "add", "v0", "index", "50", "type", "veth", "peer", "name", "v1")
	host.IP(t, "link", "add", "link", "v0", "name", "mv0", "index", "60", "netns", pod.Name, "type", "macvlan")
	host.IP(t, "link", "add", "link", "v0", "name", "mv1", "index", "50", "netns", pod.Name, "type", "macvlan")
	for _, name := range []string{"mv0", "mv1"} {
		n := byName(t, pod.Link(t), name)
		if n.Parent != 50 || n.ParentIn == nil {
			t.Errorf("%s: parent %d in %v, want 50 in another namespace", name, n.Parent, n.ParentIn)
		}
		if diff := cmp.Diff(known(show(t, pod, name)), ours(n)); diff != "" {
			t.Errorf("%s: -ip +we:\n%s", name, diff)
		}
	}
}
