package fabric

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/internal/result"
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
	if f.Policy != nil && c.cfg.IgnoreRADefaultRoute {
		f.Unpublished = f.Policy.Published(c.cfg.Name, c.asked)
	}
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
	o.Alive = e.Attached && e.Netns == g.pod.NS.ID && g.alive(e) && g.first == nil // else its first one is gone
	g.facts.Earlier = o
	return g.before(e)
}

// before reads what the plugin before this one in the chain has attached, if that was this plugin. Of one attachment
// Multus names the same device to each plugin of a chain, and the first one may have exchanged it.
func (g *gatherer) before(e *journal.Entry) error {
	if g.cfg.Mode != netconf.ModeRDMA || g.cfg.PrevResult == nil || e.Network != g.cfg.Name {
		return nil
	}
	prev, err := g.prevResult()
	if err != nil {
		return err
	}
	b := &attach.Before{MoveRDMA: e.MoveRDMA, RDMAName: e.RDMAName}
	if e.HCA != nil {
		b.HCA = e.HCA.Name
	}
	there := e.Netdev == nil
	if !there {
		_, there = prev.Expect(g.key.IfName, g.env.Netns)
	}
	s := g.cfg.Selector
	b.Device = e.Kind == journal.KindDevice && there &&
		(s.Kind == netconf.ByNothing || g.cfg.Injected != "" || selects(s, "", e))
	g.facts.Before = b
	return nil
}

// ownerOf is an attachment as attach knows it, Alive apart.
func ownerOf(e *journal.Entry) *attach.Owner {
	return &attach.Owner{
		ContainerID: e.ContainerID, IfName: e.IfName, Who: e.Who(), Network: e.Network, NetnsPath: e.NetnsPath,
		DeviceKey: e.DeviceKey,
	}
}

// owner is an attachment as it is now.
func (c *call) owner(e *journal.Entry) *attach.Owner {
	o := ownerOf(e)
	o.Alive, o.Self = c.alive(e), e.Key == c.key
	return o
}

// ownerByKey is the attachment of a key that owns a device; nil if the journal has no such entry: nothing is left of
// it.
func (c *call) ownerByKey(k journal.Key, deviceKey string) *attach.Owner {
	e, err := c.store.Load(k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &attach.Owner{
			ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), DeviceKey: deviceKey,
			Self: k == c.key, Unreadable: err,
		}
	}
	return c.owner(e)
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
		DeviceKey: g.dev.DeviceKey(), Address: g.dev.Address, PCI: g.dev.PCI, Driver: g.host.Driver(g.dev.Address),
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
		if e.DeviceKey == "" || e.Kind == journal.KindIPoIB || !selects(g.cfg.Selector, g.cfg.Master, e) {
			continue
		}
		owner, ok, err := g.store.Owner(e.DeviceKey)
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

// findChained finds the RDMA device of mode rdma: by the selector, or as the one that belongs to the only interface of
// the prevResult. Its netdev is looked for in the pod too, where the earlier plugin has put it.
func (g *gatherer) findChained() error {
	if g.cfg.Selector.Kind == netconf.ByNothing {
		return g.derive()
	}
	dev, err := g.host.Find(g.cfg.Selector)
	var soft *inventory.SoftError
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, &soft) { // it may name a netdev that has been moved already
		if dev, err = g.pod.Find(g.cfg.Selector); err != nil {
			return err
		}
		return g.behind(dev.Netdev)
	}
	if err != nil {
		return err
	}
	g.dev = dev
	if dev.Netdev != nil {
		return nil
	}
	n, err := g.pod.Netdev(&device.Netdev{Address: dev.Address, ARPType: 32, Kind: "ipoib"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dev.Netdev, g.facts.Chained.Side = n, plan.Pod
	return err
}

// derive finds the device behind the only interface that the prevResult has in the pod.
func (g *gatherer) derive() error {
	prev, err := g.prevResult()
	if err != nil {
		return err
	}
	var ifaces []result.Interface
	if prev != nil {
		ifaces = prev.InSandbox(g.env.Netns)
	}
	g.facts.Chained.Interfaces = len(ifaces)
	if len(ifaces) != 1 {
		return nil
	}
	n, err := g.pod.Link.ByName(ifaces[0].Name)
	if err != nil {
		return fmt.Errorf("interface %s of the prevResult in the pod: %w", ifaces[0].Name, err)
	}
	return g.behind(n)
}

// behind finds the device that a netdev in the pod belongs to.
func (g *gatherer) behind(n *device.Netdev) error {
	if n == nil || n.Address.IsZero() {
		g.facts.Chained.NoHardware = g.key.IfName
		if n != nil {
			g.facts.Chained.NoHardware = n.Name
			g.softInPod(n)
		}
		return fmt.Errorf("find the device of %s: %w", g.facts.Chained.NoHardware, fs.ErrNotExist)
	}
	dev, err := g.host.At(n.Address)
	if err != nil {
		return err
	}
	dev.Netdev, g.facts.Chained.Side = n, plan.Pod
	g.dev = dev
	return nil
}

// prevResult is what earlier plugins of the chain have done, nil without one.
func (c *call) prevResult() (*result.Result, error) {
	if c.prior != nil || c.cfg.PrevResult == nil {
		return c.prior, nil
	}
	prev, err := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion)
	if err != nil {
		return nil, &failure{code: codeBadConfig, err: fmt.Errorf("field \"prevResult\": %w", err)}
	}
	return prev, nil
}

