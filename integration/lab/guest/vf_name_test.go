//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"testing"
)

// A new RDMA device gets the lowest name that is free in its network namespace: since 7.3 that of a device that is in a
// pod, also if the new one was called otherwise before. That device returns all the same, from a pod that lives or one
// that is dead; DEL reports twice that its name is taken, and its next DEL gives it back once it is free.
func TestVFNewDeviceTakesTheName(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			vfs := VFHost(t, 3, Fabric{})
			before := Snapshot(t).numberless()
			own, other := vfs[0].HCA(), vfs[2].HCA()
			a := interfaceOf(NewPod(t, "pod"), "net1", vfConf(vfs[0], "", nil))
			a.add(t)
			shell(t, fmt.Sprintf("cd /sys/bus/pci/drivers/fakeib; echo %[1]s >unbind; echo %[1]s >bind", vfs[2].PCI))
			Until(t, "the VF has its faces again", func() error {
				if vfs[2].HCA() == "" || vfs[2].Netdev() == "" {
					return errors.New("not yet")
				}
				return nil
			})
			shell(t, "ip link set "+vfs[2].Netdev()+" name ibv2")
			taken := namesPerNetns(t)
			want := other
			if taken {
				want = own
			}
			if got := vfs[2].HCA(); got != want {
				t.Errorf("the new RDMA device is %s, want %s", got, want)
			}
			if dead {
				a.pod.Delete(t)
			}
			if failed := a.retried(t); (failed == 2) != taken || !taken && failed != 0 {
				t.Errorf("%d DELs failed", failed)
			}
			if taken {
				if got := vfs[0].HCA(); got == "" || got == own {
					t.Errorf("the VF is home as %q", got)
				}
				index := indexOf(t, own)
				if err := SetRDMA(index, other, ""); err != nil {
					t.Fatal(err)
				}
				next := interfaceOf(NewPod(t, "next"), "net1", vfConf(vfs[0], "", nil))
				next.add(t)
				next.pod.hasHCA(t, own)
				next.del(t)
			}
			if got := Snapshot(t).numberless(); Diff(before, got) != "" {
				t.Errorf("the host is not what it was:\n%s", Diff(before, got))
			}
		})
	}
}
