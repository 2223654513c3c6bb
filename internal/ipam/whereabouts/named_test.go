package whereabouts_test

import (
	"fmt"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// The range of a pool is in its name, whatever is before it.
func TestNamed(t *testing.T) {
	for name, want := range map[string]string{
		"10.7.0.0-28":             "[10.7.0.0/28]",
		"rail-1-10.7.0.0-28":      "[10.7.0.0/28]",
		"net-gpu-1-10.7.0.128-29": "[10.7.0.128/29]",
		"fd00---64":               "[fd00::/64]",
		"net-fd00-1---64":         "[fd00:1::/64 1::/64]",
		"ab-fd00---64":            "[ab:fd00::/64 fd00::/64]",
		"10.7.0.0-33":             "[]",
		"10.7.0.0":                "[]",
		"tenant-1":                "[]",
		"":                        "[]",
		"-":                       "[]",
		"10.7.0.0-28-x":           "[]",
	} {
		if got := fmt.Sprint(whereabouts.Named(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
