package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// maxUsers is how many pods a sum names.
const maxUsers = 5

// sum is what all nodes together have of a fabric.
type sum struct {
	nodes    int32
	most     int // devices of one node
	devices  v1alpha1.DeviceCounts
	given    int64 // addresses of nodes' ranges
	layers   map[string]bool
	rates    map[int32]bool
	problems map[string]int32 // by reason, the devices that have it
	pods     int              // that have devices of it
	users    []string         // the first few of them
	need     need
	missing  []string // nodes on which the IPAM plugin is not
}

// sums adds up what nodes say that they have. A node says what it likes: nothing of it is more than counted and shown.
func sums(nodes []v1alpha1.FabricNode, shares map[string]int) map[string]*sum {
	out := map[string]*sum{}
	for i := range nodes {
		if nodes[i].Spec.Gone != nil {
			continue
		}
		for j := range nodes[i].Status.Fabrics {
			f := &nodes[i].Status.Fabrics[j]
			if len(f.Devices) == 0 {
				continue
			}
			s := out[f.Name]
			if s == nil {
				s = &sum{layers: map[string]bool{}, rates: map[int32]bool{}, problems: map[string]int32{}}
				out[f.Name] = s
			}
			s.add(f, max(shares[f.Name], 1))
			if slices.ContainsFunc(f.Devices, func(d v1alpha1.FabricDevice) bool { return d.Problem == ipamMissing }) {
				s.missing = append(s.missing, nodes[i].Name)
			}
		}
	}
	return out
}

func (s *sum) add(f *v1alpha1.NodeFabric, shares int) {
	s.nodes++
	s.given += f.Addresses
	s.most = max(s.most, len(f.Devices))
	onNode := len(f.Devices) * shares
	s.need.inCluster += onNode
	s.need.onNode = max(s.need.onNode, onNode)
	seen := map[string]bool{} // a pod has several devices, all on one node
	for k := range f.Devices {
		d := &f.Devices[k]
		s.devices.Total++
		switch d.Problem {
		case "":
			s.devices.Healthy++
		case notConnected:
			s.devices.NotConnected++
			s.problems[d.Problem]++
		default:
			s.problems[d.Problem]++
		}
		s.devices.Attached += int32(len(d.Pods))
		for _, p := range d.Pods {
			if !seen[p] && len(s.users) < maxUsers {
				s.users = append(s.users, p)
			}
			seen[p] = true
		}
		if d.LinkLayer != "" {
			s.layers[d.LinkLayer] = true
		}
		if d.RateGb != 0 {
			s.rates[d.RateGb] = true
		}
	}
	s.pods += len(seen)
}

// layer is the link layer in a word.
func (s *sum) layer() string {
	if len(s.layers) > 1 {
		return "mixed"
	}
	for l := range s.layers {
		return l
	}
	return ""
}

// rate is the rate in a word: 200G, 100G-200G.
func (s *sum) rate() string {
	rates := slices.Sorted(maps.Keys(s.rates))
	if len(rates) == 0 {
		return ""
	}
	low, high := rates[0], rates[len(rates)-1]
	if low == high {
		return strconv.Itoa(int(low)) + "G"
	}
	return fmt.Sprintf("%dG-%dG", low, high)
}

// unhealthy is how many devices are not as they should be. A port that was never connected is.
func (s *sum) unhealthy() int32 { return s.devices.Total - s.devices.Healthy - s.devices.NotConnected }

// wrong says what is wrong with devices: "3 PortDown, 1 Flapping".
func (s *sum) wrong() string {
	reasons := slices.Collect(maps.Keys(s.problems))
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.problems[b], s.problems[a]), cmp.Compare(a, b))
	})
	out := ""
	for i, r := range reasons {
		if i == maxUsers {
			out += ", and others"
			break
		}
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%d %.40s", s.problems[r], r)
	}
	return out
}

// capacity is how many addresses the nodes' ranges of a fabric have.
func capacity(f *fabrics.Fabric, nodes []v1alpha1.FabricNode) (n int64) {
	if f == nil || f.NodeRanges == nil {
		return 0
	}
	r := &f.NodeRanges.Ranges[0]
	for i := range nodes {
		if own := ownRanges(nodes[i].Spec.Ranges, f.Name); len(own) > 0 && r.Prefix.Overlaps(own[0]) {
			n += int64(r.Capacity(own[0]))
		}
	}
	return n
}
