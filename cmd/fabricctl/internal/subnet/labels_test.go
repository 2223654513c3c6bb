package subnet

import (
	"os/exec"
	"strings"
	"testing"
)

// Values and names are what Kubernetes takes, whatever switches and nodes are called, and the shell takes them as they
// are.
func TestLabels(t *testing.T) {
	tiers := func(name, id string) []Tier {
		return []Tier{{name, id}, {"spine 1; touch pwned", "0x00000000000000b0"}}
	}
	topo := &Topology{Nodes: []NodePlace{
		{Node: "GPU-1", Tiers: tiers("leaf-1", "0xa"), Inventory: true},
		{Node: "gpu-2", Tiers: tiers("leaf 2\n", "lldp:aa:bb:cc:dd:ee:01")},
		{Node: "gpu_3", Tiers: tiers("leaf-1", "0xa")},
		{Node: "gpu-4", Tiers: tiers("leaf-1", "0xa")},
		{Node: "Gpu-4", Tiers: tiers("leaf-1", "0xa")},
	}}
	o := LabelOptions{Families: []string{"fabric", "nvidia"}, Kueue: "v1beta1", Name: "ib", Format: "shell"}
	text, err := topo.Labels(o)
	if err != nil {
		t.Fatal(err)
	}
	const b = "0x00000000000000b0"
	for _, want := range []string{
		"\nkubectl label --overwrite node gpu-1 fabric.dev/leaf=leaf-1 fabric.dev/spine=" + b +
			" network.topology.nvidia.com/leaf=leaf-1 network.topology.nvidia.com/spine=" + b + "\n",
		"\nkubectl label --overwrite node gpu-2 fabric.dev/leaf=id-422a4b36fa669e2f ",
		"# left out gpu_3: not the name of a node\n", "# left out gpu-4: there are two\n", "# left out Gpu-4: " +
			"there are two\n",
		"  levels:\n  - nodeLabel: fabric.dev/spine\n  - nodeLabel: fabric.dev/leaf\n  - nodeLabel: " +
			"kubernetes.io/hostname\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	sh := exec.CommandContext(t.Context(), "sh", "-n")
	sh.Stdin = strings.NewReader(text)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v: %s", err, out)
	}
	o.Format = "yaml"
	if text, err = topo.Labels(o); err != nil || strings.Count(text, "kind: Node") != 1 ||
		!strings.Contains(text, "# left out gpu-2: not all of its ports are in the inventory of a node\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	topo.Nodes = topo.Nodes[2:3]
	if _, err := topo.Labels(o); err == nil || !strings.Contains(err.Error(), "gpu_3") {
		t.Errorf("no node: %v", err)
	}
}
