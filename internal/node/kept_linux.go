package node

import (
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// OnHost reads an RDMA device of the host, its netdev, and what the node policy looks at.
func OnHost(r *inventory.Reader, name string, mode device.NetnsMode) (policy.Device, error) {
	address, err := r.HCAAddress(name)
	if err != nil {
		return policy.Device{}, err
	}
	found, err := r.At(address)
	if err != nil { // also two netdevs on one HCA, one function with two ports: the plugin refuses it, too
		return policy.Device{}, err
	}
	// it is on the function that carries the device with the netdev, like the RDMA device of a bond
	if found.HCA == nil {
		if found.HCA, err = r.HCANamed(name); err != nil {
			return policy.Device{}, err
		}
		found.HCA.Address = address
	}
	out := policy.Device{
		Address: found.HCA.Address, PCI: found.PCI, Netdev: found.Netdev, HCA: found.HCA,
		Shared: mode == device.NetnsShared,
	}
	nd := found.Netdev
	if nd == nil {
		return out, nil
	}
	if nd.Addrs, err = r.Addrs(nd.Index); err != nil {
		return out, err
	}
	uppers, err := r.Uppers(nd)
	if err != nil {
		return out, err
	}
	out.Uplink, err = r.Uplink(nd, uppers)
	return out, err
}
