package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// add is the verb ADD: it decides, records, and carries the decision out.
func add(c *call) error {
	c.doing = fmt.Sprintf("attach %s to %s", c.key.IfName, c.who())
	if err := c.openHost(); err != nil {
		return err
	}
	if err := c.openPodForAdd(); err != nil {
		return err
	}
	if err := c.hold(); err != nil {
		return err
	}
	a := &adder{call: c}
	defer a.end()
	ch := chooser{c}
	given := ch.allocatedToPod()
	if err := a.takeTurn(given); err != nil {
		return err
	}
	var err error
	if a.chosen, err = ch.choose(given); err != nil {
		return err
	}
	a.cfg = a.chosen.cfg
	d, err := a.decide()
	if err != nil {
		return err
	}
	if d.Done {
		return c.passOn()
	}
	if c.cfg.Mode != netconf.ModeRDMA { // there the addresses are the earlier plugin's
		if err := c.delegate().Usable("ADD"); err != nil {
			return err
		}
	}
	others := ports{c}
	if err := others.judge(d.OtherPorts); err != nil {
		return err
	}
	at := newAttachment(a, d)
	res, err := at.run()
	if err != nil {
		return err
	}
	a.unlock()
	if res, err = others.attach(d.OtherPorts, at.entry, res); err != nil {
		return err
	}
	c.letGo()
	return c.print(func(w io.Writer) error { return res.Print(w, c.cfg.CNIVersion) })
}

// openPodForAdd opens the pod's namespace, which has to be there.
func (c *call) openPodForAdd() error {
	err := c.openPod()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // not there, or a namespace of another kind
		return &failure{code: codeBadEnv, err: fmt.Errorf("CNI_NETNS %q: %w", c.env.Netns, err)}
	}
	return err
}

// adder gets from a configuration to a decision, and to the locks that it holds for.
type adder struct {
	*call
	chosen choice
	turn   *journal.Lock // of the pod; nil if the configuration says which device it is
	device *journal.Lock // nil if there is no device to lock
	guids  *journal.Lock // nil if the configuration sets no GUID
}

func (a *adder) unlock() {
	a.device.Unlock()
	a.guids.Unlock()
}

// end gives back what is still held.
func (a *adder) end() {
	a.unlock()
	a.turn.Unlock()
}

