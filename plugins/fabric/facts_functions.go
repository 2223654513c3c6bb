package fabric

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// virtualFunction reads the device as a VF, or as a PF that may have some.
func (g *gatherer) virtualFunction() error {
	vf, err := g.host.VF(g.dev)
	if err != nil {
		return err
	}
	if vf == nil {
		return g.functions()
	}
	g.facts.PF = &vf.PF
	if g.facts.PFOwner, err = g.ownerOfFunction(vf.PF); err != nil || g.cfg.Mode != netconf.ModeDevice {
		return err
	}
	if g.dev.Netdev != nil {
		vf.IB = g.dev.Netdev.IsIPoIB()
	}
	g.facts.VF = vf
	if g.pod != nil && g.facts.Policy != nil && g.facts.Policy.Rebinds() {
		tenant, noted, err := g.store.Tenant(g.dev.Claim())
		if err != nil {
			return err
		}
		g.facts.OtherTenant = noted && tenant != g.cfg.Pod.Namespace
	}
	guid := g.cfg.VF.GUID
	if guid == nil || vf.PFName == "" {
		return nil
	}
	g.facts.GUIDHolder, err = g.guidHolder(*guid, vf)
	return err
}

// functions reads which attachments have VFs of the device, if it is a PF, and what it has set for each.
func (g *gatherer) functions() error {
	vfs, err := g.host.Functions(g.dev.Address)
	if err != nil {
		return err
	}
	for _, vf := range vfs {
		o, err := g.ownerOfFunction(vf)
		if err != nil {
			return err
		}
		if o != nil {
			g.facts.VFOwners = append(g.facts.VFOwners, attach.VFOwner{VF: vf.Name, Owner: *o})
		}
	}
	if n := g.dev.Netdev; len(vfs) > 0 && n != nil && g.facts.Chained.Side == plan.Host {
		g.facts.VFs, err = g.host.Link.VFs(n.Index)
	}
	return err
}

// ownerOfFunction is the attachment that has a PCI function; nil for none.
func (g *gatherer) ownerOfFunction(a device.Address) (*attach.Owner, error) {
	k, ok, err := g.store.Owner(a.String())
	if err != nil || !ok {
		return nil, err
	}
	o := g.ownerByKey(k, a.String())
	if o == nil { // claimed, and no entry says by what: only its DEL knows
		o = &attach.Owner{
			ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), Claim: a.String(), Alive: true,
		}
	}
	return o, nil
}

// alone makes sure that no other call has claimed the PF of this VF, or a VF of this PF, since it was looked at: each
// has its own lock. Both calls claim before they look, so that one of them at least sees the other.
func (a *attachment) alone() error {
	var related []device.Address
	if a.PF != nil {
		related = append(related, *a.PF)
	} else {
		var err error
		if related, err = a.host.Functions(a.entry.Address); err != nil {
			return err
		}
	}
	for _, f := range related {
		k, ok, err := a.store.Owner(f.String())
		if err != nil {
			return err
		}
		if ok && k != a.key {
			return refused(&attach.Refusal{
				Reason: attach.InUse,
				Message: fmt.Sprintf("function %s of the same card as %s has just been taken by %s as %s",
					f.Name, a.entry.Claim, k.Who(), k.IfName),
				Hint: "a PF and its VFs can't be in pods at the same time",
			})
		}
	}
	return nil
}
