package fabric

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// delWithout is DEL without a readable entry: it came twice, the ADD never changed anything, the host has been
// rebooted, or the journal is lost or damaged. What is found in the pod, and is nobody else's, goes home; IPAM is
// always told.
func (c *call) delWithout() error {
	claims, err := c.store.ClaimsOf(c.key)
	if err != nil {
		return err
	}
	if len(claims) > 0 {
		c.cfg.Selector = netconf.Selector{Kind: netconf.ByAddress, Field: "claim", Value: claims[0]}
		if a, err := device.ParseAddress(claims[0]); err == nil {
			c.cfg.Selector.Address = a
		}
	}
	parents, err := c.store.ParentsOf(c.key)
	if err != nil {
		return err
	}
	gone := c.env.Netns == ""
	if !gone {
		err = c.openPod()
		gone = errors.Is(err, fs.ErrNotExist)
	}
	switch {
	case gone:
		err = c.mendHome(claims, len(parents) > 0)
	case err == nil:
		err = c.bringFound(claims)
	}
	if err := errors.Join(err, c.delegate().Del(context.Background())); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := c.store.RemoveChild(parent, c.key); err != nil {
			return err
		}
	}
	for _, claim := range claims {
		if err := c.store.Disclaim(claim, c.key); err != nil {
			return err
		}
	}
	return c.store.Remove(c.key)
}

// bringFound looks into the pod for the interface of this attachment.
func (c *call) bringFound(claims []string) error {
	n, err := c.pod.Link.ByName(c.key.IfName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mine, err := c.mine(n, len(claims) > 0)
	if err != nil || !mine {
		return err
	}
	ctx, cancel := bounded(homeWait)
	defer cancel()
	r := &apply.Runner{Host: c.host, Pod: c.pod, EvictName: c.evictName, Renumbering: c.renumbering}
	r.Track(nil, n)
	if n.IsIPoIBChild() {
		w := plan.Where{Netdev: n, NetdevSide: plan.Pod}
		if w.Rules, err = c.pod.Link.Rules(); err != nil {
			return err
		}
		return r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
	}
	c.log.Warn("no journal entry: returning what is in the pod", "device", n.Address.String())
	home := plan.Home{Netdev: guess(n)}
	if c.cfg.RDMA != netconf.RDMANone {
		if home.HCA, err = c.podHCA(n.Address); err != nil {
			return err
		}
	}
	return r.Return(ctx, home, apply.Events{Gone: func() bool { return !c.host.Present(n.Address) }})
}

// mendHome is for a pod that is gone: the kernel has put on the host what was in it, a netdev under its name in the
// pod, a child that nobody needs. Without a claim there is nothing to wait for.
func (c *call) mendHome(claims []string, child bool) error {
	ctx, cancel := bounded(unsureWait)
	defer cancel()
	for {
		n, err := c.strayed(claims)
		if err != nil {
			return err
		}
		r := &apply.Runner{Host: c.host, EvictName: c.evictName, Renumbering: c.renumbering}
		switch {
		case n != nil && n.IsIPoIBChild():
			r.Track(nil, n)
			w := plan.Where{Netdev: n, NetdevSide: plan.Host, PodGone: true}
			return r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
		case n != nil && n.Name == c.key.IfName && len(n.AltNames) > 0:
			return r.Return(ctx, plan.Home{Netdev: guess(n)}, apply.Events{})
		case n != nil, len(claims) == 0 && !child:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// strayed finds what this attachment had, on the host: a child by its mark, a device by its claim. nil: not (yet)
// there.
func (c *call) strayed(claims []string) (*device.Netdev, error) {
	if c.cfg.Mode == netconf.ModeIPoIB {
		list, err := c.host.Link.List("ipoib")
		for i := range list {
			if list[i].IsIPoIBChild() && list[i].Group == mark(c.key) {
				return &list[i], nil
			}
		}
		return nil, err
	}
	if len(claims) == 0 || c.cfg.Selector.Address.IsZero() {
		return nil, nil
	}
	d, err := c.host.At(c.cfg.Selector.Address)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.Netdev, nil
}

// mine tells whether an interface in the pod can be this attachment's: no other attachment has its device or this
// namespace, and the configuration means it.
func (c *call) mine(n *device.Netdev, claimed bool) (bool, error) {
	if claimed {
		return true, nil
	}
	entries, err := c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return false, err
	}
	for _, e := range entries {
		if e.Key != c.key &&
			(e.Netns == c.pod.NS.ID && e.IfName == n.Name || !n.Address.IsZero() && e.Kind != journal.KindIPoIB && e.Address == n.Address) {
			return false, nil
		}
	}
	if n.IsIPoIBChild() {
		return c.cfg.Mode == netconf.ModeIPoIB, nil
	}
	// A chained configuration without a prevResult (DEL below spec 0.4.0) looks like one of mode device: the interface
	// is then the earlier plugin's, which has its own DEL coming.
	if c.cfg.Mode != netconf.ModeDevice || c.cfg.ModeDerived && c.cfg.IPAM.Type == "" {
		return false, nil
	}
	s := c.cfg.Selector
	was := &journal.Entry{Address: n.Address, Netdev: n}
	if d, err := c.host.At(n.Address); err == nil {
		was.PCI = d.PCI
	}
	return !n.Address.IsZero() && selects(s, "", was), nil
}

// guess is what the host is likely to have had: the last altname in the pod is the host's name (plan.Configure).
func guess(n *device.Netdev) *device.Netdev {
	was := *n
	was.Alias, was.AltNames, was.Flags = "", nil, 0
	if last := len(n.AltNames) - 1; last >= 0 {
		was.Name, was.AltNames = n.AltNames[last], n.AltNames[:last]
	}
	was.IPv4Conf, was.IPv6Conf = nil, nil
	return &was
}

// podHCA finds the RDMA device at a bus address in the pod, nil without one. netlink does not tell where an RDMA device
// sits; the pod's view of sysfs does.
func (c *call) podHCA(a device.Address) (*device.HCA, error) {
	if c.pod.RDMA == nil || a.IsZero() {
		return nil, nil
	}
	var name string
	err := c.pod.NS.DoWithSys(func(sys fs.FS) error {
		entries, err := fs.ReadDir(sys, path.Join("bus", a.Bus, "devices", a.Name, "infiniband"))
		if len(entries) > 0 {
			name = entries[0].Name()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || name == "" {
		return nil, err
	}
	h, err := c.pod.HCANamed(name)
	if err == nil {
		h.Address = a
	}
	return h, err
}
