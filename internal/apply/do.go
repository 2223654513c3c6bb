package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/announce"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// do carries out one step. Only children and rules push an undo: for the device itself plan.Return decides every way
// back alike, by comparing what a look finds with the snapshot.
func (r *Runner) do(ctx context.Context, s plan.Step) error {
	switch s := s.(type) {
	case plan.MoveRDMA:
		return hcaSteps{r}.move(ctx, s)
	case plan.RenameRDMA:
		return hcaSteps{r}.rename(ctx, s)
	case plan.SetDIM:
		return r.Host.RDMA.SetDIM(s.HCA.Index, s.On)
	case plan.SetAutoCounters:
		return r.Host.RDMA.SetAutoCounters(s.HCA.Index, s.Port, s.Mask)
	case plan.SetCM:
		return hcaSteps{r}.setCM(s)
	case plan.SetTrafficClass:
		return hcaSteps{r}.setTrafficClass(s)
	case plan.AwaitNetdev:
		return r.awaitNetdev(ctx)
	case plan.Revive:
		return hcaSteps{r}.revive(ctx, &s.HCA)
	case plan.MoveNetdev:
		return r.moveNetdev(ctx, s)
	case plan.CreateChild:
		return r.createChild(ctx, s)
	case plan.DeleteChild:
		return r.delete(s.In, s.Netdev.Index)
	case plan.DeleteUpper:
		return r.delete(s.In, s.Netdev.Index)
	case plan.SetLink:
		return r.setLink(ctx, s)
	case plan.Aside:
		return r.stepAside(s)
	case plan.AltNames:
		return r.altNames(s)
	case plan.AddRule:
		return addressSteps{r}.addRule(s)
	case plan.DelRule:
		return ignore(r.Pod.Link.DelRule(s.Rule), unix.ENOENT)
	case plan.Probe:
		return addressSteps{r}.probe(ctx, s)
	case plan.Announce:
		return addressSteps{r}.announce(ctx, s)
	case plan.SetVF:
		return r.setVF(ctx, s)
	case plan.Rebind:
		return hcaSteps{r}.rebind(ctx, s)
	}
	if is, err := r.kept(s); is {
		return err
	}
	return addressSteps{r}.do(ctx, s)
}

// addressSteps carries out the steps about addresses, routes and rules.
type addressSteps struct{ r *Runner }

func (a addressSteps) do(ctx context.Context, s plan.Step) error {
	switch s := s.(type) {
	case plan.AddAddr:
		side, index, err := a.r.on(s.In)
		if err != nil {
			return err
		}
		return ignore(side.Link.AddAddr(index, s.Addr), unix.EEXIST)
	case plan.DelAddr:
		side, index, err := a.r.on(s.In)
		if err != nil {
			return err
		}
		return ignore(side.Link.DelAddr(index, s.Addr), unix.EADDRNOTAVAIL)
	case plan.DelRoute:
		side, index, err := a.r.on(s.In)
		if err != nil {
			return err
		}
		return ignore(side.Link.DelRoute(index, s.Route), unix.ESRCH)
	case plan.AddRoute:
		side, index, err := a.r.on(s.In)
		if err != nil {
			return err
		}
		// The first one wins, as in CNI's ipam.ConfigureIface: two rails may be given one route.
		return ignore(addRoute(ctx, side.Link, index, s.Route), unix.EEXIST)
	}
	return fmt.Errorf("unknown step %T", s)
}

// dadWait bounds the wait for duplicate address detection: a random delay of up to a second, then a probe of a second
// (RFC 4862, section 5.4.2; net/ipv6/addrconf.c, addrconf_dad_kick), on a machine that may be busy. The caller's
// context bounds it too, and something has to be left of that for what comes after the routes.
const dadWait = 8 * time.Second

