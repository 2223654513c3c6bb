//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// A driver that makes its RDMA device anew when the interface moves: the pod would have the interface without it. ADD
// fails and says why, and both are on the host again under their names.
func TestEtherRDMADeviceAnew(t *testing.T) {
	e := nics(t, "e1000e")[0].Attrs().Name
	Fabric{RoCE: []string{e}, RoCEAnew: true}.Load(t)
	before := links(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{
		"device": e, "allowDown": true, "ipam": static("10.1.0.1/24"),
		"detectConflicts": true, // the driver needs a moment, and this takes longer
	}))
	for range 2 {
		wantError(t, a.call("ADD").Exec(t), 105, "RDMA device mlx5_0 left the pod when interface "+e+" moved",
			"driver e1000e makes it anew")
		Until(t, "the RDMA device is on the host", func() error {
			_, err := os.Stat("/sys/class/infiniband/mlx5_0/device/net/" + e)
			if err == nil && links(t) != before {
				err = errors.New(links(t))
			}
			return err
		})
		a.del(t)
	}
	// Without its RDMA device the interface can be attached.
	a.conf["rdma"], a.conf["detectConflicts"] = "none", false
	a.add(t)
	a.del(t)
	Until(t, "the host is as before", func() error {
		if now := links(t); now != before {
			return fmt.Errorf("%s\nwant %s", now, before)
		}
		return nil
	})
}

// links is what the host has: its interfaces and RDMA devices by name.
func links(t *testing.T) string {
	t.Helper()
	return onHost(t, "ls /sys/class/net /sys/class/infiniband")
}
