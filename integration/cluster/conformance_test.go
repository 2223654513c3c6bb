package cluster

import "testing"

// docs/conformance.md, word by word, on a node without Multus. What its steps show once is asserted here.
func TestConformance(t *testing.T) {
	rigWithoutMultus(t)
	g := newDRARig(t, current.run+"/bin/held", 2)
	const training = "registry.example.com/training:v1"
	if _, err := output("ctr", "-n", "k8s.io", "images", "tag", "--force", pageImages[training], training); err != nil {
		t.Fatal(err)
	}
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
