package attach

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// onHost is what the pod's interface takes along of the addressing that it has on the host, nil for none; what speaks
// against it; and what is unusual. An address that a DHCP server has given for a time can't go along: nothing in the
// pod would renew it, and the pod would lose it.
func (f *Facts) onHost() (h *plan.OnHost, r *Refusal, warning string) {
	n := f.Device.Netdev
	if !f.Config.HostAddresses {
		return nil, nil, ""
	}
	if n == nil {
		return nil, &Refusal{
			Reason:  BadConfig,
			Message: fmt.Sprintf("hostAddresses: device %s has no interface, and so no address", f.Device.DeviceKey),
			Hint:    "leave hostAddresses out",
		}, ""
	}
	var wide []device.Route // of any origin
	if u := f.Device.Uplink; u != nil && len(u.Interfaces) > 0 {
		wide = u.Interfaces[0].Routes
	}
	h = plan.HostAddressing(f.Config, n, f.HostRules, wide)
	switch {
	case len(h.Leases) > 0:
		r = &Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("hostAddresses: address %s of %s is a lease that ends in %d s, and in the pod "+
				"nothing renews it", h.Leases[0].Prefix, n.Name, h.Leases[0].Valid),
			Hint: `if the interface never gets another one, set "keepLeases": true; otherwise let the pod ask for a ` +
				`lease of its own: "ipam": {"type": "dhcp"}`,
		}
	case len(h.Addrs) == 0:
		r = &Refusal{
			Reason:  NotYet,
			Message: fmt.Sprintf("hostAddresses: %s has no address on the host but those of its link", n.Name),
			Hint:    "configure one, wait for a router advertisement, or choose an IPAM plugin",
			Awaited: true,
		}
	case h.Waits:
		r = &Refusal{
			Reason:  NotYet,
			Message: fmt.Sprintf("hostAddresses: an address of %s is still being checked for duplicates", n.Name),
			Hint:    "try again",
			Awaited: true,
		}
	}
	if len(h.Advertised) > 1 && !h.Token.IsValid() {
		warning = fmt.Sprintf("addresses %v of %s have different interface identifiers: in the pod router "+
			"advertisements renew none that the kernel would not make itself", h.Advertised, n.Name)
	}
	return h, r, warning
}
