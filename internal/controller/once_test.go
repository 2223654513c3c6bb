package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// machine is a node with its pods and its agent, as the rules of the agent are: it gives addresses of the ranges that
// its agent has told it of, by the fabric's name, and says what it has given after that.
type machine struct {
	absent bool                           // the cluster does not have it yet
	live   map[string]map[netip.Addr]bool // by fabric
	limits map[string][]netip.Prefix      // what the plugin may give
	spec   *v1alpha1.FabricNodeSpec       // its FabricNode, or nil
	uid    int
	gen    int64
	works  int64 // the generation that the agent has reported
	heard  bool
	held   map[string][]netip.Prefix
}

// look is a round of the agent.
func (m *machine) look() {
	m.limits = map[string][]netip.Prefix{}
	if m.spec == nil {
		m.spec, m.uid, m.gen = &v1alpha1.FabricNodeSpec{}, m.uid+1, 1
	}
	for _, r := range m.spec.Ranges {
		m.limits[r.Fabric] = append(m.limits[r.Fabric], netip.MustParsePrefix(r.Range))
	}
	m.works, m.heard, m.held = m.gen, true, map[string][]netip.Prefix{}
	for f, live := range m.live {
		for a := range live {
			m.held[f] = append(m.held[f], netip.PrefixFrom(a, a.BitLen()))
		}
	}
}

// start is an ADD: the first address that is free in the node's own directory of the fabric.
func (m *machine) start(f string) {
	if m.live[f] == nil {
		m.live[f] = map[netip.Addr]bool{}
	}
	for _, p := range m.limits[f] {
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if !m.live[f][a] {
				m.live[f][a] = true
				return
			}
		}
	}
}

// stop is the DEL of any pod.
func (m *machine) stop(r *rand.Rand) {
	for _, f := range slices.Sorted(maps.Keys(m.live)) {
		if all := slices.SortedFunc(maps.Keys(m.live[f]), netip.Addr.Compare); len(all) > 0 {
			delete(m.live[f], all[r.IntN(len(all))])
			return
		}
	}
}

// cluster is all that there is.
type cluster struct {
	t        *testing.T
	rand     *rand.Rand
	machines []*machine
	fabric   *fabrics.Fabric // nil: none
	log      []string

	late    []write // of leaders that were stopped before they sent them
	leading bool    // the leader has begun its term
	calm    bool    // no leader is stopped any more, and no write of one that was is under way
}

// write is one of a leader, which the API server takes as long as the FabricNode is the one that the leader knows.
type write struct {
	change
	*machine

	uid int
	gen int64
}

// take is the API server.
func (w *write) take() (taken bool) {
	if w.spec == nil || w.machine.uid != w.uid || w.machine.gen != w.gen {
		return false
	}
	w.spec = &v1alpha1.FabricNodeSpec{Ranges: w.ranges, Former: w.former}
	w.machine.gen++
	return true
}

// begin is what a leader does first: it shuts out earlier ones.
func (c *cluster) begin() {
	a, _ := c.decide(false)
	for _, node := range a.open() {
		c.machine(node).gen++
	}
	c.leading = true
}

func (c *cluster) machine(node string) *machine {
	c.t.Helper()
	var i int
	if _, err := fmt.Sscanf(node, "n%d", &i); err != nil {
		c.t.Fatal(err)
	}
	return c.machines[i]
}

// round is one of the controller: it works with what the API server has.
func (c *cluster) round() {
	if !c.leading {
		c.begin()
	}
	_, writes := c.decide(true)
	c.rand.Shuffle(len(writes), func(i, k int) { writes[i], writes[k] = writes[k], writes[i] })
	if len(writes) > 0 && !c.calm && c.rand.IntN(4) == 0 { // it is stopped, and another one follows
		k := c.rand.IntN(len(writes))
		c.say("a leader stops before %d writes", len(writes)-k)
		c.late, c.leading = append(c.late, writes[k:]...), false
		writes = writes[:k]
	}
	for i := range writes {
		if c.rand.IntN(2) == 0 {
			c.arrive()
		}
		writes[i].take()
	}
}

// arrive is a late write.
func (c *cluster) arrive() {
	if k := len(c.late); k > 0 {
		k = c.rand.IntN(k)
		c.say("a late write to %s: %t", c.late[k].node, c.late[k].take())
		c.late = slices.Delete(c.late, k, k+1)
	}
}

// decide is a round without its writes.
func (c *cluster) decide(fresh bool) (a *allocation, writes []write) {
	c.t.Helper()
	var list []fabrics.Fabric
	if c.fabric != nil {
		list = append(list, *c.fabric)
	}
	var holdings []holding
	silent := false
	for i, m := range c.machines {
		silent = silent || !m.absent && (m.spec == nil || !m.heard)
		if m.spec == nil {
			continue
		}
		h := holding{node: fmt.Sprint("n", i), ranges: m.spec.Ranges, former: m.spec.Former}
		if m.heard {
			h.held = m.held
		}
		h.released = func(r v1alpha1.AssignedRange) bool {
			p := netip.MustParsePrefix(r.Range)
			for _, held := range h.held {
				if slices.ContainsFunc(held, p.Overlaps) {
					return false
				}
			}
			return m.heard && m.works == m.gen
		}
		if c.fabric != nil && m.heard {
			h.wants = []string{c.fabric.Name}
		}
		holdings = append(holdings, h)
	}
	a, err := allocate(list, nil, holdings, time.Now(), fresh && !silent)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, ch := range slices.Concat(a.takes, a.gives) {
		m := c.machine(ch.node)
		writes = append(writes, write{ch, m, m.uid, m.gen})
	}
	return a, writes
}

