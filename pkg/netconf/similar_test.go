package netconf_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// What a user may have meant is near to what the user wrote.
func TestSimilar(t *testing.T) {
	known := []string{"dhcp", "host-local", "nv-ipam", "static", "whereabouts"}
	for word, want := range map[string]string{
		"whereabout": "whereabouts", "Where-Abouts": "whereabouts", "hostlocal": "host-local", "nvipam": "nv-ipam",
		"dhpc": "dhcp", "calico-ipam": "", "x": "", "": "",
	} {
		if got := netconf.Similar(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := netconf.Similar("a", nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
