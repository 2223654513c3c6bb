package inventory

import (
	"errors"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Bond is the kind of a bond, as netlink has it.
const Bond = "bond"

// PortNetdev is a port of an RDMA device with its interface.
type PortNetdev struct {
	Number uint32
	Netdev *device.Netdev
}

// OtherPorts returns the ports of an RDMA device whose interfaces are functions of their own, in the order of their
// numbers: mlx5 makes one RDMA device for the ports of a card in multiport RoCE mode, and for those of a multiport
// E-Switch, each of which is a PCI function (drivers/infiniband/hw/mlx5/main.c, Linux 6.12). The ports are read
// already. Interfaces in other network namespaces, and representors, are not among them. A bond is, without an address:
// it stands for the ports that are its members (RoCE LAG), mlx5_lag_get_roce_netdev in
// drivers/net/ethernet/mellanox/mlx5/core/lag.
func (r *Reader) OtherPorts(d *Device) (out []PortNetdev, err error) {
	if d.HCA == nil {
		return nil, nil
	}
	for i := range d.HCA.Ports {
		p := &d.HCA.Ports[i]
		if p.Netdev == 0 || d.Netdev != nil && int(p.Netdev) == d.Netdev.Index {
			continue
		}
		n, err := r.byIndex(int(p.Netdev))
		if errors.Is(err, fs.ErrNotExist) { // it has left meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		r.complete(n)
		if n.Address.IsZero() && n.Kind != Bond || !n.Address.IsZero() && n.Address == d.Address || representor(n) {
			continue
		}
		out = append(out, PortNetdev{p.Number, n})
	}
	return out, nil
}
