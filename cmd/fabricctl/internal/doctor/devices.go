package doctor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// States of a device of a Fabric.
const (
	DeviceHeld      = "held"      // a pod has it
	DeviceFree      = "free"      // no pod has it
	DeviceUnhealthy = "unhealthy" // no pod has it, and none should get it
)

// Device is a device of a Fabric in the cluster, once for each pod that holds it.
type Device struct {
	Node    string       `json:"node"`
	Device  string       `json:"device"`           // its PCI address
	HCA     string       `json:"hca,omitempty"`    // its RDMA device on the host
	Netdev  string       `json:"netdev,omitempty"` // its interface on the host
	Fabric  string       `json:"fabric"`
	Rail    string       `json:"rail,omitempty"`  // FABRIC/RAIL as discover shows it
	State   string       `json:"state"`           // held, free, unhealthy
	Pod     string       `json:"pod,omitempty"`   // NAMESPACE/NAME; empty: free, or the runtime has not told
	Since   *metav1.Time `json:"since,omitempty"` // when the pod started
	Problem string       `json:"problem,omitempty"`
}

// maxDeviceText bounds each text of a Device, in bytes: the agents of nodes write them. A namespace and a name have
// 317 bytes at most.
const maxDeviceText = 320

// Devices are the devices of Fabrics that pods hold, in the order of nodes, Fabrics and rails; with all also the
// others. Nodes that are gone have none.
func Devices(nodes []FabricNode, all bool) []Device {
	out := []Device{}
	for i := range nodes {
		n := &nodes[i]
		if n.Spec.Gone != nil {
			continue
		}
		for _, f := range n.Status.Fabrics {
			for _, d := range f.Devices {
				row := Device{
					Node: n.Name, Device: quote.Clip(d.ID, maxDeviceText), HCA: quote.Clip(d.HCA, maxDeviceText),
					Netdev: n.netdevOf(d.HCA), Fabric: quote.Clip(f.Name, maxDeviceText),
					Problem: quote.Clip(d.Problem, maxDeviceText), State: DeviceHeld,
				}
				for _, p := range d.Pods {
					row.Pod = quote.Clip(p, maxDeviceText)
					out = append(out, row)
				}
				if len(d.Pods) > 0 || !all {
					continue
				}
				if row.State = DeviceFree; d.Problem != "" {
					row.State = DeviceUnhealthy
				}
				out = append(out, row)
			}
		}
	}
	return out
}

// netdevOf is the interface of an RDMA device on the host, by the inventory; empty: not known.
func (n *FabricNode) netdevOf(hca string) string {
	if n.Node == nil {
		return ""
	}
	if h := n.Node.HCA(hca); h != nil {
		for _, p := range h.Ports {
			if p.Netdev != "" {
				return quote.Clip(p.Netdev, maxDeviceText)
			}
		}
	}
	return ""
}
