package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Bounds of what only a VF needs.
const (
	renumberWait = 20 * time.Second // for other calls that move RDMA devices or rebind drivers: one at a time
	portWait     = 5 * time.Second  // for the subnet manager to see a new GUID
)

// renumberLock is the name under which numbers of character devices are given out. No device is named so.
const renumberLock = "numbers"

// userspace are the drivers that give a function to userspace: it has no netdev and no RDMA device then.
var userspace = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}

// virtual is what preflight finds out about a VF. A nil pointer is a device that is none.
type virtual struct {
	vf     *device.VF
	change plan.VFChange
	guid   *device.GUID
}

// judgedLater tells that the port is judged once its GUID or link state is set.
func (v *virtual) judgedLater() bool {
	return v != nil && (v.change.Rebind || slices.Contains(v.change.Set, device.VFLinkState))
}

// function is the VF, nil for another device.
func (v *virtual) function() *device.VF {
	if v == nil {
		return nil
	}
	return v.vf
}

// steps are those of ADD.
func (v *virtual) steps() []plan.Step {
	if v == nil {
		return nil
	}
	return v.change.Steps
}

// home is where the device of a configuration belongs.
func (v *virtual) home(dev *inventory.Device, hca *device.HCA) plan.Home {
	e := journal.Entry{HCA: dev.HCA, Netdev: dev.Netdev, MoveRDMA: hca != nil, VF: v.record(), Created: time.Now()}
	return homeOf(&e)
}

// isUserspace tells a function that belongs to a driver for userspace.
func isUserspace(dev *inventory.Device, driver string) bool {
	return dev.Netdev == nil && dev.HCA == nil && slices.Contains(userspace, driver)
}

// virtual reads the device as a VF, and decides what the configuration makes of it. Anything that can be refused is
// refused here, before the first change.
func (c *call) virtual(dev *inventory.Device) (*virtual, error) {
	want := &c.cfg.VF
	if want.IBKubernetes && want.IBKubernetesState != "configured" {
		return nil, &failure{
			code: codeTryAgain,
			err: fmt.Errorf(
				"ib-kubernetes has not configured the partition of this pod yet (args.cni.mellanox.infiniband.app "+
					"is %q)",
				want.IBKubernetesState,
			),
			todo: "try again; is ib-kubernetes running, with a plugin of the type \"ib-sriov\" in its sights?",
		}
	}
	driver := c.host.Driver(dev.Address)
	if want.VFIO && !slices.Contains(userspace, driver) {
		return nil, &failure{
			code: codeBadConfig,
			err: fmt.Errorf(
				"field \"vfioPciMode\": device %s is bound to driver %q, not to one of %v",
				dev.Claim(),
				driver,
				userspace,
			),
			todo: "bind it to vfio-pci, or remove the field",
		}
	}
	vf, err := c.host.VF(dev)
	if err != nil {
		return nil, err
	}
	if vf == nil {
		return nil, c.noVF(dev)
	}
	if dev.Netdev != nil {
		vf.IB = dev.Netdev.IsIPoIB()
	}
	if err := c.fitsVF(vf); err != nil {
		return nil, err
	}
	if vf.PFName == "" {
		if asked := askedVF(want); len(asked) > 0 {
			return nil, &failure{
				code: codeNoDevice,
				err: fmt.Errorf(
					"field %q: PF %s of %s has no netdev on the host, through which its VFs are configured",
					asked[0],
					vf.PF.Name,
					dev.Claim(),
				),
				todo: "return the PF to the host, load its driver (ib_ipoib for InfiniBand), or remove the field",
			}
		}
		return nil, nil
	}
	v := &virtual{vf: vf, change: plan.AttachVF(want, vf, dev.HCA, dev.Netdev), guid: want.GUID}
	return v, c.guids(dev, v)
}

// noVF refuses what only a VF has. A netdev that is none can have another hardware address all the same.
func (c *call) noVF(dev *inventory.Device) error {
	asked := askedVF(&c.cfg.VF)
	if dev.Netdev != nil && !dev.Netdev.IsIPoIB() {
		asked = slices.DeleteFunc(asked, func(f string) bool { return f == "mac" })
	}
	if len(asked) == 0 {
		return nil
	}
	return &failure{
		code: codeBadConfig,
		err: fmt.Errorf(
			"field %q: it is a setting of a virtual function, and device %s is none",
			asked[0],
			dev.Claim(),
		),
		todo: "remove the field, or select a VF",
	}
}

// fitsVF refuses settings of the other kind of VF.
func (c *call) fitsVF(vf *device.VF) error {
	kind, others := "an Ethernet", device.InfiniBandVF
	if vf.IB {
		kind, others = "an InfiniBand", device.EthernetVF
	}
	for _, f := range c.cfg.VF.Asked() {
		if f.Attrs[0].Kind() == others {
			return &failure{
				code: codeBadConfig,
				err: fmt.Errorf(
					"field %q: VF %d of %s is %s one, which has no such setting",
					f.Name,
					vf.Index,
					vf.PFName,
					kind,
				),
				todo: "remove the field",
			}
		}
	}
	return nil
}

// askedVF names the settings of a VF that a configuration asks for.
func askedVF(want *netconf.VF) []string {
	var out []string
	for _, f := range want.Asked() {
		out = append(out, f.Name)
	}
	return out
}

