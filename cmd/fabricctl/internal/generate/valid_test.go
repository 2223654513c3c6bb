package generate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

const injected = "x\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n#"

// No text of an inventory becomes an object of its own in what is generated.
func TestHostileInventory(t *testing.T) {
	for name, change := range map[string]func(*node.Node){
		"node":     func(n *node.Node) { n.Name = injected },
		"colon":    func(n *node.Node) { n.Name = "a: b" },
		"mode":     func(n *node.Node) { n.RDMAMode = injected },
		"hca":      func(n *node.Node) { n.HCAs[0].Name = injected },
		"netdev":   func(n *node.Node) { n.HCAs[0].Ports[0].Netdev = `a", "b` },
		"address":  func(n *node.Node) { n.HCAs[0].PCI = injected },
		"id":       func(n *node.Node) { n.HCAs[0].ID = "15b3:\r1021" },
		"bond":     func(n *node.Node) { n.HCAs[0].Bond = "a\u2028kind: x" },
		"interval": func(n *node.Node) { n.HCAs[0].Model = strings.Repeat("x", maxText+1) },
	} {
		n := open(t, "h20")[0]
		change(n)
		for _, kind := range Kinds {
			text, err := Generate(kind, []*node.Node{n}, Options{
				Namespace: "ml", Name: "x", Image: "x", Prefix: "nvidia.com", Workers: 2,
				Range: netip.MustParsePrefix("192.168.128.0/18"),
			})
			if err == nil {
				t.Errorf("%s: %s was written:\n%s", name, kind, text)
			}
		}
	}
}
