package subnet

import (
	"strings"
	"testing"
)

// whole reads a file, and judges what was read: nothing of it may panic, or go on for ever.
func whole(f *testing.F, seeds ...string) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g := New()
		if g.Read(strings.NewReader(text), "gpu-1") != nil || g.Finish() != nil {
			return
		}
		topo := g.Judge(nil)
		for _, n := range topo.Nodes {
			for _, tier := range n.Tiers {
				if !labelValue.MatchString(tier.value()) {
					t.Errorf("%q is no value of a label", tier.value())
				}
			}
		}
		for i := range topo.Ports {
			if p := &topo.Ports[i]; p.ID == "" || p.Port == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}

// FuzzLines is for the parsers of lines: which one reads a file, its beginning says.
func FuzzLines(f *testing.F) {
	whole(f, odd, "vendid=1\nSwitch 1 \"S-1\"\n[1] \"S-1\"[1]\n", newFat(3, 2, 3, 1, 1).list(),
		"SW 3  5 0x0a01 4x SDR 'leaf-1'\n", saRecords)
}

func FuzzLLDP(f *testing.F) {
	whole(f, `{"lldp":{"interface":[{"eth0":{"chassis":{"a":{"id":{"value":"1"}}},"port":{"id":{"value":"p"}}}}]}}`,
		`{"Neighbors":[{"InterfaceName":"e","Neighbors":[{"ChassisID":"1","SystemName":"l","PortID":"p"}]}]}`)
}