// addRoute waits for a route's IPv6 source: an address that has just come back is tentative, and the kernel takes no
// route with a tentative source (EINVAL; net/ipv6/route.c, ip6_route_info_create). It waits for nothing else.
func addRoute(ctx context.Context, c *link.Conn, index int, route device.Route) error {
	err := c.AddRoute(index, route)
	if !errors.Is(err, unix.EINVAL) || !route.Src.Is6() {
		return err
	}
	wait := dadWait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*3/4)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if waited := poll(ctx, func() (bool, error) {
		pending := tentative(c, index, route.Src) // before it is tried: it may be over in between
		err = c.AddRoute(index, route)
		return !pending || !errors.Is(err, unix.EINVAL), nil
	}); waited != nil || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w (its source address is not usable yet, or not there)", err)
	}
	return err
}

// tentative says whether the netdev has the address, and duplicate address detection is under way.
func tentative(c *link.Conn, index int, ip netip.Addr) bool {
	const dadFailed, tentative = 0x08, 0x40 // IFA_F_DADFAILED, IFA_F_TENTATIVE
	list, err := c.Addrs(index)
	return err == nil && slices.ContainsFunc(list, func(a device.Addr) bool {
		return a.Prefix.Addr() == ip && a.Flags&(dadFailed|tentative) == tentative
	})
}

func ignore(err error, errno unix.Errno) error {
	if errors.Is(err, errno) {
		return nil
	}
	return err
}