// guids makes sure that an InfiniBand VF has a GUID, and that nobody else has it: the subnet manager knows a port by
// it, and gives it the partitions of whoever had it before.
func (c *call) guids(dev *inventory.Device, v *virtual) error {
	if !v.vf.IB || isUserspace(dev, v.vf.Driver) && v.guid == nil {
		return nil
	}
	if v.guid == nil {
		if dev.HCA != nil && dev.HCA.NodeGUID.IsUnset() {
			return &failure{
				code: codePortDown,
				err: fmt.Errorf(
					"VF %d of %s (%s) has no GUID (%s), so no subnet manager brings its port up",
					v.vf.Index,
					v.vf.PFName,
					dev.Claim(),
					dev.HCA.NodeGUID,
				),
				todo: "configure one: \"guid\", runtimeConfig.infinibandGUID (capability infinibandGUID), or ip " +
					"link set " + v.vf.PFName + " vf " + fmt.Sprint(
					v.vf.Index,
				) + " node_guid and port_guid",
			}
		}
		return nil
	}
	holder, err := c.host.GUIDHolder(*v.guid, dev.Address, v.vf)
	if err != nil {
		return err
	}
	if holder == "" {
		if holder, err = c.guidInPod(*v.guid); err != nil {
			return err
		}
	}
	if holder != "" {
		return &failure{
			code: codeInUse,
			err:  fmt.Errorf("field \"guid\": value %s: %s has this GUID already", v.guid, holder),
			todo: "choose another one: a GUID is unique in its fabric",
		}
	}
	return nil
}

// guidInPod looks for a GUID among the devices that are in pods, where the host does not see them.
func (c *call) guidInPod(g device.GUID) (string, error) {
	entries, err := c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return "", err
	}
	for _, e := range entries {
		if e.Key == c.key {
			continue
		}
		had := e.VF != nil && e.VF.GUID == g ||
			e.HCA != nil && e.MoveRDMA && (e.VF == nil || e.VF.GUID == 0) && e.HCA.NodeGUID == g
		if had && c.alive(e) {
			return "container " + e.ContainerID + " (" + e.IfName + ", device " + e.Claim + ")", nil
		}
	}
	return "", nil
}

// record is the VF's part of the journal entry.
func (v *virtual) record() *journal.VF {
	if v == nil {
		return nil
	}
	out := &journal.VF{Was: *v.vf, Set: v.change.Set, Rebind: v.change.Rebind}
	if v.guid != nil {
		out.GUID = *v.guid
	}
	return out
}

// homeOf is where the device of an attachment belongs. ADD and DEL return it from the same values.
func homeOf(e *journal.Entry) plan.Home {
	h := plan.Home{Netdev: e.Netdev, VF: vfHome(e), Attached: taken(e), Elapsed: elapsed(e)}
	if e.MoveRDMA {
		h.HCA = e.HCA
	}
	if e.Kind == journal.KindRDMA {
		h.Side = plan.Pod // where the plugin that put the netdev there will look for it
	}
	return h
}

// vfHome is what a virtual function had before ADD; nil if nothing of it was to be changed.
func vfHome(e *journal.Entry) *plan.VFHome {
	if e.VF == nil || len(e.VF.Set) == 0 {
		return nil
	}
	return &plan.VFHome{VF: &e.VF.Was, Set: e.VF.Set, Rebind: e.VF.Rebind, HCA: e.HCA, Netdev: e.Netdev != nil}
}

// taken is the RDMA device as it went into the pod.
func taken(e *journal.Entry) *device.HCA {
	if e.VF == nil || !e.MoveRDMA {
		return nil
	}
	return e.VF.HCA
}

// renumbering is apply.Runner's Renumbering.
func (c *call) renumbering(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, renumberWait)
	defer cancel()
	lock, err := c.store.Lock(ctx, renumberLock)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

// virtual carries the VF's settings out. When that has made new faces, they are what goes into the pod; the journal has
// them before they move.
func (a *attachment) virtual(ctx context.Context) error {
	e := a.entry
	if a.vf == nil || len(a.vf.change.Steps) == 0 {
		return nil
	}
	if err := a.runner.Run(ctx, a.vf.change.Steps); err != nil {
		return err
	}
	if a.vf.change.Rebind {
		dev, err := a.host.At(e.Address)
		if err != nil {
			return fmt.Errorf("find the device after its driver was bound again: %w", err)
		}
		e.VF.HCA = dev.HCA
		if err := a.store.Save(e); err != nil {
			return err
		}
	}
	return a.portUp(ctx)
}

// portUp waits for the port that preflight did not judge: its GUID or link state was still to be set.
func (a *attachment) portUp(ctx context.Context) error {
	if !a.vf.judgedLater() || a.entry.HCA == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	for {
		dev, err := a.host.At(a.entry.Address)
		if err == nil {
			err = a.ports(dev)
		}
		var f *failure
		if err == nil || !errors.As(err, &f) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// functions refuses to move a PF whose VFs are attached: nobody could configure them, or give them back in order.
func (c *call) functions(dev *inventory.Device) error {
	vfs, err := c.host.Functions(dev.Address)
	if err != nil {
		return err
	}
	for _, vf := range vfs {
		owner, ok, err := c.store.Owner(vf.String())
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if e, err := c.store.Load(owner); err == nil && !c.alive(e) {
			continue
		}
		return &failure{
			code: codeInUse,
			err: fmt.Errorf(
				"VF %s of PF %s is in use by container %s as %s",
				vf.Name,
				dev.Claim(),
				owner.ContainerID,
				owner.IfName,
			),
			todo: "delete that pod first",
		}
	}
	return nil
}
