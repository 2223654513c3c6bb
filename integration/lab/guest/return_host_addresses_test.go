//go:build labguest

package guest

import (
	"strings"
	"testing"
)

// An IPoIB interface, which the kernel makes anew, has in the pod the addresses, routes and rules of the host, and the
// host has all of them again afterwards.
func TestReturnHostAddresses(t *testing.T) {
	S1(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108", "hostAddresses": true}))
	for range 2 {
		a.add(t)
		a.pod.has(t, "net1", "10.8.0.1/24", "10.8.0.7/24", "fd00:8::1/64")
		routes := a.pod.sh(t, "ip route show table all; ip -6 route; ip rule")
		for _, want := range []string{
			"10.88.0.0/16 via 10.8.0.254 dev net1 metric 77 mtu 1500", "default via 10.8.0.254 dev net1 table 108",
			"10.8.0.0/24 dev net1 table 108", "fd88::/32 via fd00:8::254 dev net1", "from 10.8.0.1 lookup 108",
		} {
			if !strings.Contains(routes, want) {
				t.Errorf("want %q in\n%s", want, routes)
			}
		}
		a.call("CHECK").Must(t)
		a.del(t)
	}
}
