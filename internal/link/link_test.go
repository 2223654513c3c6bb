package link_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

var longName = strings.Repeat("a-long-alternative-name", 5) // 115 of 127 bytes

// What we decode is what ip shows, however the netdev was set up.
func TestDecode(t *testing.T) {
	tests := map[string][]string{
		"as created":        nil,
		"up":                {"set v0 up"},
		"mtu":               {"set v0 mtu 9000"},
		"below IPv6":        {"set v0 mtu 1000"},
		"txqueue":           {"set v0 txqueuelen 0"},
		"group":             {"set v0 group 4242"},
		"largest group":     {"set v0 group 2147483647"},
		"alias":             {"set v0 alias rail0"},
		"altnames":          {"property add dev v0 altname enp59s0f0np0 altname " + longName},
		"promisc, allmulti": {"set v0 promisc on", "set v0 allmulticast on"},
		"no ARP":            {"set v0 arp off"},
		"addrgen none":      {"set v0 addrgenmode none"},
		"addrgen random":    {"set v0 addrgenmode random"},
		"hardware address":  {"set v0 address 02:00:00:00:00:07"},
	}
	for name, commands := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := sandbox.New(t)
			n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", sandbox.New(t).Name)
			for _, c := range commands {
				n.IP(t, append([]string{"link"}, strings.Fields(c)...)...)
			}
			got := byName(t, n.Link(t), "v0")
			want := known(show(t, n, "v0"))
			if want.MTU < 1280 {
				want.AddrGen = "eui64" // no IPv6 on it, so that nothing is said
			}
			if diff := cmp.Diff(want, ours(got)); diff != "" {
				t.Errorf("-ip +we:\n%s", diff)
			}
		})
	}
}

func TestMaster(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.IP(t, "link", "add", "br0", "type", "bridge")
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "set", "v0", "master", "br0")
	c := n.Link(t)
	if got, want := byName(t, c, "v0").Master, byName(t, c, "br0").Index; got != want {
		t.Errorf("master %d, want %d", got, want)
	}
	n.IP(t, "link", "add", "link", "v1", "name", "mv0", "type", "macvlan")
	if got, want := byName(t, c, "mv0").Parent, byName(t, c, "v1").Index; got != want {
		t.Errorf("parent %d, want %d", got, want)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "property", "add", "dev", "v0", "altname", "short", "altname", longName)
	c := n.Link(t)
	for _, name := range []string{"v0", "short", longName} {
		if got := byName(t, c, name); got.Name != "v0" {
			t.Errorf("%s is %s", name, got.Name)
		}
	}
	got, err := c.ByIndex(byName(t, c, "v1").Index)
	if err != nil || got.Name != "v1" {
		t.Errorf("by index: %v, %v", got, err)
	}
	for _, name := range []string{"v2", "gone", longName + "x", "v0 ", strings.Repeat("x", 127)} {
		if n, err := c.ByName(name); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, %v", name, n, err)
		}
	}
	if n, err := c.ByIndex(1 << 20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("by index: %v, %v", n, err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "add", "br0", "type", "bridge")
	c := n.Link(t)
	for kind, want := range map[string][]string{
		"":       {"lo", "v1", "v0", "br0"},
		"veth":   {"v1", "v0"},
		"bridge": {"br0"},
		"ipoib":  nil,
	} {
		list, err := c.List(kind)
		if err != nil {
			t.Fatalf("kind %q: %v", kind, err)
		}
		var got []string
		for _, n := range list {
			got = append(got, n.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kind %q: -want +got:\n%s", kind, diff)
		}
	}
}

// More netdevs than fit into one message of a dump.
func TestListMany(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	var batch strings.Builder
	for i := range 100 {
		fmt.Fprintf(&batch, "link add v%d type veth peer name w%d\n", i, i)
	}
	n.Batch(t, batch.String())
	list, err := n.Link(t).List("")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 201 {
		t.Errorf("%d netdevs, want 201", len(list))
	}
}

// The per-netdev sysctls, by position: netlink sends arrays, /proc has the names.
func TestConf(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	n.Sysctl(t, "net/ipv4/conf/v0/arp_ignore", "2")
	n.Sysctl(t, "net/ipv6/conf/v0/hop_limit", "77")
	got := byName(t, n.Link(t), "v0")
	if got.IPv4Conf[19-1] != 2 {
		t.Errorf("arp_ignore: %v", got.IPv4Conf)
	}
	if got.IPv6Conf[1] != 77 {
		t.Errorf("hop_limit: %v", got.IPv6Conf)
	}
}

// An interface without priorities has none, and one that is not there is missed.
func TestDCB(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	c := n.Link(t)
	if d, err := c.DCB("v0"); d != nil || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.DCB("d1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
