package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// walked runs the commands of docs/kubernetes.md and docs/install.md word by word: from nodes with HCAs to pods with
// rails, and to nodes that are what they were. What the pages show is compared with what is printed; what they do not
// show is asserted after their steps. The Fabric is that of the overlay exclusive.
func walked(t *testing.T, nodes ...*LabNode) {
	files, host := map[*LabNode]string{}, map[*LabNode]guest.State{}
	for _, n := range nodes {
		on(t, n, ". /out/env; PATH=$CACHE/containerd:$PATH\n"+tagged())
		files[n], host[n] = on(t, n, installed), settled(t, n)
	}
	objects := objectsOf(t)
	w := walk(t, "kustomize", map[string]string{
		// The page has two nodes with two ports that are Down; the second node here has six.
		"200G 2 12": "200G 2 16",
		"gpu-1":     nodes[0].Name, "gpu-2": nodes[1].Name, "v0.3.0": "e2e",
	})
	w.node = func(node, script string) (string, error) {
		for _, n := range nodes {
			if n.Name == node {
				return n.Run(script)
			}
		}
		return "", fmt.Errorf("the page names the node %q", node)
	}
	w.after["6. Start pods"] = func() {
		var addresses []string
		for _, pod := range []string{"training-0", "training-1"} {
			node := k(t, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
			i := slices.IndexFunc(nodes, func(n *LabNode) bool { return n.Name == node })
			addresses = append(addresses, hasRails(t, nodes[i], pod)...)
		}
		slices.Sort(addresses)
		if len(addresses) != 8 || len(slices.Compact(addresses)) != 8 {
			t.Errorf("addresses: %v", addresses)
		}
	}
	w.record(t)
	w.run(t)
	for _, n := range nodes {
		if diff := cmp.Diff(strings.Fields(files[n]), strings.Fields(on(t, n, installed))); diff != "" {
			t.Errorf("%s (-before +after):\n%s", n.Name, diff)
		}
		eventually(t, n.Name+" is what it was (-before +after)", func() error {
			now, err := state(n)
			if err != nil {
				return err
			}
			if diff := guest.Diff(host[n], now); diff != "" {
				return textError(diff)
			}
			return nil
		})
	}
	sameObjects(t, objects)
}
