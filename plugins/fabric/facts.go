package fabric

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// gatherer reads what attach.Decide needs to know. It changes nothing, and decides nothing: ADD, STATUS and plan gather
// the same facts. The pod is nil for STATUS.
type gatherer struct {
	*call
	chosen *choice
	facts  *attach.Facts
	dev    *inventory.Device
}

// gather begins with what is known before the device is looked for.
func (c *call) gather(ch *choice) (*gatherer, error) {
	g := &gatherer{call: c, chosen: ch, facts: &attach.Facts{
		Config: c.cfg, ContainerID: c.key.ContainerID, IfName: c.key.IfName, ChildGroup: childGroup(c.key),
		Pod: c.pod != nil, Unselected: ch.refused != nil || c.unselected(), Claims: ch.refused,
	}}
	f := g.facts
	f.Policy, f.PolicyErr = c.policy()
	var err error
	if f.NetnsMode, f.RDMA, err = g.netnsMode(); err != nil {
		return nil, err
	}
	if c.pod == nil {
		return g, nil
	}
	if err := g.earlier(); err != nil {
		return nil, err
	}
	n, err := c.pod.Link.ByName(c.key.IfName)
	switch {
	case err == nil:
		f.NameTaken = n.Name
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return g, nil
}

// unselected says that the configuration names no device: it is derived from the prevResult, or a ResourceClaim gives
// it to the pod.
func (c *call) unselected() bool {
	return c.cfg.Selector.Kind == netconf.ByNothing &&
		(c.cfg.Mode != netconf.ModeIPoIB || c.cfg.FromClaim && c.cfg.Master == "")
}

// earlier looks for an attachment of the same container and interface. It counts as alive only if it is complete, and
// in this very pod: one that was killed, or whose pod is gone, is dead.
func (g *gatherer) earlier() error {
	e, err := g.store.Load(g.key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, journal.ErrCorrupt):
		g.facts.Earlier = &attach.Owner{
			ContainerID: g.key.ContainerID, IfName: g.key.IfName, Who: g.key.Who(), Self: true, Unreadable: err,
		}
		return nil
	case err != nil:
		return err
	}
	o := ownerOf(e)
	o.Self = true
	o.Alive = e.Attached && e.Netns == g.pod.NS.ID && g.alive(e)
	g.facts.Earlier = o
	return g.before(e)
}

// ownerOf is an attachment as attach knows it, Alive apart.
func ownerOf(e *journal.Entry) *attach.Owner {
	return &attach.Owner{
		ContainerID: e.ContainerID, IfName: e.IfName, Who: e.Who(), Network: e.Network, NetnsPath: e.NetnsPath,
		Claim: e.Claim,
	}
}

// find looks for the device that the configuration selects.
func (g *gatherer) find() error {
	f := g.facts
	g.dev, f.Device, f.Missing, f.Ambiguous, f.Holder, f.Soft = nil, nil, nil, false, nil, nil
	f.Chained, f.Parents, f.Promises = attach.Chain{}, nil, nil
	var err error
	switch {
	case f.Claims != nil:
	case g.cfg.Mode == netconf.ModeIPoIB && !f.Unselected:
		err = g.findMaster()
	case g.cfg.Mode == netconf.ModeRDMA && g.pod != nil:
		err = g.findChained()
	case !f.Unselected:
		g.dev, err = g.host.Find(g.cfg.Selector)
	}
	var soft *inventory.SoftError
	switch {
	case errors.Is(err, inventory.ErrAmbiguous):
		f.Missing, f.Ambiguous = err, true
		return nil
	case errors.As(err, &soft):
		f.Missing = err
		g.softSelected(soft)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		f.Missing = err
		return g.findHolder()
	case err != nil || g.dev == nil:
		return err
	}
	f.Device = &attach.Device{
		Claim: g.dev.Claim(), Address: g.dev.Address, PCI: g.dev.PCI, Driver: g.host.Driver(g.dev.Address),
		Netdev: g.dev.Netdev, Side: f.Chained.Side, HCA: g.dev.HCA,
	}
	return nil
}

// findMaster finds the parent of the IPoIB child to be.
func (g *gatherer) findMaster() error {
	_, err := os.Stat("/sys/module/ib_ipoib")
	g.facts.IPoIBLoaded = err == nil
	n, err := g.host.Link.ByName(g.cfg.Master)
	if err != nil {
		return err
	}
	if g.dev, err = g.host.Of(n); err != nil || n.IsIPoIB() && n.Parent == 0 {
		return err
	}
	list, err := g.host.Link.List("ipoib")
	for _, p := range list {
		if p.Parent == 0 {
			g.facts.Parents = append(g.facts.Parents, p.Name)
		}
	}
	return err
}

// findHolder looks through the journal for the attachment that has the selected device. This is not the usual path:
// every entry is read.
func (g *gatherer) findHolder() error {
	entries, err := g.store.List()
	if len(entries) == 0 && err != nil && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Claim == "" || e.Kind == journal.KindIPoIB || !selects(g.cfg.Selector, g.cfg.Master, e) {
			continue
		}
		owner, ok, err := g.store.Owner(e.Claim)
		if err != nil {
			return err
		}
		if ok && owner == e.Key {
			g.facts.Holder = g.owner(e)
			return nil
		}
	}
	return nil
}

// owner is an attachment as it is now.
func (g *gatherer) owner(e *journal.Entry) *attach.Owner {
	o := ownerOf(e)
	o.Alive, o.Self = g.alive(e), e.Key == g.key
	return o
}

// ownerByKey is the attachment that a claim names; nil if the journal has no such entry: nothing is left of it.
func (g *gatherer) ownerByKey(k journal.Key, claim string) *attach.Owner {
	e, err := g.store.Load(k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &attach.Owner{
			ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), Claim: claim, Self: k == g.key, Unreadable: err,
		}
	}
	return g.owner(e)
}

