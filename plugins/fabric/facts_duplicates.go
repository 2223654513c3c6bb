package fabric

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// others reads who else has what the attachment would take.
func (g *gatherer) others() error { return errors.Join(g.siblings(), g.duplicates()) }

// duplicates looks for others on this node that have the MAC address or the addresses that the configuration gives. It
// reads nothing for a configuration that leaves both to the device and to an IPAM plugin with a memory.
func (g *gatherer) duplicates() error {
	g.facts.MACHolder, g.facts.AddrHolder = nil, nil
	mac, addrs := g.cfg.VF.MAC, g.staticAddresses()
	if mac == nil && len(addrs) == 0 {
		return nil
	}
	entries, err := g.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	for _, e := range entries {
		if e.Key == g.key {
			continue
		}
		if mac != nil && macInPod(e) == mac.String() && alive(e) {
			g.facts.MACHolder = duplicateOf(e, mac.String())
		}
		same := func(p netip.Prefix) bool {
			return slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr() == p.Addr() })
		}
		if i := slices.IndexFunc(e.Addresses, same); i >= 0 && e.Network == g.cfg.Name && alive(e) {
			g.facts.AddrHolder = duplicateOf(e, e.Addresses[i].Addr().String())
		}
	}
	if mac == nil || g.facts.MACHolder != nil {
		return nil
	}
	g.facts.MACHolder, err = g.macOnHost(mac)
	return err
}

func duplicateOf(e *journal.Entry, value string) *attach.Duplicate {
	by := "container " + e.ContainerID + " (" + e.IfName + ", network " + e.Network + ", device " + e.Claim + ")"
	return &attach.Duplicate{Value: value, By: by, Pod: true}
}

// macInPod is the hardware address that an attachment's interface has in the pod: the one it was given, or its own.
func macInPod(e *journal.Entry) string {
	switch {
	case e.MAC != "" || e.Netdev == nil || e.Kind != journal.KindDevice:
		return e.MAC
	}
	return e.Netdev.HWAddr.String()
}

// macOnHost looks for a hardware address among the interfaces of the host, and among what the PF of this VF has for its
// other VFs.
func (g *gatherer) macOnHost(mac net.HardwareAddr) (*attach.Duplicate, error) {
	all, err := g.host.Link.List("")
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		own := g.dev.Netdev != nil && n.Index == g.dev.Netdev.Index
		if !own && bytes.Equal(n.HWAddr, mac) {
			return &attach.Duplicate{Value: mac.String(), By: "interface " + n.Name + " of the host"}, nil
		}
	}
	vf := g.facts.VF
	if vf == nil || vf.PFName == "" {
		return nil, nil
	}
	pf, err := g.host.PF(vf)
	if err != nil {
		return nil, err
	}
	vfs, err := g.host.Link.VFs(pf.Index)
	for i, a := range vfs {
		if i != vf.Index && bytes.Equal(a.MAC, mac) {
			return &attach.Duplicate{Value: mac.String(), By: "VF " + strconv.Itoa(i) + " of " + pf.Name}, nil
		}
	}
	return nil, err
}

// staticAddresses are the addresses that the configuration itself gives. Other IPAM plugins have a memory of their own.
// What is wrong with the section is for the IPAM plugin to say.
func (c *call) staticAddresses() []netip.Prefix {
	if c.cfg.IPAM.Type != "static" {
		return nil
	}
	r, known, err := c.delegate().Predict()
	if err != nil || !known {
		return nil
	}
	var out []netip.Prefix
	for _, a := range r.Addresses {
		out = append(out, a.Prefix)
	}
	return out
}
