//go:build labguest

package guest

import "testing"

// Another plugin has put the interface of a RoCE HCA into its pod, and left the RDMA device on the host: it is not
// taken from there, and the plugin of a chain takes it to that interface.
func TestEtherAdversaryInterfaceElsewhere(t *testing.T) {
	nic := nics(t, "e1000e")[0].Attrs()
	Fabric{RoCE: []string{nic.Name}}.Load(t)
	t.Cleanup(func() { Unload(t) })
	before := Unchanged(t)
	other := NewPod(t, "of-host-device")
	if err := MoveLink(nic.Index, other.Path, "net9"); err != nil {
		t.Fatal(err)
	}
	for name, up := range map[string]string{"down": "true", "up": "ip link set net9 up"} {
		t.Run(name, func(t *testing.T) {
			other.sh(t, up)
			for _, mode := range []string{"device", "rdma"} {
				fields := config{"mode": mode, "rdmaDevice": "mlx5_0", "allowDown": true}
				a := interfaceOf(NewPod(t, name+"-"+mode), "net1", network(fields))
				wantError(t, a.call("ADD").Exec(t), 101, "mlx5_0", "net9", other.Path)
				a.del(t)
			}
			a := interfaceOf(other, "net9", network(config{"mode": "rdma", "rdmaDevice": "mlx5_0", "allowDown": true}))
			a.add(t)
			a.del(t)
		})
	}
	other.sh(t, "ip link set net9 netns 1 name "+nic.Name)
	shell(t, "ip link set "+nic.Name+" down")
	Same(t, before)
}
