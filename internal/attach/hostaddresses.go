package attach

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// hostAddresses judges whether the pod can have the addresses that the interface has on the host. One that a DHCP
// server has given for a time can't go along: nothing in the pod would renew it, and the pod would lose it.
func (d *decider) hostAddresses() {
	n := d.Device.Netdev
	if !d.Config.HostAddresses {
		return
	}
	if n == nil {
		d.refuse(&Refusal{
			Reason:  BadConfig,
			Message: fmt.Sprintf("hostAddresses: device %s has no interface, and so no address", d.Device.DeviceKey),
			Hint:    "leave hostAddresses out",
		})
		return
	}
	h := plan.HostAddressing(d.Config, n, d.HostRules, d.wideRoutes())
	d.decision.Attachment.Host = h
	switch {
	case len(h.Leases) > 0:
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("hostAddresses: address %s of %s is a lease that ends in %d s, and in the pod "+
				"nothing renews it", h.Leases[0].Prefix, n.Name, h.Leases[0].Valid),
			Hint: `if the interface never gets another one, set "keepLeases": true; otherwise let the pod ask for a ` +
				`lease of its own: "ipam": {"type": "dhcp"}`,
		})
	case len(h.Addrs) == 0:
		d.refuse(&Refusal{
			Reason:  NotYet,
			Message: fmt.Sprintf("hostAddresses: %s has no address on the host but those of its link", n.Name),
			Hint:    "configure one, wait for a router advertisement, or choose an IPAM plugin",
			Awaited: true,
		})
	case h.Waits:
		d.refuse(&Refusal{
			Reason:  NotYet,
			Message: fmt.Sprintf("hostAddresses: an address of %s is still being checked for duplicates", n.Name),
			Hint:    "try again",
			Awaited: true,
		})
	}
	if len(h.Advertised) > 1 && !h.Token.IsValid() {
		d.decision.Warnings = append(d.decision.Warnings, fmt.Sprintf("addresses %v of %s have different "+
			"interface identifiers: in the pod router advertisements renew none that the kernel would not make itself",
			h.Advertised, n.Name))
	}
}

// wideRoutes are the default routes of the netdev, of any origin.
func (f *Facts) wideRoutes() []device.Route {
	if u := f.Device.Uplink; u != nil && len(u.Interfaces) > 0 {
		return u.Interfaces[0].Routes
	}
	return nil
}
