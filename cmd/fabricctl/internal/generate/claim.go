package generate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// MaxDevices bounds the requests, the constraints and the devices of a ResourceClaim (resource.k8s.io/v1,
// DeviceRequestsMaxSize, DeviceConstraintsMaxSize, AllocationResultsMaxSize).
const MaxDevices = 32

// Claim is what a ResourceClaimTemplate asks for.
type Claim struct {
	Requests []Request
	Together [][]string // requests whose devices share a PCIe root
}

// Request is one request of a claim.
type Request struct {
	Name      string
	Class     string
	Count     int
	Selectors []string // CEL
	Reason    string
}

// place is a rail of the workload, and what nodes have near it.
type place struct {
	network *Network
	index   int // of the rail in its network
	gpus    int // below its PCIe root, on most nodes
}

// claim makes the claim of the workload. A request is for all rails of a network, unless one differs from another: by
// its number, or by the GPUs that go with it.
func (d *data) claim(nodes []*node.Node) error {
	if d.VFs {
		return errors.New("claims are for whole ports: leave out virtual functions (--vfs)")
	}
	var places []place
	for i := range d.Workload {
		for j := range d.Workload[i].Rails {
			places = append(places, place{network: &d.Workload[i], index: j})
		}
	}
	near(places, nodes) // with all rails: GPUs are shared out to those on one PCIe root
	if err := d.limit(); err != nil {
		return err
	}
	places = places[:d.RailCount()]
	c := &Claim{}
	switch {
	case d.GPUClass != "":
		if err := d.shareOut(places); err != nil {
			return err
		}
		d.aligned(c, places)
	case d.PerRail:
		for i := range places {
			c.Requests = append(c.Requests, d.rail(i, &places[i], true))
		}
	default:
		for i := range d.Workload {
			n := &d.Workload[i]
			r := Request{
				Name: n.Name, Class: class(n), Count: len(n.devices()), Reason: "all rails of " + n.Fabric.Name,
			}
			if d.Rails > 0 || d.cluster {
				r.Reason = "any of them: the scheduler chooses"
			}
			if n.Fabric.Planes {
				r.Reason = "a rail that is a plane of its own"
			}
			c.Requests = append(c.Requests, d.fast(r))
		}
	}
	devices := 0
	for _, r := range c.Requests {
		devices += r.Count
	}
	if devices > MaxDevices {
		return fmt.Errorf("%d devices in one claim: Kubernetes allows %d; ask for fewer with --rails or --gpus",
			devices, MaxDevices)
	}
	d.Claim = c
	return nil
}