// takeTurn takes the lock of the pod, if the device is one of several that the pod has, by its claims or by kubelet, or
// a share: two ADDs of one pod choose, or count, one after the other. It is taken before any device's lock, and held
// until the journal says which device has been chosen.
func (a *adder) takeTurn(given *allocated) error {
	if !a.cfg.FromClaim && given == nil && a.cfg.Mode != netconf.ModeIPoIB || !prepared.IsUID(a.cfg.Pod.UID) {
		return nil
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	var err error
	a.turn, err = a.store.LockPod(ctx, a.cfg.Pod.UID)
	return err
}

// choice is how the device of an attachment was chosen: the configuration names it if the other fields are nil.
type choice struct {
	cfg       *netconf.Config      // selects the device
	fromClaim *journal.ClaimDevice // a ResourceClaim gives it
	refused   *attach.Claims       // the pod's ResourceClaims give none: attach.Decide says why
	replaced  *replaced            // it is in the place of the device that Multus names
}

// replaced is the device that Multus names where the attachment has another one.
type replaced struct {
	pci    string // its PCI address
	plugin []byte // what the device plugin says of the other one; nil: nothing
}

// chooser chooses the device of an attachment.
type chooser struct{ c *call }

// choose chooses the device: a ResourceClaim's, the next in the order of rails, or the one that the configuration
// names. An ADD holds the pod's lock until the journal has it.
func (cs chooser) choose(given *allocated) (choice, error) {
	ch, err := cs.fromClaim()
	if err != nil || ch.fromClaim != nil || ch.refused != nil || given == nil {
		return ch, err
	}
	return cs.byRail(given)
}

// fromClaim chooses a device of the pod's ResourceClaims, if the configuration wants one of them. From there on the
// configuration names its device like any other.
func (cs chooser) fromClaim() (choice, error) {
	ch := choice{cfg: cs.c.cfg}
	if !cs.c.cfg.FromClaim {
		return ch, nil
	}
	claims, given := cs.claimed()
	i, refusal := claims.Choose()
	switch {
	case refusal != nil:
		ch.refused = claims
		return ch, nil
	case i < 0 && cs.c.cfg.Mode == netconf.ModeIPoIB && cs.c.cfg.Master == "": // the id says nothing of a parent
		claims.DeviceID = ""
		ch.refused = claims
		return ch, nil
	case i < 0:
		return ch, nil
	}
	d := &given[i]
	record := claimDeviceOf(d.Claim, &d.Device)
	var err error
	if ch.cfg, record.Conf, err = cs.selectClaimed(cs.c.cfg, &d.Device); err != nil {
		return ch, fmt.Errorf("device %s of ResourceClaim %s: %w", d.Address, d.Claim.Whose(), err)
	}
	ch.fromClaim = record
	return ch, nil
}

// claimed reads what ResourceClaims give to the pod of the network's devices, and which of it this container has.
func (cs chooser) claimed() (*attach.Claims, []prepared.ClaimDevice) {
	pod := cs.c.cfg.Pod
	out := &attach.Claims{
		Fabric: cs.c.cfg.Name, PodUID: pod.UID, BadUID: !prepared.IsUID(pod.UID), DeviceID: cs.c.cfg.DeviceID,
		IfName: cs.c.key.IfName,
	}
	if pod.Name != "" {
		out.Pod = (&prepared.Claim{Namespace: pod.Namespace, Pod: pod.Name}).ForPod()
	}
	if out.BadUID {
		return out, nil
	}
	claims, err := prepared.In(cs.c.StateDir).Of(pod.UID)
	if err != nil {
		out.Unreadable = err
		return out, nil
	}
	given := prepared.OfFabric(claims, cs.c.cfg.Name)
	if one := cs.c.claimed; one != nil {
		given = slices.DeleteFunc(given, func(d prepared.ClaimDevice) bool {
			return !one.Same(claimDeviceOf(d.Claim, &d.Device))
		})
	}
	var have []*journal.Entry
	if len(given) > 0 {
		have = cs.c.store.Of(cs.c.key.ContainerID)
	}
	for i := range given {
		d := attach.Claimed{
			Claim: given[i].Claim.Whose(), Device: given[i].Address.String(), ID: given[i].ID,
			Interface: string(given[i].Interface), Unfit: !given[i].Interface.Fits(cs.c.key.IfName),
		}
		if a, err := device.ParseAddress(cs.c.cfg.DeviceID); err == nil && a == given[i].Address {
			d.ID = cs.c.cfg.DeviceID // however it is spelled
		}
		record := claimDeviceOf(given[i].Claim, &given[i].Device)
		for _, e := range have {
			if e.Key != cs.c.key && has(e, record, d.Device) {
				d.Taken = e.IfName
			}
		}
		out.Devices = append(out.Devices, d)
	}
	return out, given
}

// has says whether an attachment has the device of a claim: it was made of it, or it has taken the whole device by
// another configuration.
func has(e *journal.Entry, g *journal.ClaimDevice, deviceKey string) bool {
	if e.FromClaim != nil {
		return e.FromClaim.Same(g)
	}
	return e.DeviceKey == deviceKey && e.Kind == journal.KindDevice
}

func claimDeviceOf(c *prepared.Claim, d *prepared.Device) *journal.ClaimDevice {
	return &journal.ClaimDevice{
		ClaimUID: c.UID, Claim: c.Whose(), Request: d.Request, Device: d.Name, ShareID: d.ShareID,
	}
}

// selectClaimed selects the device of a claim in a configuration, with the claim's settings, and returns both. The mode
// stays what it was: Multus's deviceID, or a master, may suggest another one.
func (cs chooser) selectClaimed(
	of *netconf.Config, d *prepared.Device,
) (*netconf.Config, map[string]json.RawMessage, error) {
	by := map[string]json.RawMessage{"allocation": json.RawMessage("null")}
	if len(d.Network) > 0 {
		var settings map[string]json.RawMessage
		if err := json.Unmarshal(d.Network, &settings); err != nil {
			return nil, nil, fmt.Errorf("settings of the claim: %w", err)
		}
		maps.Copy(by, settings)
	}
	field, value := "deviceID", d.Address.ID()
	switch {
	case of.Mode == netconf.ModeIPoIB:
		if field, value = "master", cs.masterAt(d); value == "" {
			return nil, nil, &failure{code: codeNoDevice, err: errors.New("it has no IPoIB interface on the host"),
				hint: "see what is there with: fabricctl discover"}
		}
	case d.Address.Bus == prepared.Virtual:
		field, value = "device", d.Address.Name
	}
	for key, text := range map[string]string{"mode": string(of.Mode), field: value} {
		b, err := json.Marshal(text)
		if err != nil {
			return nil, nil, fmt.Errorf("encode field %q: %w", key, err)
		}
		by[key] = b
	}
	cfg, err := of.Select(cs.c.env, by)
	return cfg, by, err
}

// masterAt is the IPoIB interface of an HCA under the name that it has now. Without one, it is the name from when the
// claim was prepared: ADD reports what is wrong with it.
func (cs chooser) masterAt(d *prepared.Device) string {
	dev, err := cs.c.host.At(d.Address)
	if err == nil && dev.Netdev != nil {
		return dev.Netdev.Name
	}
	return d.Netdev
}

// allocated are the devices that kubelet has given to the pod: the one that Multus names, and others of its resource.
type allocated struct {
	attach.AllocatedDevices
	resource string
}

// allocatedToPod reads which devices the pod has, if it has several; else it returns nil. Without a pod, without Multus
// or without kubelet there are none, and the device is the one that the configuration names.
func (cs chooser) allocatedToPod() *allocated {
	cfg := cs.c.cfg
	if cfg.Injected == "" || cfg.Mode != netconf.ModeDevice || cs.c.pod == nil || !prepared.IsUID(cfg.Pod.UID) {
		return nil
	}
	p, err := cs.c.policy()
	if err != nil {
		return nil // attach.Decide reports it
	}
	given, err := kubelet.Of(p.DevicePluginDir, cfg.Pod.UID, cfg.Injected)
	if err != nil {
		cs.c.log.Warn("devices go to networks in the order of kubelet, not of rails", "reason", err)
		return nil
	}
	if given == nil || len(given.IDs) < 2 {
		return nil
	}
	r := &allocated{resource: given.Resource}
	for _, id := range given.IDs {
		a, err := device.ParseAddress(id)
		if err != nil { // these are no whole devices
			cs.c.log.Info("devices go to networks in the order of kubelet, not of rails", "reason", err)
			return nil
		}
		r.Devices = append(r.Devices, attach.AllocatedDevice{
			Location: device.Location{Address: a, PCI: cs.c.host.PCIOf(a)}, ID: id, Named: id == cfg.Injected,
		})
	}
	r.Sort()
	return r
}

// byRail chooses the one of the pod's devices that this network gets.
func (cs chooser) byRail(r *allocated) (choice, error) {
	ch := choice{cfg: cs.c.cfg}
	if err := cs.markUnusable(r); err != nil {
		return ch, err
	}
	i := r.Choose()
	named := slices.IndexFunc(r.Devices, func(d attach.AllocatedDevice) bool { return d.Named })
	if i < 0 || i == named {
		return ch, nil
	}
	d := r.Devices[i]
	var err error
	if ch.cfg, err = cs.c.cfg.SelectInjected(d.ID, d.Address); err != nil {
		return ch, fmt.Errorf("device %s, which is next in the order of rails: %w", d.ID, err)
	}
	cs.c.log.Info("device in the order of rails", "device", d.ID, "named", cs.c.cfg.Injected)
	ch.replaced = &replaced{pci: r.Devices[named].PCI}
	if ch.replaced.plugin, err = devinfo.OfPlugin(r.resource, d.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		cs.c.log.Warn("device information of the device plugin can't be read", "reason", err)
	}
	return ch, nil
}

// markUnusable gathers what speaks against devices of the pod for this network.
func (cs chooser) markUnusable(r *allocated) error {
	have := cs.c.store.Of(cs.c.key.ContainerID)
	for i := range r.Devices {
		d := &r.Devices[i]
		s := netconf.Selector{Kind: netconf.ByAddress, Address: d.Address}
		d.Taken = slices.ContainsFunc(have, func(e *journal.Entry) bool {
			return e.Key != cs.c.key && e.DeviceKey != "" && e.Kind != journal.KindIPoIB && selects(s, "", e)
		})
	}
	if r.Keep = cs.c.cfg.Unsorted; !r.Keep && cs.c.cfg.DeviceInfo == "" {
		// Multus has told the pod's network-status of the device that it has named, which can't be corrected.
		_, err := devinfo.OfPlugin(r.resource, cs.c.cfg.Injected)
		if r.Keep = err == nil; r.Keep {
			cs.c.log.Warn("devices go to networks in the order of kubelet, not of rails: the network has no " +
				"capability CNIDeviceInfoFile")
		}
	}
	return cs.findLacking(r)
}

// findLacking looks for devices that come before the named one and that a plugin of another type has put into the pod
// already: the journal does not know of that. Those that are a dead pod's are returned before they are attached.
func (cs chooser) findLacking(r *allocated) error {
	var named *inventory.Device
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.Named && !d.Taken {
			return nil
		}
		if d.Taken {
			continue
		}
		if _, owned, err := cs.c.store.Owner(d.Address.String()); err != nil || owned {
			return err
		}
		var err error
		if named == nil {
			named, err = cs.c.host.Find(cs.c.cfg.Selector)
		}
		if named == nil { // it has left itself: there is nothing to compare with
			cs.c.log.Info("device that Multus names is not on the host", "reason", err)
			return nil
		}
		dev, err := cs.c.host.Find(netconf.Selector{Kind: netconf.ByAddress, Address: d.Address})
		d.Lacking = err != nil || named.Netdev != nil && dev.Netdev == nil || named.HCA != nil && dev.HCA == nil
		if !d.Lacking {
			return nil
		}
	}
	return nil
}

