package cluster

import "testing"

// docs/conformance.md, word by word, on a node without Multus. In the end the node is as it was.
func TestConformance(t *testing.T) {
	rigWithoutMultus(t)
	g := newDRARig(t, current.run+"/bin/held", 2)
	const training = "registry.example.com/training:v1"
	tag(t, pageImages[training], training)
	w := walk(t, "docs/conformance.md", "", nil)
	w.after["4. The pod has"] = func() { g.allHome(t) }
	t.Cleanup(func() {
		if t.Failed() {
			gone(t, "conformance")
			gone(t, "conformance-none")
		}
	})
	w.run(t)
}
