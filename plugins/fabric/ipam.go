package fabric

import (
	"context"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// pendingIPAM is an IPAM ADD that runs while the device moves.
type pendingIPAM struct {
	done chan struct{}
	res  *result.Result
	err  error
}

func startIPAM(d ipam.Delegate) *pendingIPAM {
	p := &pendingIPAM{done: make(chan struct{})}
	if d.Type == "" {
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		if p.err = failpoint.Hit("before/ipam-add"); p.err != nil {
			return
		}
		p.res, p.err = d.Add(context.Background())
	}()
	return p
}

func (p *pendingIPAM) wait() (*result.Result, error) {
	<-p.done
	return p.res, p.err
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
