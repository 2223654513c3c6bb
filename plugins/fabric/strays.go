package fabric

import (
	"errors"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// strays reads what of other network namespaces sits on a netdev of the host that is to be moved: it would go on taking
// the frames of the pod that has the netdev. An IPoIB netdev is left out: with its RDMA device all that sits on it
// ends.
func (g *gatherer) strays() error {
	n := g.dev.Netdev
	if n == nil || n.IsIPoIB() || g.cfg.Mode != netconf.ModeDevice || g.facts.Chained.Side != plan.Host {
		return nil
	}
	return g.eachStray(n.Index, func(ns *netns.NS, _ *link.Conn, u *device.Netdev) error {
		g.facts.Strays = append(g.facts.Strays, attach.Place{Interface: u.Kind + " " + u.Name, Netns: ns.Path})
		return nil
	})
}

// removeStrays removes what a pod has made on its netdev and moved into a third network namespace. It is the pod's: ADD
// refuses a netdev that something of another namespace sits on.
func (c returner) removeStrays(e *journal.Entry) error {
	if e.Kind != journal.KindDevice || e.Netdev == nil || e.Netdev.IsIPoIB() {
		return nil
	}
	n, err := c.host.Netdev(e.Netdev)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.eachStray(n.Index, func(ns *netns.NS, l *link.Conn, u *device.Netdev) error {
		c.log.Warn("removed what the pod had made on the device, and moved", "interface", u.Name, "kind", u.Kind,
			"netns", ns.Path)
		return apply.DeleteStray(l, u.Index)
	})
}

// eachStray calls f with each netdev of another network namespace that is made on a netdev of the host, as far as
// netns.Each finds that namespace. One that can't be looked at tells nothing. The peer of a veth is no such netdev.
func (s *session) eachStray(index int, f func(*netns.NS, *link.Conn, *device.Netdev) error) error {
	var errs []error
	err := netns.Each(s.Proc, func(ns *netns.NS) bool {
		if ns.ID == s.host.NS.ID {
			return false
		}
		_ = ns.Do(func() error {
			l, err := link.Dial()
			if err != nil {
				return err
			}
			errs = append(errs, straysIn(l, s.host.NS.FD(), index, func(u *device.Netdev) error { return f(ns, l, u) }))
			return l.Close()
		})
		return false
	})
	if err != nil {
		s.log.Warn("not every network namespace was searched for interfaces on the device", "reason", err)
	}
	return errors.Join(errs...)
}

// straysIn calls f with each netdev of a namespace that is made on a netdev of the host. The list comes first: the
// kernel gives the host its number in the namespace when it shows the first of them.
func straysIn(l *link.Conn, host, index int, f func(*device.Netdev) error) error {
	all, err := l.List("")
	if err != nil {
		return nil //nolint:nilerr // the namespace ends just now
	}
	id := -1
	var errs []error
	for i := range all {
		u := &all[i]
		if u.ParentIn == nil || u.Parent != index || u.Kind == "veth" || u.Kind == "netkit" || u.Kind == "vxcan" {
			continue
		}
		if id < 0 {
			if id, err = l.NSID(host); err != nil {
				return nil //nolint:nilerr // the namespace ends just now
			}
		}
		if *u.ParentIn == id {
			errs = append(errs, f(u))
		}
	}
	return errors.Join(errs...)
}
