package attach

import (
	"fmt"
	"strings"
)

// siblings refuses to take an RDMA device that would take the interfaces of others with it.
func (f *Facts) siblings() *Refusal {
	if len(f.Siblings) == 0 {
		return nil
	}
	return &Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("RDMA device %s carries %s as well as %s: moving it would take both",
			f.Device.HCA.Name, strings.Join(f.Siblings, ", "), f.Device.Netdev.Name),
		Hint: "use IPoIB children (\"mode\": \"ipoib\") or shared RDMA mode on a device with two ports",
	}
}

// portsAlong are the interfaces of other ports that go along.
func (f *Facts) portsAlong() []OtherPort {
	if !f.Config.AllPorts {
		return nil
	}
	return f.OtherPorts
}

// bonded refuses to take the RDMA device of a bond from it. The kernel lets no bond into another network namespace:
// netns_immutable in bond_setup, drivers/net/bonding/bond_main.c (NETIF_F_NETNS_LOCAL before Linux 6.15).
func (f *Facts) bonded() *Refusal {
	if f.Bond == "" {
		return nil
	}
	return &Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("RDMA device %s is that of bond %s (RoCE LAG), which can't leave the host: the kernel "+
			"lets no bond into another network namespace", f.Device.HCA.Name, f.Bond),
		Hint: "release its members from the bond, or give pods VFs",
	}
}

// portsLeft refuses to take the RDMA device from interfaces that stay on the host.
func (f *Facts) portsLeft() *Refusal {
	if f.Config.AllPorts || len(f.OtherPorts) == 0 {
		return nil
	}
	var names []string
	for _, p := range f.OtherPorts {
		names = append(names, fmt.Sprintf("%s (port %d)", p.Netdev, p.Number))
	}
	return &Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("RDMA device %s carries %s as well as %s: a move would leave those without RDMA",
			f.Device.HCA.Name, strings.Join(names, ", "), f.Device.Netdev.Name),
		Hint: "\"allPorts\": true moves all of them, or use shared RDMA mode",
	}
}
