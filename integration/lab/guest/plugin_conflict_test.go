//go:build labguest

package guest

import (
	"testing"
	"time"
)

// An address that a pod on another port has is found by ARP and by neighbour discovery over IPoIB, whose link addresses
// have 20 bytes, and the ADD takes everything back. The children are on a port of their own: a child has the link-local
// address of its parent, and spoils the duplicate address detection of one that has just returned to the host.
func TestPluginDetectConflicts(t *testing.T) {
	S1(t)
	Unchanged(t)
	first := interfaceOf(NewPod(t, "first"), "net1",
		network(config{"device": "ibs108", "ipam": static("10.77.0.1/24", "fd77::1/64")}))
	mac := first.add(t).Result.Interfaces[0].Mac
	second := NewPod(t, "second")
	for name, fields := range map[string]config{
		"IPv4":          {"device": "ibs110", "ipam": static("10.77.0.1/24", "fd77::2/64")},
		"IPv6":          {"device": "ibs110", "ipam": static("10.77.0.2/24", "fd77::1/64")},
		"child":         {"mode": "ipoib", "master": "ibs112", "ipam": static("10.77.0.1/24")},
		"child by IPv6": {"mode": "ipoib", "master": "ibs112", "ipam": static("fd77::1/64")},
	} {
		t.Run(name, func(t *testing.T) {
			before := Snapshot(t)
			fields["name"], fields["detectConflicts"] = "others", true
			a := interfaceOf(second, "net1", network(fields))
			wantError(t, a.call("ADD").Exec(t), 106, "1 is in use", mac)
			Same(t, before)
			a.del(t)
		})
	}
	for name, fields := range map[string]config{
		"free":       {"device": "ibs110", "ipam": static("10.77.0.2/24", "fd77::2/64")},
		"free child": {"mode": "ipoib", "master": "ibs112", "ipam": static("10.77.0.2/24", "fd77::2/64")},
	} {
		took := map[bool]time.Duration{}
		for _, detect := range []bool{false, true} {
			fields["name"], fields["detectConflicts"] = "others", detect
			a := interfaceOf(second, "net1", network(fields))
			began := time.Now()
			a.add(t)
			took[detect] = time.Since(began)
			a.del(t)
		}
		t.Logf("%s: %v without probes, %v with them", name, took[false], took[true])
	}
	first.del(t)
}
