package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// seenSM is a subnet manager as a port names it. The LID is that of the host it runs on, so a failover changes it.
type seenSM struct {
	prefix device.SubnetPrefix
	lid    uint16
}

// subnetting is which of the subnet managers that ports name are of one subnet.
type subnetting struct {
	one    map[seenSM]uint16 // the lowest LID at which the manager of that subnet was seen
	doubts map[seenSM][]seenSM
}

func (s *subnetting) of(p *Port) uint16 { return s.one[seenSM{p.Prefix, p.SMLID}] }

// subnets finds out which managers are of one subnet. Two are of different ones if a node sees both, because it sees
// them at the same time, or if a LID occurs with both, because LIDs are unique in a subnet. Without such proof they are
// one that has moved. Of three of which two are proven apart the third could be either: all stay apart.
func subnets(ports []Port) *subnetting {
	seen := map[device.SubnetPrefix]map[seenSM]bool{}
	for _, p := range ports {
		if p.LinkLayer == device.InfiniBand {
			put(seen, p.Prefix, seenSM{p.Prefix, p.SMLID}, true)
		}
	}
	out := &subnetting{one: map[seenSM]uint16{}, doubts: map[seenSM][]seenSM{}}
	var unclear []Port
	for _, p := range ports {
		if p.LinkLayer != device.InfiniBand {
			continue
		}
		s := seenSM{p.Prefix, p.SMLID}
		out.one[s] = s.lid
		if n := len(seen[p.Prefix]); n > 1 && n <= mostManagers {
			unclear = append(unclear, p)
		}
	}
	apart := proofs(unclear)
	for _, list := range seen {
		if len(list) > 1 && len(list) <= mostManagers {
			out.join(list, apart)
		}
	}
	return out
}

// mostManagers is more subnets than a cluster has, with all their failovers. What nodes say beyond it is not
// compared: each manager has its own subnet.
const mostManagers = 64

// join puts the managers of one prefix together that may be one.
func (s *subnetting) join(seen map[seenSM]bool, apart map[[2]seenSM]bool) {
	list := slices.SortedFunc(maps.Keys(seen), func(a, b seenSM) int { return cmp.Compare(a.lid, b.lid) })
	done := map[seenSM]bool{}
	for _, first := range list {
		if done[first] {
			continue
		}
		group := []seenSM{first} // all that may be one, directly or by way of others
		done[first] = true
		for i := 0; i < len(group); i++ {
			for _, other := range list {
				if !done[other] && !apart[[2]seenSM{group[i], other}] {
					done[other] = true
					group = append(group, other)
				}
			}
		}
		sure := !slices.ContainsFunc(group, func(a seenSM) bool {
			return slices.ContainsFunc(group, func(b seenSM) bool { return apart[[2]seenSM{a, b}] })
		})
		for _, member := range group {
			if sure {
				s.one[member] = first.lid
			} else {
				s.doubts[member] = group
			}
		}
	}
}

// proofs are the pairs of managers of which something proves that they are of different subnets, both ways round.
func proofs(ports []Port) map[[2]seenSM]bool {
	type place struct {
		node string
		slot slot
	}
	type lid struct {
		prefix device.SubnetPrefix
		lid    uint16
	}
	apart := map[[2]seenSM]bool{}
	onNode, onLID := map[string]map[seenSM]bool{}, map[lid]map[seenSM]place{}
	for _, p := range ports {
		s := seenSM{p.Prefix, p.SMLID}
		put(onNode, p.Node, s, true)
		if p.LID != 0 && p.Kind != "VF" && p.Kind != "SF" { // some firmware shows a VF with its PF's LID
			put(onLID, lid{p.Prefix, p.LID}, s, place{p.Node, p.slot()})
		}
	}
	for _, list := range onNode {
		for a := range list {
			for b := range list {
				apart[[2]seenSM{a, b}] = a != b
			}
		}
	}
	for _, list := range onLID {
		for a, at := range list {
			for b, there := range list {
				if a != b && at != there {
					apart[[2]seenSM{a, b}] = true
				}
			}
		}
	}
	return apart
}

func put[K, L comparable, V any](m map[K]map[L]V, k K, l L, v V) {
	if m[k] == nil {
		m[k] = map[L]V{}
	}
	m[k][l] = v
}

// managers are the LIDs of the subnet managers that ports name, the one that most name first.
func managers(ports []Port) []uint16 {
	count := map[uint16]int{}
	for _, p := range ports {
		count[p.SMLID]++
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b uint16) int {
		return cmp.Or(-cmp.Compare(count[a], count[b]), cmp.Compare(a, b))
	})
}

// moved says of a fabric whose nodes name several subnet managers why it is one, and what is not known.
func (f *Fabric) moved(ports []Port, seen []uint16) {
	if len(seen) < 2 {
		return
	}
	f.SMLIDs = slices.Sorted(slices.Values(seen))
	var where []string
	for _, lid := range seen {
		nodes := map[string]bool{}
		for _, p := range ports {
			if p.SMLID == lid {
				nodes[p.Node] = true
			}
		}
		where = append(where, fmt.Sprintf("LID %d on %s", lid, few(sorted(nodes))))
	}
	f.Warnings = append(f.Warnings, "the nodes name several subnet managers ("+strings.Join(where, "; ")+"): taken "+
		"for one subnet whose manager has moved since, because no node names two and no LID occurs twice. Two subnets "+
		"of which few nodes were looked at would look the same: look at all nodes again, at the same time, or run "+
		"sminfo on a node of each")
}

// doubt says of a fabric that it may be a part of another one.
func (s *subnetting) doubt(f *Fabric) []string {
	var others []uint16
	for _, o := range s.doubts[seenSM{f.Prefix, f.SMLID}] {
		if o.lid != f.SMLID {
			others = append(others, o.lid)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the subnet manager at LID %d may be one of those at %s that has moved: some of these "+
		"are proven to be of different subnets, and nothing tells of which this one is. Look at all nodes again, at "+
		"the same time", f.SMLID, lids(others))}
}

// lids is LID 3, or LIDs 3 and 7.
func lids(list []uint16) string {
	var text []string
	for _, l := range list {
		text = append(text, strconv.Itoa(int(l)))
	}
	return map[bool]string{true: "LID ", false: "LIDs "}[len(list) == 1] + strings.Join(text, " and ")
}

// few are some names, for people.
func few(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
