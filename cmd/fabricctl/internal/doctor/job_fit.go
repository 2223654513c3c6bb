package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// bestRails are the rails of a node in its fabric with the most bandwidth, and the fabric's name.
func bestRails(n *node.Node) (rails int, fabric string) {
	best := 0.0
	f := n.Fabrics()
	for i := range f.Fabrics {
		on := len(f.Fabrics[i].On(n.Name))
		if b := float64(on) * f.Fabrics[i].RateGb; b > best {
			best, rails, fabric = b, on, f.Fabrics[i].Name
		}
	}
	return rails, fabric
}

// Take counts the devices of a pod that is on the node.
func (r *Room) Take(m *Manifest) {
	if r.Used == nil {
		r.Used = map[string]int{}
	}
	for name, n := range m.need() {
		r.Used[name] += n
	}
}

// need is what a pod takes of a node.
func (m *Manifest) need() map[string]int {
	out := map[string]int{}
	for r, n := range m.resources() {
		if extended(r) && n > 0 {
			out[r] = n
		}
	}
	return out
}

// fit compares the pods with the room on the nodes. It looks at devices and nodeSelector only, so there may be less
// room than it says.
func (w *Workload) fit(site *Site) []Finding {
	if len(site.Rooms) == 0 {
		return nil
	}
	total := 0
	for _, r := range w.Roles {
		if r.Count > 0 && len(r.Pod.need()) > 0 {
			total += r.Count
		}
	}
	if total == 0 {
		return nil
	}
	ever, short := w.place(site.Rooms, false)
	now, taken := w.place(site.Rooms, true)
	text := fmt.Sprintf("%s: %d %s with devices", w, total, plural(total, "pod"))
	switch {
	case ever < total:
		return one(finding("job-fit", Fail, fmt.Sprintf("%s, and the nodes have room for %d, even if all were free: %s",
			text, ever, short)))
	case now < total:
		return one(finding("job-fit", Warn, fmt.Sprintf("%s, and there is room for %d now: %s", text, now, taken)))
	}
	return one(finding("job-fit", OK, text+", and there is room for them"))
}

// place puts pods on nodes, and returns how many have found a place, and what the first role without one lacks.
func (w *Workload) place(rooms []Room, used bool) (placed int, lacks string) {
	free := make([]map[string]int, len(rooms))
	for i, r := range rooms {
		free[i] = maps.Clone(r.Allocatable)
		for name, n := range r.Used {
			if used && free[i] != nil {
				free[i][name] -= n
			}
		}
	}
	roles := slices.Clone(w.Roles)
	size := func(r Role) (n int) {
		for _, q := range r.Pod.need() {
			n += q
		}
		return n
	}
	slices.SortStableFunc(roles, func(a, b Role) int { return cmp.Compare(size(b), size(a)) })
	for i := range roles {
		r := &roles[i]
		need := r.Pod.need()
		if r.Count < 1 || len(need) == 0 {
			continue
		}
		got := 0
		for j := range rooms {
			if got == r.Count {
				break
			}
			if rooms[j].Cordoned || !selects(r.Pod.Spec.Selector, rooms[j].Labels) {
				continue
			}
			n := r.Count - got
			for name, q := range need {
				n = min(n, max(0, free[j][name])/q)
			}
			for name, q := range need {
				if n > 0 {
					free[j][name] -= n * q
				}
			}
			got += n
		}
		placed += got
		if got < r.Count && lacks == "" {
			lacks = strings.TrimSpace(fmt.Sprintf("%s %d of %d %s find no node with %s", r.Name, r.Count-got, r.Count,
				plural(r.Count, "pod"), asked(need)))
			if len(r.Pod.Spec.Selector) > 0 {
				lacks += " among those of its nodeSelector"
			}
		}
	}
	return placed, lacks
}

func asked(need map[string]int) string {
	var out []string
	for _, r := range slices.Sorted(maps.Keys(need)) {
		out = append(out, fmt.Sprintf("%s: %d", r, need[r]))
	}
	return strings.Join(out, ", ")
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
