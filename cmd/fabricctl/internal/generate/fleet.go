package generate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Fleet is what a cluster has: its Fabrics, and what its nodes have of them.
type Fleet struct {
	Fabrics []v1alpha1.Fabric
	Nodes   []doctor.FabricNode

	devices map[string]int
}

// IsWorkload reports whether a kind is of pods.
func IsWorkload(kind string) bool {
	return !slices.Contains([]string{"fabric", "nad", "device-plugin"}, kind)
}

// fabricName is what the API server takes as the name of a Fabric.
var fabricName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$`)

// share is what one pod can have of a Fabric.
type share struct {
	fabric  *v1alpha1.Fabric
	group   string // Fabrics that differ in their rail only are of one group
	devices int    // on most of its nodes; with attachment IPoIBChild 1
	rateGb  int    // of most of them
	layer   string
}

// ForCluster writes a workload that asks for the devices of the cluster's Fabrics.
func ForCluster(kind string, c *Fleet, o Options) (string, error) {
	if len(c.Fabrics) == 0 {
		return "", errors.New("the cluster has no Fabric: fabricctl generate fabric --cluster writes them")
	}
	chosen, err := c.choose(o.Fabric, o.MinRate)
	if err != nil {
		return "", err
	}
	o.Prefix, o.VFs = AgentPrefix, false
	if o.DRA, err = claims(kind, chosen); err != nil {
		return "", err
	}
	d := data{Options: o, kind: kind, cluster: true}
	_, d.doubts = trained(c.pictures())
	for _, s := range chosen {
		if !slices.Contains(s.fabric.Status.Published, o.Namespace) {
			return "", fmt.Errorf("the Fabric %s is not published in the namespace %s: add it to spec.namespaces of "+
				"the Fabric, or choose another with --namespace (it is published in: %s)", s.fabric.Name, o.Namespace,
				cmp.Or(strings.Join(s.fabric.Status.Published, ", "), "none"))
		}
		d.Workload = append(d.Workload, Network{
			Name: s.fabric.Name, Resource: s.fabric.Name, Rails: c.rails(&s),
			Shared: spec(s.fabric).Attachment == v1alpha1.IPoIBChild,
			Fabric: &topology.Fabric{Name: s.group, LinkLayer: device.LinkLayer(s.layer), Planes: len(chosen) > 1},
		})
	}
	if err := d.chooseGPUs(kind, d.having(c.pictures())); err != nil {
		return "", err
	}
	if o.DRA {
		err = d.claim(c.pictures())
	} else {
		why := fmt.Sprintf("the Fabric %s has allocation DevicePlugin, want DRA", chosen[0].fabric.Name)
		if err = o.noClaim(why); err == nil {
			err = d.limit()
		}
	}
	if err != nil {
		return "", err
	}
	return d.text(d.objects())
}

// choose are the Fabrics of one pod: the one asked for, or those that together have the most bandwidth.
// minRate, in Gb/s, leaves out slower devices.
func (c *Fleet) choose(name string, minRate int) ([]share, error) {
	c.devices = usualDevices(c.Nodes, minRate)
	groups := map[string][]share{}
	var names []string
	for i := range c.Fabrics {
		f := &c.Fabrics[i]
		s := c.share(f)
		if s.devices == 0 || !fabricName.MatchString(f.Name) {
			continue
		}
		names = append(names, f.Name)
		if name == "" || name == f.Name {
			groups[s.group] = append(groups[s.group], s)
		}
	}
	if len(names) == 0 && minRate > 0 {
		return nil, fmt.Errorf("--min-rate %d: no node has a healthy device of a Fabric with that rate", minRate)
	}
	if len(names) == 0 {
		return nil, errors.New("no node has a healthy device of a Fabric: kubectl get fabrics says why (doctor " +
			"cluster, too)")
	}
	if len(groups) == 0 {
		slices.Sort(names)
		return nil, fmt.Errorf("no Fabric %q with a device: there are %s", name, strings.Join(names, ", "))
	}
	var best []share
	for _, g := range groups {
		slices.SortFunc(g, func(a, b share) int {
			return cmp.Or(cmp.Compare(rail(a.fabric), rail(b.fabric)), strings.Compare(a.fabric.Name, b.fabric.Name))
		})
		if best == nil || cmp.Or(cmp.Compare(bandwidth(g), bandwidth(best)),
			strings.Compare(best[0].fabric.Name, g[0].fabric.Name)) > 0 {
			best = g
		}
	}
	return best, nil
}

func (c *Fleet) share(f *v1alpha1.Fabric) share {
	out := share{fabric: f, group: group(f), devices: c.devices[f.Name]}
	rates := map[int]int{}
	for i := range c.Nodes {
		for _, nf := range c.Nodes[i].Status.Fabrics {
			if nf.Name != f.Name || c.Nodes[i].Spec.Gone != nil {
				continue
			}
			for _, d := range nf.Devices {
				rates[int(d.RateGb)]++
				out.layer = cmp.Or(out.layer, d.LinkLayer)
			}
		}
	}
	out.rateGb = usual(rates)
	if spec(f).Attachment == v1alpha1.IPoIBChild {
		out.devices = min(out.devices, 1) // a second share may be one of the same device
	}
	return out
}

// UsualDevices is how many healthy devices of each Fabric most of the nodes have that have any.
func UsualDevices(nodes []doctor.FabricNode) map[string]int { return usualDevices(nodes, 0) }

func usualDevices(nodes []doctor.FabricNode, minRate int) map[string]int {
	of := map[string]map[int]int{} // Fabric -> devices -> nodes
	for i := range nodes {
		if nodes[i].Spec.Gone != nil {
			continue
		}
		for _, f := range nodes[i].Status.Fabrics {
			healthy := 0
			for _, d := range f.Devices {
				if d.Problem == "" && int(d.RateGb) >= minRate {
					healthy++
				}
			}
			if of[f.Name] == nil {
				of[f.Name] = map[int]int{}
			}
			if healthy > 0 {
				of[f.Name][healthy]++
			}
		}
	}
	out := map[string]int{}
	for name, seen := range of {
		out[name] = usual(seen)
	}
	return out
}

// usual is the value that was seen most often, the smaller of two: what one node says of itself alone changes nothing.
func usual(seen map[int]int) (value int) {
	for _, v := range slices.Sorted(maps.Keys(seen)) {
		if seen[v] > seen[value] {
			value = v
		}
	}
	return value
}

// group is the match of a Fabric without its rail, or the Fabric's own name.
func group(f *v1alpha1.Fabric) string {
	if f.Spec.Match.Rail == nil {
		return f.Name
	}
	m := f.Spec.Match
	m.Rail = nil
	b, err := json.Marshal(m)
	if err != nil {
		return f.Name
	}
	return string(b)
}

func rail(f *v1alpha1.Fabric) int32 {
	if f.Spec.Match.Rail == nil {
		return 0
	}
	return *f.Spec.Match.Rail
}

func bandwidth(g []share) (gb int64) {
	for _, s := range g {
		gb += int64(s.devices) * int64(s.rateGb)
	}
	return gb
}
