package generate

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// NetworkOperator is NVIDIA's network operator, for whose objects networks can be written.
const NetworkOperator = "network-operator"

// operator makes the configuration of the device plugin that the operator runs. There is one for all nodes.
func (d *data) operator(nodes []*node.Node) error {
	d.Groups = groups(nodes, d.Networks, &d.Options)
	if len(d.Groups) == 0 {
		return errNothing
	}
	if len(d.Groups) < 2 || d.VFs {
		return nil
	}
	var list []string
	for _, g := range d.Groups {
		list = append(list, few(g.Nodes))
	}
	return fmt.Errorf("the operator has one configuration of its device plugin for all nodes, and no selector is "+
		"right for all of these: one would do for each of %s. Cable the nodes alike, write for some of them, or run "+
		"device plugins of your own (generate device-plugin)", strings.Join(list, "; "))
}

// OperatorResource is the resource of a network as the operator takes it: it puts nvidia.com before one without a
// prefix.
func (d *data) OperatorResource(n Network) string {
	if d.Prefix == "nvidia.com" || d.VFs {
		return n.Resource
	}
	return d.Prefix + "/" + n.Resource
}

// PerNode is how many addresses a node needs.
func (n *Network) PerNode() int {
	nodes := max(len(n.Fabric.Nodes()), 1)
	return max((n.Need+nodes-1)/nodes, 1)
}

// Roots are the addresses of the ports whose virtual functions a network has.
func (d *data) Roots(n Network) (out []string) {
	for _, g := range d.Groups {
		for _, r := range g.Resources {
			if r.Name == n.Resource {
				for _, a := range r.Roots {
					out = add(out, a)
				}
			}
		}
	}
	return out
}
