package link_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// shown is what `ip -d -j link` says of a netdev.
type shown struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	Flags     []string `json:"flags"`
	MTU       int      `json:"mtu"`
	TxQueue   int      `json:"txqlen"`
	Group     string   `json:"group"`
	Address   string   `json:"address"`
	Broadcast string   `json:"broadcast"`
	AltNames  []string `json:"altnames"`
	Alias     string   `json:"ifalias"`
	AddrGen   string   `json:"inet6_addr_gen_mode"`
	Parent    int      `json:"link_index"` // of a parent or peer in another namespace
	ParentIn  *int     `json:"link_netnsid"`
	Master    string   `json:"master"`
	Info      struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
}

func show(t *testing.T, n sandbox.Netns, name string) shown {
	t.Helper()
	var out []shown
	n.JSON(t, &out, "-d", "link", "show", "dev", name)
	if len(out) != 1 {
		t.Fatalf("ip shows %d netdevs for %s", len(out), name)
	}
	return out[0]
}

var flagNames = []struct {
	bit  uint32
	name string
}{
	{
		device.FlagUp,
		"UP",
	},
	{device.FlagLoopback, "LOOPBACK"},
	{device.FlagNoARP, "NOARP"},
	{device.FlagPromisc, "PROMISC"},
	{device.FlagAllMulti, "ALLMULTI"},
	{0x10000, "LOWER_UP"},
}

// ours is a decoded netdev in ip's words. Flags that device does not name are left out on both sides by the caller.
func ours(n *device.Netdev) shown {
	s := shown{
		Index: n.Index, Name: n.Name, MTU: n.MTU, TxQueue: n.TxQueue, Group: "default", Address: n.HWAddr.String(),
		Broadcast: n.Broadcast.String(), AltNames: n.AltNames, Alias: n.Alias, ParentIn: n.ParentIn,
		AddrGen: []string{"eui64", "none", "stable_secret", "random"}[n.AddrGenMode],
	}
	if n.ParentIn != nil {
		s.Parent = n.Parent
	}
	if n.Group != 0 {
		s.Group = strconv.FormatUint(uint64(n.Group), 10)
	}
	s.Info.Kind = n.Kind
	for _, f := range flagNames {
		if n.Flags&f.bit != 0 {
			s.Flags = append(s.Flags, f.name)
		}
	}
	slices.Sort(s.Flags)
	return s
}

// known keeps the flags that ours can report.
func known(s shown) shown {
	s.Flags = slices.DeleteFunc(s.Flags, func(f string) bool {
		for _, k := range flagNames {
			if k.name == f {
				return false
			}
		}
		return true
	})
	slices.Sort(s.Flags)
	if len(s.Flags) == 0 {
		s.Flags = nil
	}
	return s
}

func byName(t *testing.T, c *link.Conn, name string) *device.Netdev {
	t.Helper()
	n, err := c.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ptr[T any](v T) *T { return &v }
