//go:build labguest

package guest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/recorded"
)

// An attachment of an older binary is returned by this one. ADD is this binary's; then the journal gets the entry that
// the older one has written on the same host, with the ids of the live attachment.
func TestReturnRecorded(t *testing.T) {
	roce := roceDevice // as the older binary knew it, which neither set nor recorded QoS
	roce.conf = conf(map[string]any{"device": "eno2", "rdmaName": "rail", "ipam": ipv4})
	roce.host = func(t testing.TB) {
		roceHost(t)
		setCM(t, "mlx5_0", 0, RoCEv2) // what the kernel resets it to
	}
	for _, m := range []mode{ipoibDevice, childExclusive, plainDevice, roce, rdmaIPoIB, bareDevice} {
		t.Run(m.name, func(t *testing.T) {
			r := newRig(t, m)
			for _, gone := range []bool{false, true} {
				s := r.sandbox(t)
				s.call("ADD").Must(t)
				adoptRecorded(t, m.name, s.entry(t).path)
				if gone {
					s.Delete(t)
				}
				s.call("DEL").Must(t)
				r.back(t, s, gone)
			}
		})
	}
}

// A VF with a GUID: the recorded entry says what its PF had for it, and that its driver was rebound.
func TestVFReturnRecorded(t *testing.T) {
	vfs := VFHost(t, 4, Fabric{})
	before := Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", vfConf(vfs[0], guidA, config{"linkState": "enable"}))
	a.add(t)
	entries, err := filepath.Glob("/run/fabric-cni/attachments/*")
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, %v", entries, err)
	}
	adoptRecorded(t, "vf-guid", entries[0])
	a.del(t)
	Same(t, before)
}

// adoptRecorded replaces the entry of a live attachment.
func adoptRecorded(t *testing.T, name, path string) {
	t.Helper()
	old, err := recorded.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if old[name] == nil {
		t.Fatalf("no entry was recorded for %s", name)
	}
	live, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := recorded.Adopt(old[name], live)
	if err != nil {
		t.Fatal(err)
	}
	entry{path: path, data: b}.write(t)
}