func (r *Runner) awaitNetdev(ctx context.Context) error {
	r.index = 0
	err := poll(ctx, func() (bool, error) {
		err := r.look()
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("netdev of %s did not come back after its RDMA device moved: %w", r.netdev.Address, err)
	}
	return nil
}

// moveNetdev moves and names in one message. Where the kernel has recreated the netdev on the target side already, only
// the name is left to do.
func (r *Runner) moveNetdev(ctx context.Context, s plan.MoveNetdev) error {
	target, err := r.side(s.To)
	if err != nil {
		return err
	}
	side, index, err := r.locate()
	if err != nil {
		return err
	}
	ch := link.Change{Name: s.Name}
	if s.Up {
		ch.Flags, ch.Mask = device.FlagUp, device.FlagUp
	}
	moved := r.at != s.To
	if moved {
		n, err := side.Link.ByIndex(index)
		if err == nil {
			err = side.unreserve(n)
		}
		if err != nil {
			return err
		}
		ch.Move, ch.NetNS = true, target.NS.FD()
	}
	r.index = 0
	err = side.Link.Set(index, ch)
	if moved && errors.Is(err, unix.EEXIST) {
		err = moveDroppingAltNames(side, index, ch)
	}
	if errors.Is(err, unix.EEXIST) {
		return r.rename(ctx, s.To, s.Name, ch.Flags)
	}
	return err
}

func (r *Runner) createChild(ctx context.Context, s plan.CreateChild) error {
	pod, err := r.side(plan.Pod)
	if err != nil {
		return err
	}
	c := link.Child{
		Parent: s.Master.Index,
		NetNS:  pod.NS.FD(),
		Name:   s.Name,
		PKey:   s.PKey,
		Umcast: s.Umcast,
		Group:  s.Group,
		Up:     true,
	}
	if err := newChild(r.Host, pod, c); err != nil {
		return err
	}
	r.Undo.Push("creation of IPoIB child "+s.Name, func() error {
		n, err := pod.Child(inventory.Child{PKey: s.PKey, Group: s.Group})
		if err != nil {
			return ignoreMissing(err)
		}
		return ignoreMissing(pod.Link.Delete(n.Index))
	})
	n, err := pod.Link.ByName(s.Name)
	if err != nil {
		return err
	}
	r.Track(nil, n)
	r.Found(plan.Pod, n)
	if s.Mode != nil {
		return setMode(ctx, pod, n.Index, *s.Mode)
	}
	return nil
}

// newChild creates a child. The kernel also looks for the name in the namespace of the socket, which is the host's
// (net/core/rtnetlink.c, __rtnl_newlink): a child whose name the host has is named only once it is in the pod.
func newChild(host, pod *Side, c link.Child) error {
	err := host.Link.NewChild(c)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, taken := pod.Link.ByName(c.Name); !errors.Is(taken, fs.ErrNotExist) {
		return err
	}
	name := c.Name
	c.Name, c.Up = fmt.Sprintf("fabric%x", c.Group), false
	if err := host.Link.NewChild(c); err != nil {
		return err
	}
	n, err := pod.Link.ByName(c.Name)
	if err != nil {
		return err
	}
	if err := pod.Link.Set(n.Index, link.Change{Name: name, Flags: device.FlagUp, Mask: device.FlagUp}); err != nil {
		return errors.Join(err, ignoreMissing(pod.Link.Delete(n.Index)))
	}
	return nil
}

func (r *Runner) delete(in plan.Side, index int) error {
	side, err := r.side(in)
	if err != nil {
		return err
	}
	return ignoreMissing(side.Link.Delete(index))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *Runner) altNames(s plan.AltNames) error {
	side, index, err := r.on(s.In)
	if err != nil {
		return err
	}
	if len(s.Del) > 0 {
		if err := side.Link.DelAltNames(index, s.Del); err != nil {
			return err
		}
	}
	if len(s.Add) == 0 {
		return nil
	}
	if err := side.Link.AddAltNames(index, s.Add); !errors.Is(err, unix.EEXIST) {
		return err
	}
	// One of them is taken: by another netdev, which keeps it, or by this one, as when udev was here first.
	for _, n := range s.Add {
		if err := ignore(side.Link.AddAltNames(index, []string{n}), unix.EEXIST); err != nil {
			return err
		}
	}
	return nil
}

func (a addressSteps) addRule(s plan.AddRule) error {
	pod, err := a.r.side(plan.Pod)
	if err != nil {
		return err
	}
	if err := pod.Link.AddRule(s.Rule); err != nil {
		return ignore(err, unix.EEXIST)
	}
	a.r.Undo.Push("rule "+s.Rule.String(), func() error { return ignore(pod.Link.DelRule(s.Rule), unix.ENOENT) })
	return nil
}

// writeIPv6Conf goes through /proc: rtnetlink can't set these. The calling thread's namespace decides which
// /proc/sys/net it sees.
func writeIPv6Conf(side *Side, name string, conf map[string]int32) error {
	if err := ofOne(name); err != nil {
		return err
	}
	return side.NS.Do(func() error {
		var errs []error
		for _, k := range slices.Sorted(maps.Keys(conf)) {
			f := filepath.Join("/proc/sys/net/ipv6/conf", name, k)
			if err := os.WriteFile(f, []byte(strconv.Itoa(int(conf[k]))), 0o600); err != nil {
				errs = append(errs, fmt.Errorf("write %s: %w", f, err)) // the others can be set all the same
			}
		}
		return errors.Join(errs...)
	})
}

// carrierWait bounds the wait before a neighbour advertisement. The kernel repeats the ARP announcement for IPv4, not
// this: sent before IPoIB has joined its broadcast group, or before the kernel has taken notice of that, it is lost.
const carrierWait = 2 * time.Second

func (a addressSteps) announce(ctx context.Context, s plan.Announce) error {
	side, index, err := a.r.on(plan.Pod)
	if err != nil {
		return err
	}
	n, err := side.Link.ByIndex(index)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.Addrs, func(a device.Addr) bool { return a.Prefix.Addr().Is6() }) && n.Flags&running == 0 {
		ctx, cancel := context.WithTimeout(ctx, carrierWait)
		defer cancel()
		_ = poll(ctx, func() (bool, error) { // without a carrier it is tried all the same
			now, err := side.Link.ByIndex(index)
			return err == nil && now.Flags&running != 0, err
		})
	}
	return side.NS.Do(func() error { return announce.Announce(index, n.ARPType, n.HWAddr, n.Broadcast, addrsOf(s)) })
}