// softSelected notes that what the configuration selects is a soft RDMA device.
func (g *gatherer) softSelected(e *inventory.SoftError) {
	g.facts.Soft = &attach.Soft{Name: e.Name, Netdev: g.host.NetdevUnder(e.Name)}
}

// softInPod looks for an RDMA device on an interface in the pod that no hardware is behind. That of a bond may be its
// members'. What can't be read is not known: the refusal stands without it.
func (g *gatherer) softInPod(n *device.Netdev) {
	if n == nil || n.Kind == inventory.Bond || g.pod.RDMA == nil {
		return
	}
	list, err := g.pod.RDMA.List()
	if err != nil {
		return
	}
	for i := range list {
		if h := &list[i]; g.pod.NetdevUnder(h.Name) == n.Name {
			g.facts.Soft = &attach.Soft{Name: h.Name, Netdev: n.Name}
			return
		}
	}
}

// preparedForPods reads which devices ResourceClaims and kubelet have given to pods, as far as they are this one, its
// PF or its VFs. A file of a claim that can't be read says nothing of others' devices: its own pod does not start.
func (g *gatherer) preparedForPods() error {
	claims, err := prepared.In(g.StateDir).All()
	if err != nil {
		g.log.Warn("some of what is prepared for pods can't be read", "reason", err)
	}
	related, err := g.sameCard()
	if err != nil {
		return err
	}
	g.allotment(claims, related)
	for _, c := range claims {
		if c.PodUID == g.cfg.Pod.UID {
			continue
		}
		for _, d := range c.Devices {
			for _, a := range related {
				if d.Address == a {
					g.facts.Promises = append(g.facts.Promises, attach.Promise{
						Pod: c.ForPod(), Claim: c.Whose(), Device: a.String(), Shared: d.Shared,
					})
				}
			}
		}
	}
	return nil
}

// sameCard are the addresses of the device, its PF and its VFs.
func (g *gatherer) sameCard() ([]device.Address, error) {
	if g.dev.Address.IsZero() && g.dev.Netdev != nil {
		return []device.Address{{Bus: prepared.Virtual, Name: g.dev.Netdev.Name}}, nil
	}
	out := []device.Address{g.dev.Address}
	if g.cfg.Mode == netconf.ModeIPoIB {
		return out, nil
	}
	if g.facts.PF != nil {
		return append(out, *g.facts.PF), nil
	}
	vfs, err := g.host.Functions(g.dev.Address)
	return append(out, vfs...), err
}

// allotment reads what kubelet and ResourceClaims have given to this pod of the device, and what kubelet has given to
// others of its card. Without a pod (STATUS) nothing is to be judged.
func (g *gatherer) allotment(claims []*prepared.Claim, card []device.Address) {
	p, f := g.facts.Policy, g.facts
	if p == nil || g.pod == nil {
		return
	}
	uid := g.cfg.Pod.UID
	f.Allotment = attach.Allotment{
		Unjudged: g.planned && uid == "", NoUID: !prepared.IsUID(uid), Whole: g.chosen.fromClaim != nil,
		Resource: p.Resource(g.dev.DeviceKey()),
	}
	_, fabric, _ := strings.Cut(f.Allotment.Resource, "/")
	for _, c := range claims {
		for i := range c.Devices {
			switch d := &c.Devices[i]; {
			case c.PodUID != uid || f.Allotment.NoUID:
			case d.Shared && d.Fabric == fabric:
				f.Allotment.Shares++
			case !d.Shared && d.Address == card[0]:
				f.Allotment.Whole = true
			}
		}
	}
	g.countChildren(p.Resource)
	ids := g.idsOf(card)
	var all []string
	for id := range ids {
		all = append(all, id)
	}
	held, err := kubelet.Who(p.DevicePluginDir, uid, all)
	if err != nil {
		f.Allotment.Unknown = err
		g.log.Warn("it is not known which devices kubelet has given to pods", "reason", err)
		return
	}
	f.Promises = append(f.Promises, g.regard(p.DevicePluginDir, held, ids)...)
	// Another port comes with the RDMA device, which the pod has been given. What others were given of it counts.
	f.Allotment.Whole = f.Allotment.Whole || g.first != nil
}

