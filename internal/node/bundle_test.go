package node

import (
	"fmt"
	"testing"
)

func functions(kind, parent string, n int) (out []HCA) {
	for i := range n {
		out = append(out, HCA{
			Name: fmt.Sprintf("%s%d", kind, i), Kind: kind, Parent: parent, PCI: fmt.Sprintf("0000:18:01.%d", i),
			Ports: []Port{{State: "Active"}},
		})
	}
	return out
}

// From the ninth on functions are one, each PF and kind by itself; those of a PF that is in a pod have its address.
func TestBundles(t *testing.T) {
	n := &Node{HCAs: []HCA{{Name: "mlx5_0", Kind: "PF", PCI: "a"}}}
	n.HCAs = append(n.HCAs, functions("VF", "a", Few+1)...)
	n.HCAs = append(n.HCAs, functions("SF", "a", Few)...)
	n.HCAs = append(n.HCAs, functions("VF", "b", Few+1)...)
	n.HCAs[2].Ports[0].State = "Down"
	list := n.Bundles()
	if len(list) != 1+1+Few+1 {
		t.Fatalf("%d bundles: %+v", len(list), list)
	}
	for i, want := range map[int]string{0: "mlx5_0", 1: "+ 9 VFs of mlx5_0", 2: "SF0", 2 + Few: "+ 9 VFs of b"} {
		if got := list[i].Name(); got != want || list[i].Many() != (i == 1 || i == 2+Few) {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	if text, active := list[1].State(); text != "8 Active, 1 Down" || active {
		t.Errorf("%q %t", text, active)
	}
	if text, active := list[2+Few].State(); text != "Active" || !active {
		t.Errorf("%q %t", text, active)
	}
	if got := list[1].PCI(); got != "0000:18:01.0-0000:18:01.8" {
		t.Error(got)
	}
}
