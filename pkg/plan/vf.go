package plan

import (
	"bytes"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// VFChange is what a configuration makes of a virtual function.
type VFChange struct {
	Steps  []Step
	Set    []device.VFAttr // what the steps set
	To     device.VFAttrs  // the settings as they will be
	Rebind bool            // the driver is bound again: the GUIDs count only then, or it is Anew
	Anew   bool            // ... for another tenant, before anything else
}

// AttachVF returns the steps that give a VF what the configuration asks for. They come before the VF moves: the
// settings are made on the PF, which stays, and the driver finds the new GUIDs only when it is bound, which happens on
// the host.
//
// hca and netdev are the VF's faces, nil for one that has none (vfio-pci). The driver is rebound only when a GUID
// really changes, or if another tenant had the VF last (anew): that takes seconds on real hardware and renames what it
// touches. For another tenant a VF that can is reset in between (vf.FLR).
func AttachVF(cfg *netconf.VF, vf *device.VF, hca *device.HCA, netdev *device.Netdev, anew bool) VFChange {
	var c VFChange
	to, asked := wantedVF(cfg, &vf.VFAttrs)
	c.To = to
	guid := cfg.GUID != nil && !hasGUIDs(*cfg.GUID, vf, hca, netdev)
	if anew && !guid && (hca != nil || netdev != nil) {
		netdev = c.anew(vf, hca, netdev)
	}
	for _, attr := range asked {
		if attr.IsGUID() && !guid || !attr.IsGUID() && to.Same(attr, &vf.VFAttrs) {
			continue
		}
		c.Set = append(c.Set, attr)
		set := SetVF{VF: vfRef(vf), Attr: attr, To: to}
		if attr == device.VFMAC && netdev != nil && netdev.HWAddr.String() != to.MAC.String() {
			// The netdev's own address first, and before that none on the PF: a driver whose PF has set one refuses to
			// hear of another (drivers/net/ethernet/intel/igb/igb_main.c, igb_set_vf_mac_filter).
			if !isZero(vf.MAC) {
				c.Steps = append(c.Steps, noMAC(vf))
			}
			c.Steps = append(c.Steps, newMAC(Host, to.MAC, netdev.Up(), false)...)
		}
		c.Steps = append(c.Steps, set)
	}
	if guid && (hca != nil || netdev != nil) {
		c.Rebind = true
		r := RebindVF(vf, hca, netdev)
		r.ForPod, r.Reset = true, anew && vf.FLR
		c.Steps = append(c.Steps, r)
	}
	return c
}

// anew has the driver of a VF bound again, and returns the netdev as it is then. It gets the hardware address back that
// it had: a driver whose PF has set none may choose one at random, and some show a VF's own as if the PF had set it
// (drivers/net/ethernet/intel/igb/igb_main.c, igb_ndo_get_vf_config, Linux 6.12). If the PF has another one, the driver
// takes that.
func (c *VFChange) anew(vf *device.VF, hca *device.HCA, netdev *device.Netdev) *device.Netdev {
	r := RebindVF(vf, hca, netdev)
	r.ForPod, r.Reset = true, vf.FLR
	c.Rebind, c.Anew, c.Steps = true, true, []Step{r}
	if netdev == nil || netdev.ARPType != ethernet {
		return netdev
	}
	out := *netdev
	out.Flags &^= device.FlagUp
	if !isZero(vf.MAC) && !bytes.Equal(vf.MAC, netdev.HWAddr) {
		out.HWAddr = vf.MAC
		return &out
	}
	c.Steps = append(c.Steps, newMAC(Host, netdev.HWAddr, false, false)...)
	return &out
}

// noMAC takes the address away that a PF has for a VF. A driver may refuse.
func noMAC(vf *device.VF) SetVF {
	return SetVF{VF: vfRef(vf), Attr: device.VFMAC, To: device.VFAttrs{MAC: make([]byte, len(vf.MAC))}}
}

func isZero(mac []byte) bool { return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }) }

// newMAC gives a netdev another hardware address: most drivers want it down for that.
func newMAC(in Side, mac []byte, wasUp, up bool) []Step {
	var steps []Step
	if wasUp {
		steps = append(steps, SetLink{In: in, Attrs: Attrs{Mask: device.FlagUp}})
	}
	steps = append(steps, SetLink{In: in, Attrs: Attrs{HWAddr: mac}})
	if up {
		steps = append(steps, SetLink{In: in, Attrs: Attrs{Flags: device.FlagUp, Mask: device.FlagUp}})
	}
	return steps
}