// regard counts what is this pod's, and returns what is others'.
func (g *gatherer) regard(
	dir string, held []kubelet.Holding, ids map[string]device.Address,
) (others []attach.Promise) {
	f := g.facts
	shares := map[string]bool{}
	for i := range held {
		h := &held[i]
		own := h.PodUID == g.cfg.Pod.UID
		if !own && hasEnded(dir, h.PodUID) {
			continue
		}
		for _, id := range h.IDs {
			whole := kubelet.Whole(id)
			a, related := ids[whole]
			switch {
			case own && whole != id:
				if h.Resource == f.Allotment.Resource {
					shares[id] = true
				}
			case own:
				f.Allotment.Whole = f.Allotment.Whole || related && a == g.address()
			case related:
				others = append(others, attach.Promise{
					Pod: fmt.Sprintf("of UID %q", h.PodUID), Resource: fmt.Sprintf("%q", h.Resource),
					Device: a.String(), Shared: whole != id,
				})
			}
		}
	}
	f.Allotment.Shares += len(shares)
	if f.Allotment.Whole { // two resources may have it: the first pod gets it
		others = slices.DeleteFunc(others, func(p attach.Promise) bool { return p.Device == g.dev.DeviceKey() })
	}
	return others
}

// address is the device as the journal and claims name it.
func (g *gatherer) address() device.Address {
	if g.dev.Address.IsZero() && g.dev.Netdev != nil {
		return device.Address{Bus: prepared.Virtual, Name: g.dev.Netdev.Name}
	}
	return g.dev.Address
}

// idsOf are the ids by which device plugins know these devices. That of a function whose bus is another one than PCI,
// such as virtio, may be its PCI address; of a subfunction that is another device's.
func (g *gatherer) idsOf(card []device.Address) map[string]device.Address {
	out := map[string]device.Address{}
	if g.dev.PCI != "" && g.dev.Address.Bus != "auxiliary" {
		out[g.dev.PCI] = g.address()
	}
	for _, a := range card {
		out[a.ID()] = a
		if a.Bus == "auxiliary" { // other device plugins leave the bus out
			out[a.Name] = a
		}
	}
	return out
}

// countChildren counts the other children of the container on devices of the same resource.
func (g *gatherer) countChildren(resource func(deviceKey string) string) {
	if g.facts.Allotment.Resource == "" {
		return
	}
	for _, e := range g.store.Of(g.key.ContainerID) {
		if e.Key != g.key && e.Kind == journal.KindIPoIB && resource(e.DeviceKey) == g.facts.Allotment.Resource {
			g.facts.Allotment.Children++
		}
	}
}

// starting is how long a pod may have no directory of its own after kubelet has written what it gets.
const starting = time.Minute

// hasEnded reports whether a pod has no directory any more, in which kubelet has its volumes until it has ended. A pod
// that starts has none yet.
func hasEnded(devicePlugins, podUID string) bool {
	pods := filepath.Join(filepath.Dir(filepath.Clean(devicePlugins)), "pods")
	if !prepared.IsUID(podUID) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(pods, podUID)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if info, err := os.Stat(pods); err != nil || !info.IsDir() {
		return false
	}
	info, err := os.Lstat(filepath.Join(devicePlugins, kubelet.Checkpoint))
	return err == nil && time.Since(info.ModTime()) > starting
}

// childGroup is the device group a child is created with. It is how the child is found if its creator is killed before
// it can write down the hardware address. Group 0 is everybody's.
func childGroup(k journal.Key) uint32 {
	h := fnv.New32a()
	h.Write([]byte(k.String()))
	return h.Sum32()&(1<<31-1) | 1<<30 // iproute2 prints groups as signed
}
