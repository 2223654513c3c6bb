package policy

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// No pattern matches a name that a pod can choose.
func TestForgedNames(t *testing.T) {
	shared := netdev(func(n *device.Netdev) { n.Name = "ens1f0" })
	shared.Shared = true
	inPod := netdev(nil)
	inPod.InPod = true
	moves(t, map[string]moveTest{
		"RDMA name in shared mode":      {`{"devices":["mlx5_0"]}`, shared, "pods can change the name mlx5_0"},
		"another's RDMA name":           {`{"devices":["mlx5_7"]}`, shared, "is not among its devices [mlx5_7]"},
		"interface name in shared mode": {`{"devices":["ens1f0"]}`, shared, ""},
		"address in shared mode":        {`{"devices":["0000:3b:00.0"]}`, shared, ""},
		"name in the pod":               {`{"devices":["ens1f0"]}`, inPod, "not among"},
		"altname in the pod":            {`{"devices":["enp59s0f0"]}`, inPod, "not among"},
		"RDMA name, exclusive":          {`{"devices":["mlx5_0"]}`, inPod, ""},
		"address of one in the pod":     {`{"devices":["pci/0000:3b:*"]}`, inPod, ""},
	})
}
