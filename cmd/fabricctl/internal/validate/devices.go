package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// same collects what is the same on many nodes: text -> nodes.
type same struct {
	texts []string
	nodes map[string][]string
}

func (s *same) add(node, text string) {
	if s.nodes == nil {
		s.nodes = map[string][]string{}
	}
	if s.nodes[text] == nil {
		s.texts = append(s.texts, text)
	}
	s.nodes[text] = append(s.nodes[text], node)
}

// Some names a few of many nodes.
func Some(nodes []string) string {
	const most = 3
	if len(nodes) <= most {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", nodes[0], len(nodes)-1)
}

// devices says which devices of the nodes each Fabric gets, and whether its addresses are enough for them.
func (c *checker) devices() error {
	if len(c.world.Nodes) == 0 {
		return nil
	}
	slices.SortFunc(c.world.Nodes, func(a, b *node.Node) int { return cmp.Compare(a.Name, b.Name) })
	var list []fabrics.Fabric
	for _, a := range c.accepted {
		list = append(list, *a.Fabric)
	}
	fabrics.Sort(list)
	var wanted, modes, unused same
	unmatched := map[string]string{} // by Fabric: on the first node
	for _, n := range c.world.Nodes {
		devices := candidates(n)
		here := slices.DeleteFunc(slices.Clone(list), func(f fabrics.Fabric) bool {
			return !c.world.selects(&f, n.Name)
		})
		assigned := fabrics.Assign(here, devices, nil)
		for i := range c.accepted {
			a := &c.accepted[i]
			c.given(a, n.Name, assigned[a.Name])
			if unmatched[a.Name] == "" && c.world.selects(a.Fabric, n.Name) {
				if why := fabrics.Unmatched(a.Fabric, devices, assigned); why != "" {
					unmatched[a.Name] = n.Name + ": " + why
				}
			}
			if why := unfit(a.Fabric, n, assigned[a.Name]); why != "" && a.item != nil {
				modes.add(n.Name, a.Name+"\x00"+why)
			}
		}
		contested(here, devices, assigned, func(text string) { wanted.add(n.Name, text) })
		if text := left(devices, assigned); text != "" {
			unused.add(n.Name, text)
		}
	}
	c.empty(unmatched)
	for _, text := range modes.texts {
		name, why, _ := strings.Cut(text, "\x00")
		a := c.named(name)
		c.add(a.item, doctor.Fail, byNodes, "", Some(modes.nodes[text])+": "+why)
	}
	for _, s := range []*same{&wanted, &unused} {
		for _, text := range s.texts {
			c.add(nil, doctor.Warn, byNodes, "", Some(s.nodes[text])+": "+text)
		}
	}
	return c.addresses()
}

// selects reports whether the nodeSelector of a Fabric selects a node.
func (w *World) selects(f *fabrics.Fabric, node string) bool {
	return f.Nodes == nil || w.Labels != nil && f.Nodes.Matches(w.Labels[node])
}

func (c *checker) named(name string) *candidate {
	i := slices.IndexFunc(c.accepted, func(a candidate) bool { return a.Name == name })
	return &c.accepted[i]
}

// given notes the devices of a node that a Fabric gets.
func (c *checker) given(a *candidate, node string, devices []fabrics.Candidate) {
	if len(devices) == 0 {
		return
	}
	of := DevicesOfNode{Node: node}
	for _, d := range devices {
		of.Devices = append(of.Devices, d.HCA)
	}
	row := &c.Fabrics[a.row]
	row.Nodes, row.Devices = append(row.Nodes, of), row.Devices+len(devices)
}

// empty finds the Fabrics that no node has a device for.
func (c *checker) empty(unmatched map[string]string) {
	for i := range c.accepted {
		a := &c.accepted[i]
		if c.Fabrics[a.row].Devices > 0 || a.item == nil {
			continue
		}
		if a.Nodes != nil && c.world.Labels == nil {
			c.add(a.item, doctor.Warn, byNodes, "spec.nodeSelector", "the labels of Nodes are not known: --cluster "+
				"tells which devices it gets")
			continue
		}
		if a.Nodes != nil && !slices.ContainsFunc(c.world.Nodes, func(n *node.Node) bool {
			return c.world.selects(a.Fabric, n.Name)
		}) {
			c.add(a.item, doctor.Fail, byNodes, "spec.nodeSelector", "selects none of the nodes")
			continue
		}
		why := cmp.Or(unmatched[a.Name], "no node has an RDMA device")
		if n := len(c.world.Nodes); n > 1 {
			why = fmt.Sprintf("gets no device of %d nodes, as on %s", n, why)
		}
		c.add(a.item, doctor.Fail, byNodes, "spec.match", why)
	}
}

// unfit is why devices of a node are of no use in a Fabric.
func unfit(f *fabrics.Fabric, n *node.Node, devices []fabrics.Candidate) string {
	if len(devices) == 0 {
		return ""
	}
	rdma, _ := f.Network["rdma"].(string)
	switch {
	case f.Attachment == v1alpha1.IPoIBChild && n.RDMAMode == device.NetnsExclusive.String():
		return "the node's RDMA mode is exclusive: with attachment IPoIBChild a pod gets an interface and no " +
			"RDMA device; write attachment: WholeDevice, or rdma system set netns shared"
	case rdma != "" && rdma != "auto" && rdma != "none" && n.RDMAMode != "" && rdma != n.RDMAMode:
		return fmt.Sprintf("network.rdmaMode needs %s, and the node's RDMA mode is %s: the plugin refuses it; write "+
			"rdmaMode: Any, or rdma system set netns %s", rdma, n.RDMAMode, rdma)
	case f.Attachment == v1alpha1.IPoIBChild:
		for _, d := range devices {
			if d.LinkLayer == device.Ethernet {
				return fmt.Sprintf("%s is Ethernet: attachment IPoIBChild is for InfiniBand ports only; write "+
					"match.linkLayer: InfiniBand, or attachment: WholeDevice", d.HCA)
			}
		}
	}
	return ""
}

// contested finds devices that several Fabrics of one precedence would have.
func contested(list []fabrics.Fabric, devices []fabrics.Candidate, assigned map[string][]fabrics.Candidate,
	found func(string),
) {
	for i := range list {
		f := &list[i]
		alone := fabrics.Assign(list[i:i+1], devices, nil)[f.Name]
		for k := range list[:i] {
			o := &list[k]
			if o.Precedence != f.Precedence {
				continue
			}
			var names []string
			for _, d := range alone {
				same := func(a fabrics.Candidate) bool { return a.Location == d.Location }
				if slices.ContainsFunc(assigned[o.Name], same) {
					names = append(names, d.HCA)
				}
			}
			if len(names) > 0 {
				found(fmt.Sprintf("Fabrics %s and %s both match %s: %s gets what both match, as the first by name, "+
					"unless spec.precedence says otherwise", o.Name, f.Name, strings.Join(names, ", "), o.Name))
			}
		}
	}
}

// left names the devices that carry traffic and are in no Fabric.
func left(devices []fabrics.Candidate, assigned map[string][]fabrics.Candidate) string {
	taken := map[device.Location]bool{}
	for _, list := range assigned {
		for _, d := range list {
			taken[d.Location] = true
		}
	}
	var names []string
	for _, d := range devices {
		if !taken[d.Location] && d.Refused == nil && d.Active {
			names = append(names, d.HCA)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no Fabric has " + strings.Join(names, ", ") + ": no pod can ask for it"
}

// addresses compares the addresses of the Fabrics with their devices, and gives each node its range as the controller
// does.
func (c *checker) addresses() error {
	for i := range c.accepted {
		a := &c.accepted[i]
		if a.item == nil {
			continue
		}
		inCluster, onNode := 0, 0
		for _, n := range c.Fabrics[a.row].Nodes {
			need := len(n.Devices) * max(a.Shares, 1)
			inCluster, onNode = inCluster+need, max(onNode, need)
		}
		if err := a.CheckCapacity(inCluster, onNode); err != nil {
			c.add(a.item, doctor.Fail, byController, "spec.addresses", "too few addresses: "+err.Error())
			c.Fabrics[a.row].Accepted = false
		}
		if a.NodeRanges == nil {
			continue
		}
		p, err := noderange.New(*a.NodeRanges, nil)
		if err != nil {
			return err
		}
		for _, n := range c.Fabrics[a.row].Nodes {
			if _, _, err := p.Assign(n.Node, time.Time{}); err != nil {
				c.add(a.item, doctor.Fail, byController, "spec.addresses.nodeRanges", err.Error())
				break
			}
		}
	}
	return nil
}

// candidates are the devices of a node as its agent sees them.
func candidates(n *node.Node) (out []fabrics.Candidate) {
	discovered := map[string]string{}
	for _, f := range n.Fabrics().Fabrics {
		for _, p := range f.On(n.Name) {
			discovered[p.HCA] = f.Name
		}
	}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		at := h.Location()
		if at.Address.IsZero() { // made by software: the agent offers none
			continue
		}
		d := fabrics.Candidate{
			Location: at, HCA: h.Name, Names: []string{at.ID(), at.Address.String(), h.Name}, InPod: h.InPod != "",
			Discovered: discovered[h.Name], State: "no port", Refused: n.KeptOnHost(h),
			Driver: h.Driver,
		}
		ports(&d, n, h)
		out = append(out, d)
	}
	return out
}

// ports fills in what the ports of an HCA say.
func ports(d *fabrics.Candidate, n *node.Node, h *node.HCA) {
	for k := range h.Ports {
		p := &h.Ports[k]
		if k == 0 {
			d.LinkLayer, d.State = p.LinkLayer, p.State
			d.Prefix, d.RateGb = p.Prefix, p.RateGb
			if p.State != device.PortActive.String() {
				d.State += " (" + p.Phys + ")"
			}
		}
		d.Active = d.Active || n.CarriesTraffic(p)
		if netdev := n.Netdev(p.Netdev); netdev != nil {
			d.Names = append(append(d.Names, netdev.Name), netdev.AltNames...)
		}
	}
}
