package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// conf is what matters of a NAD's configuration.
type conf struct {
	Type    string   `json:"type"`
	Plugins []conf   `json:"plugins"`
	Master  string   `json:"master"`
	IPAM    ipamConf `json:"ipam"`

	Allocation string `json:"allocation"`

	DeviceID   string `json:"deviceID"`
	PCIBusID   string `json:"pciBusID"`
	Device     string `json:"device"`
	HWAddr     string `json:"hwaddr"`
	KernelPath string `json:"kernelpath"`
	RDMADevice string `json:"rdmaDevice"`
	GUID       string `json:"guid"`
}

type ipamConf struct {
	Type    string `json:"type"`
	Range   string `json:"range"`
	Network string `json:"network_name"`
}

func (n *NAD) conf() (conf, error) {
	var c conf
	if err := json.Unmarshal([]byte(n.Spec.Config), &c); err != nil {
		return c, err
	}
	if len(c.Plugins) > 0 {
		return c.Plugins[0], nil
	}
	return c, nil
}

func (n *NAD) ipam() ipamConf {
	c, err := n.conf()
	if err != nil {
		return ipamConf{} // clusterNADs reports it
	}
	return c.IPAM
}

func clusterNADs(c *Cluster) (out []Finding) {
	for i := range c.NADs.Items {
		out = append(out, c.nad(&c.NADs.Items[i])...)
	}
	return pass(out, "cluster-nad", fmt.Sprintf("%d networks", len(c.NADs.Items)))
}

// nad judges one network. Of those of Fabrics the controller knows better.
func (c *Cluster) nad(n *NAD) (out []Finding) {
	name := n.Metadata.Namespace + "/" + n.Metadata.Name
	if f := c.namesake(n); f != nil {
		if n.ownedBy(f) {
			return nil
		}
		d := finding("cluster-nad", Warn,
			name+" has the name of Fabric "+f.Name+", and is not the Fabric's: its pods get another network")
		d.Cure = "kubectl -n " + n.Metadata.Namespace + " delete network-attachment-definition " + n.Metadata.Name +
			", if nothing uses it; or another name"
		return one(d)
	}
	conf, err := n.conf()
	if err != nil {
		return one(finding("cluster-nad", Fail, name+": spec.config is no JSON: "+err.Error()))
	}
	resource := n.Metadata.Annotations[resourceAnnotation]
	named := conf.Master + conf.DeviceID + conf.PCIBusID + conf.Device + conf.HWAddr + conf.KernelPath +
		conf.RDMADevice + conf.GUID
	switch {
	case resource == "" && named == "" &&
		slices.Contains([]string{"fabric", "sriov", "ib-sriov", "host-device"}, conf.Type):
		return one(finding("cluster-nad", Fail, name+" has neither a resourceName nor a device"))
	case resource != "" &&
		!slices.ContainsFunc(c.Nodes, func(n corev1.Node) bool { return countOf(&n, resource) > 0 }):
		return one(finding("cluster-nad", Fail, name+": no node has the resource "+resource))
	}
	if device := cmp.Or(conf.Device, conf.Master); device != "" && conf.Type == "fabric" {
		var without []string
		c.present(func(p *FabricNode) {
			if len(p.Node.HCAs) > 0 && p.Node.Netdev(device) == nil && !has(p.Node, device) {
				without = append(without, p.Name)
			}
		})
		if len(without) > 0 {
			out = append(out, finding("cluster-nad", Warn, name+" names the interface "+device+", which is not on "+
				few(without)))
		}
	}
	return out
}

// has reports whether a device that is in a pod now has this name on the host.
func has(n *node.Node, netdev string) bool {
	return slices.ContainsFunc(n.Ports(), func(p topology.Port) bool { return p.Netdev == netdev })
}

// namesake is the Fabric of a network's name, or nil.
func (c *Cluster) namesake(n *NAD) *v1alpha1.Fabric {
	i := slices.IndexFunc(c.Fabrics, func(f v1alpha1.Fabric) bool { return f.Name == n.Metadata.Name })
	if i < 0 {
		return nil
	}
	return &c.Fabrics[i]
}

// ownedBy reports whether the controller has made the network for the Fabric.
func (n *NAD) ownedBy(f *v1alpha1.Fabric) bool {
	for _, o := range n.Metadata.Owners {
		if o.Kind == "Fabric" && o.UID == string(f.UID) {
			return true
		}
	}
	return false
}

// clusterRanges finds networks whose ranges overlap without being one: whereabouts keeps them in different pools.
func clusterRanges(c *Cluster) (out []Finding) {
	type used struct {
		name string
		p    netip.Prefix
		pool string
	}
	var all []used
	for i := range c.NADs.Items {
		n := &c.NADs.Items[i]
		ipam := n.ipam()
		if ipam.Type != "whereabouts" || ipam.Range == "" {
			continue
		}
		name := n.Metadata.Namespace + "/" + n.Metadata.Name
		p, err := netip.ParsePrefix(ipam.Range)
		if err != nil {
			if !strings.Contains(ipam.Range, "-") { // 10.0.0.1-10.0.0.9/24 is allowed
				out = append(out, finding("cluster-ranges", Fail, name+": range "+ipam.Range+" is no prefix"))
			}
			continue
		}
		for _, o := range all {
			if o.p.Overlaps(p) && (o.p.Masked() != p.Masked() || o.pool != ipam.Network) {
				out = append(
					out,
					finding("cluster-ranges", Warn, fmt.Sprintf("%s (%s) and %s (%s) overlap", o.name, o.p, name, p)),
				)
			}
		}
		all = append(all, used{name, p, ipam.Network})
	}
	if len(all) == 0 {
		return out
	}
	return pass(out, "cluster-ranges", fmt.Sprintf("%d ranges", len(all)))
}