// inspect reads what there is to know about the device that was found.
func (g *gatherer) inspect() error {
	if g.dev == nil {
		return nil
	}
	k, ok, err := g.store.Owner(g.dev.Claim())
	if err != nil {
		return err
	}
	if ok {
		g.facts.Owner = g.ownerByKey(k, g.dev.Claim())
	}
	if err := g.ports(); err != nil {
		return err
	}
	if g.cfg.Mode == netconf.ModeIPoIB {
		return errors.Join(g.partitions(), g.duplicates(), g.promised())
	}
	for _, read := range []func() error{
		g.snapshot, g.virtualFunction, g.promised, g.children, g.others, g.rdmaNames, g.uplink, g.soft, g.users,
		g.strays, g.elsewhere,
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// ports reads the ports' states, and what a pod can change of them.
func (g *gatherer) ports() error {
	if g.dev.HCA == nil {
		return nil
	}
	g.host.RDMA.AutoCounters(g.dev.HCA)
	if !attach.NeedsPorts(g.cfg) {
		return nil
	}
	return g.host.RDMA.Ports(g.dev.HCA)
}

// snapshot completes the netdev: its addresses and routes, which the policy looks at and a move loses.
func (g *gatherer) snapshot() error {
	n := g.dev.Netdev
	switch {
	case n == nil:
		return nil
	case g.facts.Chained.Side == plan.Host:
		return g.host.Snapshot(n)
	case n.IsIPoIB():
		return g.pod.Snapshot(n)
	}
	return nil
}

// partitions reads which PKeys the port has. In a pod of an exclusive system sysfs does not show the port.
func (g *gatherer) partitions() error {
	n, pkey := g.dev.Netdev, g.cfg.PKey
	if g.dev.HCA == nil || n == nil || n.IPoIB == nil || pkey == 0 || pkey == n.IPoIB.PKey {
		return nil
	}
	ok, held, err := g.host.HasPKey(g.dev.HCA.Name, 1, pkey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if ok {
		held = append(held, pkey)
	}
	g.facts.PKeys, g.facts.PKeysKnown = held, err == nil
	return err
}

// children reads which IPoIB children the netdev has: those that the journal knows, and the host's own. A child whose
// pod is gone may have come to the host: it is its owner's all the same.
func (g *gatherer) children() error {
	n := g.dev.Netdev
	if n == nil || !n.IsIPoIB() {
		return nil
	}
	keys, err := g.store.Children(g.dev.Claim())
	if err != nil {
		return err
	}
	dead := map[uint32]bool{}
	for _, k := range keys {
		o := g.ownerByKey(k, g.dev.Claim())
		if o == nil {
			o = &attach.Owner{ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), Alive: true}
		}
		dead[childGroup(k)] = o.Unreadable == nil && !o.Alive
		g.facts.Children = append(g.facts.Children, attach.Child{Owner: o})
	}
	list, err := g.host.ChildrenOf(n)
	for _, n := range list {
		if !dead[n.Group] {
			g.facts.Children = append(g.facts.Children, attach.Child{Netdev: n.Name})
		}
	}
	return err
}

// siblings reads which other netdevs the RDMA device carries (a dual-port mlx4): they would go with it.
func (g *gatherer) siblings() error {
	if g.cfg.Mode != netconf.ModeDevice || g.dev.Netdev == nil || g.dev.HCA == nil || len(g.dev.HCA.Ports) < 2 {
		return nil
	}
	all, err := g.host.NetdevsAt(g.dev.Address)
	for _, n := range all {
		if n.Index != g.dev.Netdev.Index {
			g.facts.Siblings = append(g.facts.Siblings, n.Name)
		}
	}
	return err
}

// childGroup is the device group a child is created with. It is how the child is found if its creator is killed before
// it can write down the hardware address. Group 0 is everybody's.
func childGroup(k journal.Key) uint32 {
	h := fnv.New32a()
	h.Write([]byte(k.String()))
	return h.Sum32()&(1<<31-1) | 1<<30 // iproute2 prints groups as signed
}

// selects says whether a selector means the device of an entry, as that was on the host.
func selects(s netconf.Selector, master string, e *journal.Entry) bool {
	n, h := e.Netdev, e.HCA
	switch s.Kind {
	case netconf.ByAddress:
		return s.Address == e.Address || s.Address.String() == e.Claim ||
			e.PCI != "" && s.Address == device.OnPCI(e.PCI)
	case netconf.ByName:
		return n != nil && n.Named(s.Value)
	case netconf.ByRDMADevice:
		return h != nil && h.Name == s.Value
	case netconf.ByGUID:
		return h != nil && h.NodeGUID == s.GUID || n != nil && hasGUID(n, s.GUID)
	case netconf.ByHWAddr:
		return n != nil && (n.HWAddr.String() == s.HWAddr.String() || s.GUID != 0 && hasGUID(n, s.GUID))
	case netconf.ByNothing:
		return master != "" && n != nil && n.Named(master)
	}
	return false
}

func hasGUID(n *device.Netdev, g device.GUID) bool {
	have, ok := device.GUIDOf(n.HWAddr)
	return ok && have == g
}

// netnsMode returns the RDMA mode, which the policy depends on as well, and whether there is RDMA.
func (g *gatherer) netnsMode() (device.NetnsMode, bool, error) {
	if g.host.RDMA == nil {
		return 0, false, nil
	}
	m, err := g.host.RDMA.NetnsMode()
	if errors.Is(err, rdma.ErrNoRDMA) {
		g.host.RDMA = nil
		return 0, false, nil
	}
	return m, err == nil, err
}