// isGiven says whether kubelet has given the pod the device at an address beside the one that Multus names: then the
// configuration can mean it.
func (cs chooser) isGiven(a device.Address, pci string) bool {
	r := cs.allocatedToPod()
	return r != nil && slices.ContainsFunc(r.Devices, func(d attach.AllocatedDevice) bool {
		return d.Address == a || pci != "" && d.Address == device.OnPCI(pci)
	})
}

// decide finds the device, takes its lock and decides. Refusals end the ADD. What dead attachments have left is
// returned first: a DEL for it may never come. Then everything is looked at again.
func (a *adder) decide() (*attach.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	for awaited := time.Now().Add(portWait); ; {
		d, err := a.look(ctx)
		if err != nil {
			return nil, err
		}
		if len(d.Refusals) > 0 {
			if time.Now().After(awaited) || slices.ContainsFunc(d.Refusals, func(r *attach.Refusal) bool {
				return !r.Awaited
			}) {
				return nil, refused(d.Refusals[0])
			}
			a.unlock()
			select {
			case <-ctx.Done():
			case <-time.After(awaitPause):
			}
			continue
		}
		if len(d.Reclaims) == 0 {
			return d, nil
		}
		a.guids.Unlock() // the rest of the node need not wait for a device's return
		if d.Attachment != nil && slices.ContainsFunc(d.Reclaims, func(o attach.Owner) bool {
			return o.DeviceKey != d.Device.DeviceKey
		}) { // it has a lock of its own, and no call waits for a second device's
			a.device.Unlock()
		}
		err = a.reclaim(ctx, d.Reclaims)
		a.unlock()
		if errors.Is(err, journal.ErrBusy) && ctx.Err() == nil { // another call returns it, and may wait for our lock
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// look gathers the facts with the device locked, and decides on them.
func (a *adder) look(ctx context.Context) (*attach.Decision, error) {
	for {
		a.unlock()
		g, err := a.gather(&a.chosen)
		if err != nil {
			return nil, err
		}
		if g.facts.Earlier != nil { // it may have the device, its lock, or the name
			return attach.Decide(g.facts), nil
		}
		if err := g.find(); err != nil {
			return nil, err
		}
		if g.dev == nil {
			return attach.Decide(g.facts), nil
		}
		deviceKey := g.dev.DeviceKey()
		if a.device, err = a.store.Lock(ctx, deviceKey); err != nil {
			return nil, err
		}
		if a.device.Waited { // its holder may have moved it: look again, now under the lock
			err = g.find()
		}
		if err == nil && (g.dev == nil || g.dev.DeviceKey() != deviceKey) { // another one, when names were swapped
			continue
		}
		if err == nil && a.names().dropForeign(deviceKey, g.dev.Netdev) {
			continue
		}
		if err == nil && a.names().restoreOwn(deviceKey, g.dev) {
			err = g.find()
		}
		if err == nil {
			err = g.inspect()
		}
		if err == nil && a.cfg.Mode == netconf.ModeDevice && a.cfg.VF.GUID != nil { // last: others wait for it
			a.guids, err = a.store.Lock(ctx, guidLock)
		}
		if err == nil {
			err = g.guid()
		}
		if err != nil {
			return nil, err
		}
		return attach.Decide(g.facts), nil
	}
}

// guidLock is the name under which a GUID is given to a VF: held from the look whether the node has it until the
// journal says who has. No device is named so.
const guidLock = "guids"

// reclaim returns what attachments have left whose pods are dead.
func (a *adder) reclaim(ctx context.Context, list []attach.Owner) error {
	for _, o := range list {
		key := journal.Key{ContainerID: o.ContainerID, IfName: o.IfName}
		if !o.Self {
			if err := a.reclaimFromDead(ctx, key); err != nil {
				return err
			}
			continue
		}
		e, err := a.store.Load(key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, journal.ErrCorrupt):
			err = newUnjournaled(a.call, true).run()
		case err == nil:
			a.log.Warn("clearing what an earlier ADD of this attachment has left")
			err = errors.Join(ports{a.call}.del(e), returner{a.call}.giveBack(e, a.delegateOf(e)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reclaimFromDead returns what one attachment has, if its pod is still dead and the device still its own once the lock
// is ours. We hold a device's lock and may not wait for the attachment's: its DEL may wait for the device.
func (a *adder) reclaimFromDead(ctx context.Context, key journal.Key) error {
	at, cancel := context.WithCancel(ctx)
	cancel()
	lock, err := a.store.LockAttachment(at, key)
	if err != nil {
		return fmt.Errorf("return what %s, which is dead, has left of %s: %w", key.Who(), key.IfName, err)
	}
	defer lock.Unlock()
	e, err := a.store.Load(key)
	if errors.Is(err, fs.ErrNotExist) { // DEL has come meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	if !a.device.Held() {
		device, err := a.store.Lock(ctx, e.DeviceKey)
		if err != nil {
			return err
		}
		defer device.Unlock()
	}
	if e.Kind != journal.KindIPoIB {
		owner, ok, err := a.store.Owner(e.DeviceKey)
		if err != nil {
			return err
		}
		if !ok || owner != e.Key { // it was returned between our look and the lock
			return a.recoverDevice(ctx, e)
		}
	}
	if a.alive(e) {
		return nil // the next look reports it
	}
	a.log.Warn("reclaiming what a dead pod has left", "device", e.DeviceKey, "owner", e.Who(), "its", e.IfName)
	return returner{a.call}.giveBackOfDead(at, e)
}

// recoverDevice waits a moment for a device that another call has just brought home. If it does not turn up, it is
// lost.
func (*adder) recoverDevice(ctx context.Context, e *journal.Entry) error {
	select {
	case <-ctx.Done():
		return &failure{code: codeNoDevice, err: fmt.Errorf("device %s has not come back: %w", e.DeviceKey, ctx.Err())}
	case <-time.After(time.Millisecond):
		return nil
	}
}
