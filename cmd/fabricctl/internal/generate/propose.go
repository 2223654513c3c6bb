package generate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Taken is what a cluster has addresses for already.
type Taken struct {
	*clusternet.Net

	Fabrics []v1alpha1.Fabric
}

// candidates are where a range is looked for, in this order: what is kept for benchmarks and routed nowhere (RFC 2544),
// what carriers have for themselves (RFC 6598), and what sites use inside (RFC 1918).
var candidates = []netip.Prefix{
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
}

// ErrNoRange tells that a range is wanted: none can be chosen without knowing what the cluster uses.
var ErrNoRange = errors.New("--range is missing: want one that nothing else in the cluster has addresses of, such as " +
	"198.18.0.0/16; generate fabric --cluster proposes one")

const (
	fewest = 64 // nodes that a proposed range has room for
	growth = 4  // times as many nodes as there are, where so much is free
)

// chooser chooses ranges that nothing has addresses of.
type chooser struct {
	*Options

	nodes []*node.Node
	uses  []clusternet.Use
}

func newChooser(nodes []*node.Node, o *Options) *chooser {
	c := &chooser{Options: o, nodes: nodes}
	if o.Taken != nil {
		c.uses = append(slices.Clone(o.Taken.Uses), fabrics.Uses(o.Taken.Fabrics)...)
	}
	return c
}

// choose gives a Fabric its addresses: the range of the options, those that it has in the cluster, or free ones.
func (c *chooser) choose(x *Object, part netip.Prefix) error {
	if part.IsValid() {
		x.Range = part
		if err := x.ranges(c.Options); err != nil || c.Taken == nil {
			return err
		}
		return c.compare(x)
	}
	if c.Taken == nil {
		return ErrNoRange
	}
	for i := range c.Taken.Fabrics {
		f := &c.Taken.Fabrics[i]
		if f.Name == x.Name && f.Spec.Addresses != nil {
			x.Keep = f.Spec.Addresses.DeepCopy()
			return nil
		}
	}
	return c.propose(x)
}

// compare refuses a range that would cut pods off, and warns of what else has its addresses.
func (c *chooser) compare(x *Object) error {
	met := fabrics.MeetsRange("range", x.Range, c.uses)
	met = slices.DeleteFunc(met, func(m fabrics.Meeting) bool { return m.Use.What == "Fabric "+x.Name })
	switch {
	case met.Sure():
		return &FlagError{"range", c.Range, met.Err().Error()}
	case len(met) > 0:
		x.Warn = append(x.Warn, met.Err().Error())
		if c.Warn != nil {
			c.Warn(x.Name + ": " + met.Err().Error())
		}
	default:
		c.note(x)
	}
	return nil
}

// note says why a range is free.
func (c *chooser) note(x *Object) string {
	why := fmt.Sprintf("%s is free: %s.", x.Range, c.Taken.Because())
	if c.Note != nil {
		c.Note("range of " + x.Name + ": " + why)
	}
	return why
}

// propose takes the first free range that has room for several times as many nodes as there are, or for fewer if so
// much is not free.
func (c *chooser) propose(x *Object) error {
	nodes := max(c.Nodes, x.nodes())
	bits := smallest[32]
	for bits > 8 && pool.Usable(netip.PrefixFrom(candidates[0].Addr(), bits)) < x.Need {
		bits--
	}
	for times := growth; times > 0; times /= 2 {
		length := bits
		for room := 1; room < max(nodes*times, fewest*times/growth); room *= 2 {
			length--
		}
		for _, in := range candidates {
			if length < in.Bits() {
				continue
			}
			p, err := c.first(in, length)
			if err != nil {
				return err
			}
			if !p.IsValid() {
				continue
			}
			x.Range = p
			c.uses = append(c.uses, clusternet.Use{Prefix: p, What: "Fabric " + x.Name})
			x.Why = c.note(x)
			return x.ranges(c.Options)
		}
	}
	return fmt.Errorf("fabric %s: no range is free that has room for %d nodes with %d addresses each: give --range",
		x.Name, nodes, x.Need)
}

// first is the first range of a length in which neither the cluster nor an interface of a node has addresses; it is
// invalid if all are taken.
func (c *chooser) first(in netip.Prefix, length int) (netip.Prefix, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(in)
	for i := range c.uses {
		b.RemovePrefix(c.uses[i].Prefix)
	}
	for _, n := range c.nodes {
		for i := range n.Netdevs {
			for _, a := range n.Netdevs[i].Addrs {
				b.RemovePrefix(a.Masked())
			}
		}
	}
	free, err := b.IPSet()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, p := range free.Prefixes() {
		if p.Bits() <= length {
			return netip.PrefixFrom(p.Addr(), length), nil
		}
	}
	return netip.Prefix{}, nil
}

// wrapped breaks a text into lines for a comment.
func wrapped(text string) string {
	const most = 100
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+len(word) >= most {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}
