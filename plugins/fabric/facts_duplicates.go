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
	mac := g.cfg.VF.MAC
	var err error
	g.facts.MACHolder, g.facts.AddrHolder, err = g.duplicatesInPods(mac.String(), g.staticAddresses())
	if err == nil && mac != nil && g.facts.MACHolder == nil {
		g.facts.MACHolder, err = g.macOnHost(mac)
	}
	return err
}

// duplicatesInPods looks for the attachments of this node that have a hardware address, or one of some addresses in the
// network of this configuration.
func (c *call) duplicatesInPods(mac string, addrs []netip.Prefix) (ofMAC, ofAddr *attach.Duplicate, err error) {
	if mac == "" && len(addrs) == 0 {
		return nil, nil, nil
	}
	entries, err := c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.Key == c.key {
			continue
		}
		if mac != "" && macInPod(e) == mac && c.alive(e) {
			ofMAC = duplicateOf(e, mac)
		}
		same := func(p netip.Prefix) bool {
			return slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr() == p.Addr() })
		}
		if i := slices.IndexFunc(e.Addresses, same); i >= 0 && e.Network == c.cfg.Name && c.alive(e) {
			ofAddr = duplicateOf(e, e.Addresses[i].Addr().String())
		}
	}
	return ofMAC, ofAddr, nil
}

// addressLock is the name under which what is to be unique is compared with the journal and written to it. No device is
// named so. Nothing else is waited for by who holds it.
const addressLock = "addresses"

// saveIntent writes the entry before anything changes. What two calls at once found to be free goes to the first one.
func (a *attachment) saveIntent() error {
	e := a.entry
	if e.MAC == "" && len(e.Addresses) == 0 {
		return a.store.Save(e)
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := a.store.Lock(ctx, addressLock)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	ofMAC, ofAddr, err := a.duplicatesInPods(e.MAC, e.Addresses)
	switch {
	case err != nil:
		return err
	case ofMAC != nil:
		return refused(ofMAC.Refusal("mac"))
	case ofAddr != nil:
		return refused(ofAddr.Refusal("ipam"))
	}
	return a.store.Save(e)
}

func duplicateOf(e *journal.Entry, value string) *attach.Duplicate {
	by := e.Who() + " (" + e.IfName + ", network " + e.Network + ", device " + e.Claim + ")"
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