// RebindVF is the step that binds a VF's driver again.
func RebindVF(vf *device.VF, hca *device.HCA, netdev *device.Netdev) Rebind {
	r := Rebind{Driver: vf.Driver, HCA: hca, Netdev: netdev != nil}
	if hca != nil {
		r.Device = hca.Address
	}
	if r.Device.IsZero() && netdev != nil {
		r.Device = netdev.Address
	}
	return r
}

// vfRef is what a step needs to name a VF.
func vfRef(vf *device.VF) device.VF {
	return device.VF{PF: vf.PF, PFName: vf.PFName, Index: vf.Index}
}

// hasGUIDs says whether a VF has the GUID already: its faces have it, or, where it has none, its PF keeps it.
func hasGUIDs(g device.GUID, vf *device.VF, hca *device.HCA, netdev *device.Netdev) bool {
	if hca == nil && netdev == nil {
		return vf.NodeGUID != nil && *vf.NodeGUID == g && vf.PortGUID != nil && *vf.PortGUID == g
	}
	if hca != nil && hca.NodeGUID != g {
		return false
	}
	if netdev != nil {
		if port, ok := device.GUIDOf(netdev.HWAddr); ok && port != g {
			return false
		}
	}
	return true
}

// wantedVF is the settings as they will be, and the list of those that the configuration names, in order.
func wantedVF(cfg *netconf.VF, now *device.VFAttrs) (to device.VFAttrs, asked []device.VFAttr) {
	to = *now
	named := map[device.VFAttr]bool{}
	for _, f := range cfg.Asked() {
		f.Set(&to)
		for _, attr := range f.Attrs {
			named[attr] = true
		}
	}
	for _, attr := range device.VFAttrNames() {
		if named[attr] {
			asked = append(asked, attr)
		}
	}
	return to, asked
}

// RestoreVF returns the steps that give a VF back those of its settings that were changed (set), of which now has the
// present values. The order is reversed: what was set last goes first.
func RestoreVF(was *device.VF, set []device.VFAttr, now *device.VFAttrs) []Step {
	var steps []Step
	for _, attr := range slices.Backward(set) {
		if was.Same(attr, now) {
			continue
		}
		step := SetVF{VF: vfRef(was), Attr: attr, To: was.VFAttrs}
		if attr == device.VFMAC { // then the VF's netdev may have its own address back, which the PF's would forbid
			step = noMAC(was)
		}
		steps = append(steps, step)
	}
	return steps
}

// RestoreVFMAC returns the step, if any, that sets the PF's address for a VF that has its own back: what it had may
// have been set by the administrator.
func RestoreVFMAC(was *device.VF, now *device.VFAttrs) []Step {
	if was.Same(device.VFMAC, now) {
		return nil
	}
	return []Step{SetVF{VF: vfRef(was), Attr: device.VFMAC, To: was.VFAttrs}}
}

// restoreVFs returns the steps that give the VFs of a PF back what the PF's pod has changed of their settings. VFs that
// have come or gone meanwhile are left alone.
func restoreVFs(w Where, h Home) []Step {
	if h.Netdev == nil || w.Netdev == nil || w.NetdevSide != Host {
		return nil
	}
	var steps []Step
	for i := range min(len(h.VFs), len(w.VFs)) {
		vf := device.VF{PF: h.Netdev.Address, PFName: h.Netdev.Name, Index: i}
		for _, attr := range slices.Backward(device.VFAttrNames()) {
			if !h.VFs[i].Same(attr, &w.VFs[i]) {
				steps = append(steps, SetVF{VF: vf, Attr: attr, To: h.VFs[i]})
			}
		}
	}
	return steps
}

// notify makes the kernel announce an Ethernet VF whenever it comes up again
// (Documentation/networking/ip-sysctl.rst: arp_notify, ndisc_notify).
func notify(a *Attrs, have *device.Netdev) {
	if a.IPv4Conf == nil {
		a.IPv4Conf = map[int]uint32{}
	}
	a.IPv4Conf[arpNotify] = 1
	if len(have.IPv6Conf) > 0 {
		a.IPv6Conf = map[string]int32{"ndisc_notify": 1}
	}
}
