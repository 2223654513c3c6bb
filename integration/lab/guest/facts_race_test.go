//go:build labguest

package guest

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Fact 6a: while one device changes its network namespace, a dump may skip another one. A lookup by index does not,
// and a repeated lookup by name finds it.
func TestFactDumpSkipsDevices(t *testing.T) {
	Fabric{Num: 4}.Load(t)
	pod := NewPod(t, "pod")
	h, err := netlink.NewHandle(unix.NETLINK_RDMA)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const rounds = 10
	moved := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < rounds && err == nil; i++ {
			if err = MoveRDMA("mlx5_0", pod.Path); err == nil {
				err = pod.Do(func() error { return MoveRDMA("mlx5_0", HostPath) })
			}
		}
		moved <- err
	}()
	lookups, missed := 0, 0
	for {
		select {
		case err := <-moved:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d lookups by dump missed a device that did not move", missed, lookups)
			return
		default:
		}
		lookups++
		if !listed(t, h, "mlx5_3") {
			missed++
		}
		if _, err := RDMA(h, "mlx5_3"); errors.Is(err, fs.ErrNotExist) {
			t.Fatal("five lookups in a row missed mlx5_3")
		}
	}
}

func listed(t *testing.T, h *netlink.Handle, name string) bool {
	t.Helper()
	links, err := dump(h.RdmaLinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Attrs.Name == name {
			return true
		}
	}
	return false
}