// check counts every address.
func (c *cluster) check() {
	c.t.Helper()
	whose := map[netip.Addr]string{}
	for i, m := range c.machines {
		for f, live := range m.live {
			for a := range live {
				me := fmt.Sprintf("n%d as %s", i, f)
				if other := whose[a]; other != "" {
					c.t.Fatalf("%s is that of %s and of %s, after\n%q", a, other, me, c.log)
				}
				whose[a] = me
			}
		}
	}
}

func (c *cluster) say(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

// change makes the Fabric another one: other parts, exclusions, static ranges, another name, or none. No controller
// judges it first: what the controller refuses is not what keeps addresses apart.
func (c *cluster) change() {
	r := c.rand
	if r.IntN(5) == 0 {
		c.fabric = nil
		c.say("no fabric")
		return
	}
	name := []string{"a", "a", "a", "b"}[r.IntN(4)]
	bits := 26 + r.IntN(4) // of the widest there are as many as nodes
	text := fmt.Sprintf("range: 10.0.0.0/24, perNodePrefixLength: %d", bits)
	if r.IntN(3) == 0 {
		text += fmt.Sprintf(", exclude: [10.0.0.%d/28]", r.IntN(16)*16)
	}
	text = "ranges: [{" + text + "}]"
	if r.IntN(3) == 0 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(256))}), bits).Masked()
		text += fmt.Sprintf(", static: [{node: n%d, range: %s}]", r.IntN(len(c.machines)), block)
	}
	c.fabric = fabricOf(c.t, name, text)
	c.say("%s %s", name, text)
}

// fabricOf is a fabric with nodeRanges.
func fabricOf(t *testing.T, name, text string) *fabrics.Fabric {
	t.Helper()
	o := &v1alpha1.Fabric{}
	if err := yaml.Unmarshal([]byte(testfabrics.Object(name, "{addresses: {nodeRanges: {"+text+"}}}")), o); err != nil {
		t.Fatal(err)
	}
	f, err := fabrics.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (c *cluster) step() {
	i := c.rand.IntN(len(c.machines))
	m := c.machines[i]
	switch n := c.rand.IntN(100); {
	case m.absent:
		if m.absent = n < 95; !m.absent {
			c.say("n%d comes", i)
		}
	case n < 30:
		if c.fabric != nil {
			m.start(c.fabric.Name)
		}
	case n < 40:
		m.start([]string{"a", "b"}[c.rand.IntN(2)]) // it has read an older file
	case n < 60:
		m.stop(c.rand)
	case n < 80:
		m.look()
		c.say("n%d looks", i)
	case n < 92:
		c.round()
		c.say("round")
	case n < 94:
		c.arrive()
	case n < 98:
		c.change()
	case n < 99:
		m.spec, m.heard, m.held = nil, false, nil // a user deletes its FabricNode
		c.say("n%d lost", i)
	default:
		for _, m := range c.machines { // kubectl delete -k base, with the definitions
			m.spec, m.heard, m.held = nil, false, nil
		}
		c.say("all lost")
	}
}

// rest has all pods end: then each node has a range, and nothing is kept from anybody.
func (c *cluster) rest() {
	c.t.Helper()
	c.fabric = fabricOf(c.t, "a", "ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 28}]")
	c.late, c.calm = nil, true
	for range 4 {
		for _, m := range c.machines {
			m.absent = false
			clear(m.live)
			m.look()
		}
		c.round()
	}
	for i, m := range c.machines {
		if len(m.spec.Ranges) != 1 || len(m.spec.Former) != 0 {
			c.t.Errorf("n%d has %v and had %v, after\n%q", i, m.spec.Ranges, m.spec.Former, c.log)
		}
	}
}

// Whatever happens to Fabrics, FabricNodes, pods and controllers, and in whichever order agents and controllers look:
// no address is given to two pods.
func TestAddressesOnceAlways(t *testing.T) {
	given := 0
	for seed := range uint64(300) {
		c := &cluster{t: t, rand: rand.New(rand.NewPCG(seed, 1))}
		for i := range 4 {
			m := &machine{live: map[string]map[netip.Addr]bool{}, absent: i != 3 && c.rand.IntN(2) == 0}
			c.machines = append(c.machines, m)
		}
		c.change()
		for range 600 {
			c.step()
			c.check()
		}
		for _, m := range c.machines {
			for _, live := range m.live {
				given += len(live)
			}
		}
		c.rest()
	}
	if given < 300 {
		t.Errorf("%d addresses are given in the end: too few to say anything", given)
	}
}
