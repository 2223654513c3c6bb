//go:build failpoint

package fabric_test

import (
	"strings"
	"testing"
)

// ADD is killed between its choice and its end. What it has taken is its own: the next network of the pod gets the next
// device, the same ADD again gets the one before, and all go home.
func TestAddInRailOrderKilled(t *testing.T) {
	for _, point := range []string{"journal/save", "journal/claim", "after/move-netdev", "journal/save#2"} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			r := newRailNode(t, 2)
			r.give(t, podUID, []string{r.ids[1], r.ids[0]})
			killed := r.multus("ADD", "net1", r.ids[1])
			killed.env = append(killed.env, "FABRIC_FAILPOINT="+point+":kill")
			if a := r.run(t, killed); a.ok {
				t.Fatal("ADD was not killed")
			}
			if point == "journal/save" { // nothing was decided
				r.must(t, r.multus("ADD", "net1", r.ids[1]))
			}
			r.must(t, r.multus("ADD", "net2", r.ids[0]))
			r.must(t, r.multus("DEL", "net1", r.ids[1]))
			r.must(t, r.multus("ADD", "net1", r.ids[1]))
			r.has(t, "net1", r.ids[0])
			r.has(t, "net2", r.ids[1])
			r.must(t, r.multus("DEL", "net2", r.ids[0]))
			r.must(t, r.multus("DEL", "net1", r.ids[1]))
			r.same(t, "after DEL")
		})
	}
}
