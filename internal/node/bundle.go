package node

import (
	"cmp"
	"fmt"
)

// Few is how many virtual functions of one PF are shown one by one, or how many SFs: people look at these. More are
// shown as one.
const Few = 8

// Bundle is the HCAs that are shown as one: one HCA, or all VFs or SFs of a PF that has many.
type Bundle struct {
	HCAs []*HCA
	PF   string // name of the PF, or its PCI address where it is in a pod; empty for one HCA
}

// Bundles are the HCAs in their order, with all functions of a PF as one where there are more than Few.
func (n *Node) Bundles() (out []Bundle) {
	type of struct{ kind, parent string }
	many, names := map[of]int{}, map[string]string{}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		many[of{h.Kind, h.Parent}]++
		if h.Kind == "PF" {
			names[h.PCI] = h.Name
		}
	}
	at := map[of]int{}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		k := of{h.Kind, h.Parent}
		if h.Parent == "" || many[k] <= Few {
			out = append(out, Bundle{HCAs: []*HCA{h}})
			continue
		}
		j, ok := at[k]
		if !ok {
			j, at[k] = len(out), len(out)
			out = append(out, Bundle{PF: cmp.Or(names[h.Parent], h.Parent)})
		}
		out[j].HCAs = append(out[j].HCAs, h)
	}
	return out
}

// Many tells whether it is the functions of a PF.
func (b *Bundle) Many() bool { return b.PF != "" }

// Name is that of the HCA, or says what the bundle is: + 256 VFs of mlx5_0.
func (b *Bundle) Name() string {
	if !b.Many() {
		return b.HCAs[0].Name
	}
	return fmt.Sprintf("+ %d %ss of %s", len(b.HCAs), b.HCAs[0].Kind, b.PF)
}

// PCI is the address, or the first and the last one.
func (b *Bundle) PCI() string {
	first, last := b.HCAs[0].PCI, b.HCAs[len(b.HCAs)-1].PCI
	if first == last {
		return first
	}
	return first + "-" + last
}

// State is the state of the ports, with their numbers where they differ: 254 Active, 2 Down.
func (b *Bundle) State() (text string, active bool) {
	count, order, all := map[string]int{}, []string{}, 0
	for _, h := range b.HCAs {
		for _, p := range h.Ports {
			if count[p.State]++; count[p.State] == 1 {
				order = append(order, p.State)
			}
			all++
		}
	}
	for i, s := range order {
		if i > 0 {
			text += ", "
		}
		if len(order) > 1 {
			text += fmt.Sprintf("%d ", count[s])
		}
		text += s
	}
	return text, all > 0 && count["Active"] == all
}

// InPods is how many of them are in pods.
func (b *Bundle) InPods() (n int) {
	for _, h := range b.HCAs {
		if h.InPod != "" {
			n++
		}
	}
	return n
}
