package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Preview is what a call would do. Nothing was changed, and no lock was taken: by the time of the call it may be
// different.
type Preview struct {
	Device  string // bus address, or netdev/NAME
	Add     []plan.Step
	Del     []plan.Step
	IPAM    string   // type of the plugin whose addresses are not in Add; empty: none, or they are
	Tables  bool     // Add has routing tables, whose number is known only when the interface is in the pod
	Refused []string // why ADD would be refused, if it would
}

// Preview tells what ADD with this configuration would do, and the DEL after it. An error is what ADD would end with
// before it has found its device. guess says which addresses the IPAM plugin would give; it returns nil where it can't
// know.
func (p Plugin) Preview(
	stdin []byte,
	env netconf.Env,
	guess func(*netconf.Config, netconf.Env) (*plan.Addressing, error),
) (*Preview, error) {
	env.Command = "ADD"
	cfg, err := netconf.Parse(stdin, env)
	if err != nil {
		return nil, err
	}
	c := p.reader()
	defer c.close()
	c.cfg, c.env, c.key = cfg, env, journal.Key{ContainerID: env.ContainerID, IfName: env.IfName}
	if err := c.openHost(); err != nil {
		return nil, err
	}
	if err := c.openPod(); err != nil {
		return nil, err
	}
	out := &Preview{IPAM: cfg.IPAM.Type}
	if cfg.Mode == netconf.ModeRDMA {
		return out, c.previewRDMA(out)
	}
	out.refuse(c.free(c.key.IfName))
	ips, err := guess(cfg, env)
	if err != nil { // what the IPAM plugin would say, too
		out.refuse(err)
		out.IPAM = ""
	}
	if cfg.Mode == netconf.ModeIPoIB {
		return out, c.previewChild(out, ips)
	}
	return out, c.previewDevice(out, ips)
}

// address adds the steps for the addresses, if they are known.
func (p *Preview) address(cfg *netconf.Config, ips *plan.Addressing, have *device.Netdev) {
	if ips == nil {
		return
	}
	p.IPAM, p.Tables = "", cfg.SourceBased
	p.Add = append(p.Add, plan.Address(cfg, ips, have)...)
}

// reader is a call that will only look.
func (p Plugin) reader() *call {
	if p.StateDir == "" {
		p.StateDir = journal.DefaultDir
	}
	if p.Policy == "" {
		p.Policy = policy.DefaultPath
	}
	return &call{Plugin: p, store: journal.Store{Dir: p.StateDir}, log: slog.New(slog.DiscardHandler)}
}

func (p *Preview) refuse(err error) {
	if err == nil {
		return
	}
	e := typed("attach", err)
	p.Refused = append(p.Refused, fmt.Sprintf("code %d: %s", e.Code, err))
}

func (c *call) previewDevice(out *Preview, ips *plan.Addressing) error {
	dev, err := c.host.Find(c.cfg.Selector)
	if errors.Is(err, fs.ErrNotExist) {
		if e, herr := c.holder(); herr == nil && e != nil {
			return inUse(e.Claim, e)
		}
		field, value := c.selected()
		return fmt.Errorf(
			"%s %q: no such device on this host; see what is there with: fabricctl discover",
			field,
			value,
		)
	}
	if err != nil {
		return err
	}
	out.Device = dev.Claim()
	c.previewOwner(out)
	if err := c.mayMove(dev); err != nil {
		out.refuse(err)
	}
	move, err := c.rdmaDecision(dev)
	out.refuse(err)
	v, err := c.virtual(dev)
	out.refuse(err)
	if !v.judgedLater() {
		out.refuse(c.ports(dev))
	}
	if move && dev.Netdev != nil && len(dev.HCA.Ports) > 1 {
		out.refuse(c.aloneOnHCA(dev))
	}
	var hca *device.HCA
	if move {
		hca = dev.HCA
	}
	out.Add = append(v.steps(), plan.Attach(c.cfg, c.key.IfName, hca, dev.Netdev)...)
	if dev.Netdev == nil {
		out.Del = plan.Preview(c.after(dev, hca, v, out.Add), v.home(dev, hca))
		return nil
	}
	have := afterMove(dev.Netdev, hca != nil, c.key.IfName)
	out.Add = append(out.Add, plan.Configure(c.cfg, dev.Netdev, have, v.function())...)
	out.address(c.cfg, ips, have)
	out.Del = plan.Preview(c.after(dev, hca, v, out.Add), v.home(dev, hca))
	return nil
}

// after predicts where the device is when ADD has carried out its steps.
func (c *call) after(dev *inventory.Device, hca *device.HCA, v *virtual, steps []plan.Step) plan.Where {
	w := plan.Where{HCA: hca, Netdev: dev.Netdev}
	if v != nil {
		w.VF = &plan.VFNow{VFAttrs: v.vf.VFAttrs, Faces: true, Driver: v.vf.Driver, HCA: dev.HCA, Netdev: dev.Netdev != nil}
	}
	return plan.After(w, steps)
}

