package dra

import (
	"testing"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// kubelet is told when the health of a device changes, and of a share by each name that it may have.
func TestHealth(t *testing.T) {
	n := newNode(t, "0000:3b:00.0")
	before, changed := n.healthNow()
	if len(before.Devices) != 1 || before.Devices[0].Health != kubeletplugin.HealthStatusHealthy {
		t.Fatalf("%v", before)
	}
	n.see("0000:3b:00.0")
	select {
	case <-changed:
		t.Error("nothing has changed")
	default:
	}
	v := View{Fabrics: map[string]bool{"ib": true}, Devices: []Device{n.view.Devices[0]}}
	v.Devices[0].Health, v.Devices[0].Item.Shares = "Flapping", 2
	n.Update(v)
	select {
	case <-changed:
	default:
		t.Error("kubelet is not told")
	}
	after, _ := n.healthNow()
	names := map[string]bool{}
	for _, d := range after.Devices {
		names[d.DeviceName] = d.Health == kubeletplugin.HealthStatusUnhealthy && d.PoolName == "n1"
	}
	if len(names) != 3 || !names[dev0] || !names[dev0+"-share-0"] || !names[dev0+"-share-1"] {
		t.Errorf("%v", after)
	}
}
