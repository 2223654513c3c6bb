package generate

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
)

// The objects of NVIDIA's network operator: what the device plugin selects, and a network for each.
func TestNetworkOperator(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []string
		set   func(o *Options)
		kinds []string
	}{
		{"h20", []string{"h20"}, func(*Options) {}, []string{"NicClusterPolicy", "HostDeviceNetwork"}},
		{"roce-shared", []string{"roce"}, func(o *Options) { o.Shared, o.Prefix = true, SharedPrefix },
			[]string{"NicClusterPolicy", "MacvlanNetwork"}},
		{"v100-shared", []string{"v100"}, func(o *Options) { o.Shared, o.Prefix = true, SharedPrefix },
			[]string{"NicClusterPolicy", "IPoIBNetwork"}},
		{"v100-vfs", []string{"v100"}, func(o *Options) { o.VFs = true },
			[]string{"SriovNetworkNodePolicy", "SriovIBNetwork"}},
	} {
		o := options()
		o.Target = NetworkOperator
		c.set(&o)
		text, err := Generate("nad", open(t, c.nodes...), o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		golden.Check(t, "testdata/operator-"+c.name+".yaml", text)
		kinds := map[any]bool{}
		for _, d := range documents(t, text) {
			kinds[d["kind"]] = true
		}
		for _, k := range c.kinds {
			if !kinds[k] {
				t.Errorf("%s: no %s", c.name, k)
			}
		}
		if len(kinds) != len(c.kinds) {
			t.Errorf("%s: kinds %v, want %v", c.name, kinds, c.kinds)
		}
	}
	o := options()
	o.Target = NetworkOperator
	_, err := Generate("nad", open(t, "a100", "a100-2"), o)
	if err == nil || !strings.Contains(err.Error(), "one would do for each of a100; a100-2") {
		t.Errorf("nodes that need two configurations: %v", err)
	}
}