// afterMove is the netdev as a move leaves it: down, without addresses and routes; an IPoIB netdev whose RDMA device
// has moved is a new one with the kernel's settings.
func afterMove(was *device.Netdev, recreated bool, name string) *device.Netdev {
	n := *was
	n.Name, n.Addrs, n.Routes, n.Flags = name, nil, nil, n.Flags&^device.FlagUp
	if recreated && was.IsIPoIB() {
		n.AltNames, n.Alias = nil, ""
		n.MTU = 2044 // of the broadcast group's 2048, less the IPoIB header (drivers/infiniband/ulp/ipoib/ipoib.h)
		n.IPoIB = &device.IPoIB{PKey: was.IPoIB.PKey}
	}
	return &n
}

func (c *call) previewOwner(out *Preview) {
	owner, ok, err := c.store.Owner(out.Device)
	if err != nil || !ok || owner == c.key {
		return
	}
	if e, err := c.store.Load(owner); err == nil && c.alive(e) {
		out.refuse(inUse(out.Device, e))
	}
}

func (c *call) previewChild(out *Preview, ips *plan.Addressing) error {
	dev, err := c.master()
	if err != nil {
		return err
	}
	out.Device = dev.Claim()
	out.refuse(c.use(dev))
	out.refuse(c.ports(dev))
	pkey := c.cfg.PKey
	if pkey == 0 && dev.Netdev.IPoIB != nil {
		pkey = dev.Netdev.IPoIB.PKey
	}
	out.refuse(c.partition(dev, pkey))
	child := *dev.Netdev
	child.Name = c.key.IfName
	out.Add = []plan.Step{plan.CreateChild{Master: *dev.Netdev, Name: c.key.IfName, PKey: pkey, Group: mark(c.key)}}
	out.address(c.cfg, ips, &child)
	out.Del = []plan.Step{plan.DeleteChild{In: plan.Pod, Netdev: child}}
	return nil
}

// previewRDMA looks at what an earlier plugin of the chain has put into the pod: before that there is nothing to look
// at.
func (c *call) previewRDMA(out *Preview) error {
	out.IPAM = "" // the addresses are the earlier plugin's
	prev, err := c.prev()
	if err != nil {
		return err
	}
	dev, err := c.chained(prev)
	if err != nil {
		return fmt.Errorf("mode rdma works on what an earlier plugin of the chain has put into the pod: %w", err)
	}
	out.Device = dev.Claim()
	c.previewOwner(out)
	out.refuse(c.use(dev))
	move, err := c.rdmaDecision(dev)
	out.refuse(err)
	out.refuse(c.ports(dev))
	if dev.HCA == nil {
		out.refuse(
			&failure{code: codeNoDevice, err: fmt.Errorf("device %s has no RDMA device on the host", dev.Claim())},
		)
	}
	if dev.HCA == nil || !move { // in shared mode the pod sees it already
		return nil
	}
	out.refuse(c.childlessHCA(dev))
	out.Add = plan.Attach(c.cfg, nameOf(dev.Netdev), dev.HCA, dev.Netdev)
	var was *device.Netdev
	if dev.Netdev != nil && dev.Netdev.IsIPoIB() { // the move destroys it: a new one gets what it had
		was = dev.Netdev
		if err := c.pod.Snapshot(was); err != nil {
			return err
		}
		out.Add = append(out.Add, plan.Restore(plan.Pod, was, afterMove(was, true, was.Name), 0)...)
	}
	where := plan.Where{HCA: dev.HCA, Netdev: was, NetdevSide: plan.Pod}
	out.Del = plan.Preview(plan.After(where, out.Add), plan.Home{HCA: dev.HCA, Netdev: was, Side: plan.Pod})
	return nil
}

// PreviewDel tells what DEL of an attachment would do now.
func (p Plugin) PreviewDel(e *journal.Entry) (*Preview, error) {
	c := p.reader()
	defer c.close()
	if err := c.openHost(); err != nil {
		return nil, err
	}
	out := &Preview{Device: e.Claim, IPAM: e.IPAM}
	if ours, err := c.owns(e); err != nil || !ours {
		return out, err
	}
	pod, err := c.podOf(e)
	if err != nil {
		return nil, err
	}
	r := &apply.Runner{Host: c.host, Pod: pod}
	if e.Kind == journal.KindIPoIB {
		in, at := plan.Pod, pod
		if pod == nil {
			in, at = plan.Host, c.host
		}
		if n, err := at.Child(e.Child.PKey, e.Child.Group, e.Child.HWAddr); err == nil {
			out.Del = []plan.Step{plan.DeleteChild{In: in, Netdev: *n}}
		}
		return out, nil
	}
	home := homeOf(e)
	w, err := r.Where(home)
	out.Del = plan.Preview(w, home)
	return out, err
}