func (d *data) workloadName() string {
	var names []string
	for _, n := range d.Workload {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// class is the DeviceClass that the controller makes for a Fabric.
func class(n *Network) string { return n.Name + "." + AgentPrefix }

// rail is a request for one rail: with own for the one of this number.
func (d *data) rail(i int, p *place, own bool) Request {
	n := p.network
	r := Request{Name: fmt.Sprintf("rail%d", i), Class: class(n), Count: 1, Reason: "any rail of " + n.Name}
	switch index := n.Rails[p.index].Index; {
	case n.Fabric.Planes:
		r.Reason = "the plane " + n.Name
	case own:
		r.Reason = fmt.Sprintf("rail %d of %s", index, n.Name)
		r.Selectors = []string{fmt.Sprintf(`device.attributes["%s"].rail == %d`, AgentPrefix, index)}
	}
	return d.fast(r)
}

// fast adds the least rate to a request.
func (d *data) fast(r Request) Request {
	if d.MinRate > 0 {
		r.Selectors = append(r.Selectors,
			fmt.Sprintf(`device.attributes["%s"].?rateGb.orValue(0) >= %d`, AgentPrefix, d.MinRate))
	}
	return r
}

// aligned asks for each rail together with its part of the GPUs below the same PCIe root. Rails are named by number
// only where it matters: where they do not all have as many GPUs, or if it was asked for.
func (d *data) aligned(c *Claim, places []place) {
	differ := slices.ContainsFunc(places, func(p place) bool { return p.gpus != places[0].gpus })
	d.GPUs = 0
	for i := range places {
		p := &places[i]
		r := d.rail(i, p, d.PerRail || differ)
		c.Requests = append(c.Requests, r)
		if p.gpus == 0 {
			continue
		}
		g := Request{
			Name: fmt.Sprintf("gpus%d", i), Class: d.GPUClass, Count: p.gpus, Reason: "on the PCIe root of " + r.Name,
		}
		c.Requests = append(c.Requests, g)
		c.Together = append(c.Together, []string{r.Name, g.Name})
		d.GPUs += p.gpus
	}
	d.gpusInClaim = true
}

// near finds out how many GPUs go with each rail, by what most nodes have.
func near(places []place, nodes []*node.Node) {
	seen := make([]map[int]int, len(places))
	for i := range seen {
		seen[i] = map[int]int{}
	}
	for _, n := range nodes {
		for i, gpus := range beside(places, n) {
			if gpus >= 0 {
				seen[i][gpus]++
			}
		}
	}
	for i := range places {
		places[i].gpus = usual(seen[i])
	}
}

// shareOut gives each rail its GPUs: those near it, or as many as were asked for.
func (d *data) shareOut(places []place) error {
	if !slices.ContainsFunc(places, func(p place) bool { return p.gpus > 0 }) {
		return fmt.Errorf("--gpu-class %s: no rail of %s has its PCIe root in common with a GPU: leave it out, and "+
			"the device plugin of the GPUs gives them", d.GPUClass, d.workloadName())
	}
	if d.askedGPUs < 0 {
		return nil
	}
	each := d.askedGPUs / max(len(places), 1)
	for i := range places {
		if p := &places[i]; each == 0 || each*len(places) != d.askedGPUs || each > p.gpus {
			return fmt.Errorf("--gpus %d with --gpu-class: want as many for each of %d rails, and no more than are on "+
				"its PCIe root (rail %d: %d)", d.askedGPUs, len(places), p.network.Rails[p.index].Index, p.gpus)
		}
		places[i].gpus = each
	}
	return nil
}

// beside is how many GPUs of a node each rail has to itself: those below its PCIe root, divided by the rails there; -1
// where the node does not have the rail.
func beside(places []place, n *node.Node) []int {
	gpus, rails := map[string]int{}, map[string]int{}
	for i := range n.GPUs {
		gpus[n.GPUs[i].Place().PCIeRoot()]++
	}
	roots := make([]string, len(places))
	for i := range places {
		p := &places[i]
		for _, port := range p.network.Rails[p.index].Ports {
			if h := n.HCA(port.HCA); port.Node == n.Name && h != nil && h.Place().PCIeRoot() != "" {
				roots[i] = h.Place().PCIeRoot()
				rails[roots[i]]++
				break
			}
		}
	}
	out := make([]int, len(places))
	for i, r := range roots {
		out[i] = -1
		if r != "" {
			out[i] = gpus[r] / rails[r]
		}
	}
	return out
}

// allocation is who hands out the devices of a Fabric.
func allocation(f *v1alpha1.Fabric) v1alpha1.Allocation {
	return cmp.Or(spec(f).Allocation, v1alpha1.DevicePlugin)
}

// spec is what the controller has accepted, or what is to be.
func spec(f *v1alpha1.Fabric) *v1alpha1.FabricSpec {
	if f.Status.InForce != nil {
		return &f.Status.InForce.Spec
	}
	return &f.Spec
}

// claims decides whether the chosen Fabrics are for claims.
func claims(kind string, chosen []share) (bool, error) {
	is := allocation(chosen[0].fabric)
	for _, s := range chosen {
		if own := allocation(s.fabric); own != is {
			return false, fmt.Errorf("the Fabrics %s and %s are for one pod, and differ in spec.allocation (%s, %s)",
				chosen[0].fabric.Name, s.fabric.Name, is, own)
		}
	}
	if is != v1alpha1.DRA && kind == "claim" {
		return false, fmt.Errorf("the Fabric %s has allocation %s: want DRA (kubectl edit fabric %[1]s), or generate "+
			"pod, which asks for a resource", chosen[0].fabric.Name, is)
	}
	return is == v1alpha1.DRA, nil
}

// pictures are the inventories of the nodes that are there.
func (c *Fleet) pictures() (out []*node.Node) {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Node != nil && n.Spec.Gone == nil {
			out = append(out, n.Node)
		}
	}
	return out
}

// rails are those of a Fabric that most nodes have, healthy, with their ports on each node.
func (c *Fleet) rails(s *share) []topology.Rail {
	healthy := map[int]int{}
	all := map[int]*topology.Rail{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		for _, f := range n.Status.Fabrics {
			if f.Name != s.fabric.Name || n.Spec.Gone != nil {
				continue
			}
			for j, d := range f.Devices {
				if all[j] == nil {
					all[j] = &topology.Rail{Index: j}
				}
				all[j].Ports = append(all[j].Ports, topology.Port{Node: n.Name, HCA: d.HCA})
				if d.Problem == "" {
					healthy[j]++
				}
			}
		}
	}
	var out []topology.Rail
	for j := range all {
		out = append(out, *all[j])
	}
	slices.SortFunc(out, func(a, b topology.Rail) int {
		return cmp.Or(cmp.Compare(healthy[b.Index], healthy[a.Index]), cmp.Compare(a.Index, b.Index))
	})
	out = out[:min(s.devices, len(out))]
	slices.SortFunc(out, func(a, b topology.Rail) int { return cmp.Compare(a.Index, b.Index) })
	if s.fabric.Spec.Match.Rail != nil { // all of its devices are on that rail
		for i := range out {
			out[i].Index = int(rail(s.fabric))
		}
	}
	return out
}
