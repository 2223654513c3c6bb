//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nics returns the host's netdevs of a driver, in the order of their PCI addresses.
func nics(t *testing.T, driver string) []netlink.Link {
	t.Helper()
	Modprobe(t, "virtio_net")
	Modprobe(t, "e1000e")
	var found []netlink.Link
	Until(t, "there are two "+driver, func() error {
		found = nil
		links, err := dump(netlink.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			target, err := os.Readlink("/sys/class/net/" + l.Attrs().Name + "/device/driver")
			if err == nil && filepath.Base(target) == driver {
				found = append(found, l)
			}
		}
		if len(found) < 2 {
			return fmt.Errorf("found %d", len(found))
		}
		return nil
	})
	return found
}

// A virtio netdev's parent is not the PCI function but a device of the virtio bus on it.
func TestEtherParents(t *testing.T) {
	for driver, bus := range map[string]string{"virtio_net": "virtio", "e1000e": "pci"} {
		for _, l := range nics(t, driver) {
			if got := l.Attrs().ParentDevBus; got != bus {
				t.Errorf("%s of %s is on bus %s, want %s", l.Attrs().Name, driver, got, bus)
			}
		}
	}
}

// The HCA on a NIC is on its PCI function, whatever is in between.
func TestEtherRoCE(t *testing.T) {
	e, v := nics(t, "e1000e"), nics(t, "virtio_net")
	Fabric{RoCE: []string{e[0].Attrs().Name, v[0].Attrs().Name}}.Load(t)
	for i, l := range []netlink.Link{e[0], v[0]} {
		hca := fmt.Sprintf("/sys/class/infiniband/mlx5_%d", i)
		device, err := filepath.EvalSymlinks(hca + "/device")
		if err != nil {
			t.Fatal(err)
		}
		netdev, err := filepath.EvalSymlinks("/sys/class/net/" + l.Attrs().Name + "/device")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(netdev, device) || !strings.HasPrefix(filepath.Base(device), "0000:") {
			t.Errorf("%s is on %s, its netdev %s on %s", hca, device, l.Attrs().Name, netdev)
		}
		layer, err := os.ReadFile(hca + "/ports/1/link_layer")
		if err != nil || string(layer) != "Ethernet\n" {
			t.Errorf("link layer of %s is %q, %v", hca, layer, err)
		}
		ndev, err := os.ReadFile(hca + "/ports/1/gid_attrs/ndevs/0")
		if err != nil || strings.TrimSpace(string(ndev)) != l.Attrs().Name {
			t.Errorf("netdev of GID 0 of %s is %q, %v", hca, ndev, err)
		}
	}
}

// A RoCE device and its netdev move one after the other, in either order; both come back from a deleted namespace,
// the netdev down and under the pod's name.
func TestEtherRoCEMoves(t *testing.T) {
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name, e[1].Attrs().Name}}.Load(t)
	host := Host(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for i, pod := range pods {
		a := e[i].Attrs()
		if i == 0 {
			if err := MoveRDMA("mlx5_0", pod.Path); err != nil {
				t.Fatal(err)
			}
		}
		if err := MoveLink(a.Index, pod.Path, "net1"); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := MoveRDMA("mlx5_1", pod.Path); err != nil {
				t.Fatal(err)
			}
		}
		up(t, pod.Handle(t), "net1", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	ping(t, pods[0], "10.0.0.2")
	for i, pod := range pods {
		a := e[i].Attrs()
		pod.Delete(t)
		Until(t, "both are back", func() error {
			if _, err := RDMA(host, fmt.Sprintf("mlx5_%d", i)); err != nil {
				return err
			}
			_, err := host.LinkByName("net1")
			return err
		})
		l := mustLink(t, host, "net1")
		if l.RawFlags&unix.IFF_UP != 0 || l.ParentDev != a.ParentDev {
			t.Errorf("%s came back as %+v", a.Name, l)
		}
		shell(t, "ip link set net1 name "+a.Name)
	}
}

// A virtio netdev comes back from a deleted namespace too.
func TestEtherVirtioComesBack(t *testing.T) {
	v := nics(t, "virtio_net")[0].Attrs()
	pod := NewPod(t, "pod")
	if err := MoveLink(v.Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	pod.Delete(t)
	host := Host(t)
	Until(t, "it is back", func() error { _, err := host.LinkByName("net1"); return err })
	shell(t, "ip link set net1 name "+v.Name)
}
