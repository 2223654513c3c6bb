package fabric

import (
	"context"
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// callIPAM calls an IPAM plugin for an attachment, when nothing runs any more that an earlier call for it has started:
// what outlives a killed ADD would have the address after the last DEL, so it is killed. The plugin, and whatever it
// starts, inherits the lock; it is given back for all of them when the plugin has answered.
func (s *session) callIPAM(k journal.Key, d ipam.Delegate, f func(ipam.Delegate) error) error {
	now, cancel := bounded(0)
	defer cancel()
	err := s.callIPAMWithin(now, k, d, f)
	if !errors.Is(err, journal.ErrBusy) {
		return err
	}
	switch n, err := s.store.EndIPAM(s.Proc, k, ipam.DepthVariable); {
	case n > 0:
		s.log.Warn("ended what the IPAM plugin of a killed ADD has left behind", "processes", n)
	case err != nil && !errors.Is(err, journal.ErrHeldAlive):
		s.log.Warn("waiting for what an IPAM plugin has left behind", "reason", err)
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	return s.callIPAMWithin(ctx, k, d, f)
}

// callIPAMWithin is callIPAM with another bound for the wait. The error of one that was too long matches
// journal.ErrBusy.
func (s *session) callIPAMWithin(
	ctx context.Context, k journal.Key, d ipam.Delegate, f func(ipam.Delegate) error,
) error {
	if d.Type == "" {
		return nil
	}
	lock, err := s.store.LockIPAM(ctx, k)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	d.Hold = lock.File()
	return f(d)
}

// callIPAMDel gives the addresses of an attachment back.
func (s *session) callIPAMDel(k journal.Key, d ipam.Delegate) error {
	return s.callIPAM(k, d, func(d ipam.Delegate) error { return d.Del(context.Background()) })
}

// resultOf tells the runtime of addresses and routes that were not IPAM's.
func resultOf(a *plan.Addressing) *result.Result {
	out := &result.Result{}
	for _, p := range a.Addrs {
		out.Addresses = append(out.Addresses, result.Address{Prefix: p, Interface: result.NoInterface})
	}
	for _, r := range a.Routes {
		t := result.Route{Dst: r.Dst, Gateway: r.Gateway, Priority: int(r.Priority)}
		if r.Table != 0 {
			t.Table = new(int(r.Table))
		}
		out.Routes = append(out.Routes, t)
	}
	return out
}

// addressing turns an IPAM result into what plan works with.
func addressing(ips *result.Result) *plan.Addressing {
	out := &plan.Addressing{}
	if ips == nil {
		return out
	}
	for _, a := range ips.Addresses {
		out.Addrs = append(out.Addrs, a.Prefix)
		out.Gateways = append(out.Gateways, a.Gateway)
	}
	for _, r := range ips.Routes {
		d := device.Route{
			Dst:      r.Dst,
			Gateway:  r.Gateway,
			MTU:      uint32(r.MTU),
			AdvMSS:   uint32(r.AdvMSS),
			Priority: uint32(r.Priority),
		}
		if r.Table != nil {
			d.Table = uint32(*r.Table)
		}
		if r.Scope != nil {
			d.Scope = uint8(*r.Scope)
		}
		out.Routes = append(out.Routes, d)
	}
	return out
}
