//go:build labguest

package guest

import "testing"

// Another plugin has put an HCA's interface into its pod, and left the RDMA device on the host, or it is everywhere: it
// is not taken from there.
func TestPluginInterfaceElsewhere(t *testing.T) { interfaceElsewhere(t) }

// The same in shared mode.
func TestSharedInterfaceElsewhere(t *testing.T) { interfaceElsewhere(t) }

func interfaceElsewhere(t *testing.T) {
	t.Helper()
	Fabric{Num: 2}.Load(t)
	before := Unchanged(t)
	other := NewPod(t, "of-host-device")
	if err := MoveLink(mustLink(t, Host(t), "ib0").Index, other.Path, "net9"); err != nil {
		t.Fatal(err)
	}
	there := other.sh(t, "ip link show net9")
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"rdmaDevice": "mlx5_0"}))
	wantError(t, a.call("ADD").Exec(t), 101, "mlx5_0", "net9", other.Path)
	if now := other.sh(t, "ip link show net9"); now != there {
		t.Errorf("the other pod had %s, and has %s", there, now)
	}
	other.sh(t, "ip link set net9 netns 1 name ib0")
	Same(t, before)
	a.add(t)
	a.del(t)
	Same(t, before)
}
