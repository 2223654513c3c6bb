package dra

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func (n *node) offers(t *testing.T) (out []string) {
	t.Helper()
	items, err := n.offered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		out = append(out, items[i].ID())
	}
	return out
}

// A device that a pod has by kubelet's device plugin is not the scheduler's, before its ADD and after it; one that a
// claim has given stays in the slice.
func TestNeverBoth(t *testing.T) {
	n := newNode(t, "0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0")
	n.Given = func(context.Context) ([]Unit, error) {
		return []Unit{{"fabric.dev/ib", "0000:86:00.0"}, {"fabric.dev/other", "0000:3b:00.0"}}, nil
	}
	if _, err := n.claim(t, given("c1", "p1", dev0)); err != nil {
		t.Fatal(err)
	}
	for id, pod := range map[string]string{"0000:3b:00.0": "uid-p1", "0000:5e:00.0": "uid-p2"} {
		e := &journal.Entry{
			Key: journal.Key{ContainerID: pod, IfName: "net1"}, Network: "ib", Kind: journal.KindDevice,
			DeviceKey: "pci/" + id, Address: device.Address{Bus: "pci", Name: id}, Netns: netns.ID{Ino: 1},
			Args: "K8S_POD_NAME=p;K8S_POD_UID=" + pod,
		}
		if err := n.Store.Save(e); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"0000:3b:00.0"}, n.offers(t)); diff != "" {
		t.Error(diff)
	}
}

// A device that just moves is found nowhere for a moment: it stays once. One that another fabric has is gone at once.
func TestKeep(t *testing.T) {
	n := newNode(t, "0000:3b:00.0", "0000:5e:00.0")
	n.see("0000:5e:00.0")
	if diff := cmp.Diff([]string{"0000:3b:00.0", "0000:5e:00.0"}, n.offers(t)); diff != "" {
		t.Errorf("missing once: %s", diff)
	}
	n.see("0000:5e:00.0")
	if diff := cmp.Diff([]string{"0000:5e:00.0"}, n.offers(t)); diff != "" {
		t.Errorf("missing twice: %s", diff)
	}
	n.Update(View{Fabrics: map[string]bool{"ib": true}, Elsewhere: map[device.Location]bool{
		device.LocationOnPCI("0000:5e:00.0"): true,
	}})
	if got := n.offers(t); len(got) != 0 {
		t.Errorf("of another fabric: %v", got)
	}
}

// What a pod does to its device is not what the slice says of it, but what is wrong with it is.
func TestInPod(t *testing.T) {
	n := newNode(t, "0000:3b:00.0")
	v := View{Fabrics: map[string]bool{"ib": true}, Devices: []Device{n.view.Devices[0]}}
	v.Devices[0].Item.State, v.Devices[0].Item.Problem, v.Devices[0].InPod = "Down", "Flapping", true
	n.Update(v)
	items, err := n.offered(t.Context())
	if err != nil || len(items) != 1 || items[0].State != "" || items[0].Problem != "Flapping" {
		t.Errorf("%+v, %v", items, err)
	}
	v.Devices[0].Moving, v.Devices[0].Item.Problem = true, "PortDown"
	n.Update(v)
	if items, err = n.offered(t.Context()); err != nil || items[0].Problem != "Flapping" {
		t.Errorf("on its way: %+v, %v", items, err)
	}
}
