package cluster

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// What one agent says moves the counts and conditions of a Fabric: that wakes no other agent.
func TestConcerns(t *testing.T) {
	fabric := func(generation int64, nodes int32) *v1alpha1.Fabric {
		f := &v1alpha1.Fabric{}
		f.Status.InForce, f.Status.Nodes = &v1alpha1.FabricInForce{Generation: generation}, nodes
		return f
	}
	if concerns(fabric(1, 1), fabric(1, 2)) {
		t.Error("counts wake an agent")
	}
	for what, is := range map[string]any{
		"another spec in force": fabric(2, 1), "none in force": &v1alpha1.Fabric{},
		"a FabricNode": &v1alpha1.FabricNode{},
	} {
		if !concerns(fabric(1, 1), is) {
			t.Errorf("%s wakes no agent", what)
		}
	}
}
