package perftest

import (
	"fmt"
	"slices"
)

// NodeVerdict is whether a node may be trusted with a job.
type NodeVerdict struct {
	Name     string `json:"name"`
	Verified bool   `json:"verified"`
	Text     string `json:"text"` // how many of its results are good, and what is wrong
}

// Nodes judges the nodes of the results. A path has two ends, and a bad one says nothing of which is to blame: it is
// the node that has most of the bad paths, then the one that has most of those that are left. Where nothing decides,
// as with one bad path, both are.
func Nodes(list []Result) (out []NodeVerdict) {
	all, good, worst := map[string]int{}, map[string]int{}, map[string]string{}
	var bad [][2]string
	for i := range list {
		r := &list[i]
		if r.NodeA == "" || r.NodeB == "" {
			continue
		}
		for _, n := range []string{r.NodeA, r.NodeB} {
			all[n]++
			if r.Verdict == Good {
				good[n]++
			} else if worst[n] == "" {
				worst[n] = fmt.Sprintf("%s-%s %s: %s", r.NodeA, r.NodeB, r.Rails(), r.Verdict)
			}
			if r.NodeA == r.NodeB {
				break
			}
		}
		if r.Verdict != Good {
			bad = append(bad, [2]string{r.NodeA, r.NodeB})
		}
	}
	guilty := map[string]bool{}
	for len(bad) > 0 {
		count, most := map[string]int{}, 0
		for _, p := range bad {
			count[p[0]]++
			if p[1] != p[0] {
				count[p[1]]++
			}
			most = max(most, count[p[0]], count[p[1]])
		}
		for n, c := range count {
			if c == most {
				guilty[n] = true
			}
		}
		bad = slices.DeleteFunc(bad, func(p [2]string) bool { return guilty[p[0]] || guilty[p[1]] })
	}
	for n := range all {
		v := NodeVerdict{Name: n, Verified: !guilty[n], Text: fmt.Sprintf("%d of %d results good", good[n], all[n])}
		if guilty[n] {
			v.Text += "; " + worst[n]
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b NodeVerdict) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}
