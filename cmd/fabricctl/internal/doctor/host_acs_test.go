package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// The address of a bridge in a recording may be any text: in the command of the cure it is one word.
func TestHostACSQuoted(t *testing.T) {
	h := host(t, machines.H20())
	const evil = "x; touch pwned #"
	h.ACS = map[string]uint16{evil: 0x1d}
	rename := func(path []string) {
		if i := slices.Index(path, "0000:17:02.0"); i >= 0 {
			path[i] = evil
		}
	}
	for i := range h.Node.HCAs {
		rename(h.Node.HCAs[i].Path)
	}
	for i := range h.Node.GPUs {
		rename(h.Node.GPUs[i].Path)
	}
	list := hostACS(h, h.Node.Fabrics())
	if len(list) != 1 || !strings.Contains(list[0].Cure, "setpci -s 'x; touch pwned #' ECAP") {
		t.Errorf("%+v", list)
	}
}
