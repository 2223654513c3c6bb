//go:build labguest

package guest

import (
	"net"
	"os"
	"strings"
	"testing"
)

// guidOf returns the last 8 bytes of an IPoIB hardware address, which are the port GUID.
func guidOf(hw net.HardwareAddr) string { return hw[12:].String() }

// selectors returns configurations that all mean the device of ibs108, by what selects it.
func selectors(t *testing.T) map[string]config {
	t.Helper()
	hw := mustLink(t, Host(t), "ibs108").HardwareAddr
	return map[string]config{
		"runtimeConfig.deviceID": {
			"runtimeConfig": config{"deviceID": "platform/fakeib.0"},
			"deviceID":      "platform/fakeib.1",
			"capabilities":  config{"deviceID": true},
		},
		"deviceID":               {"deviceID": "platform/fakeib.0"},
		"pciBusID":               {"pciBusID": "platform/fakeib.0"},
		"device":                 {"device": "ibs108"},
		"altname":                {"device": "ibp8s0"},
		"device before deviceID": {"device": "ibs108", "deviceID": "platform/fakeib.1"},
		"hwaddr, 20 bytes":       {"hwaddr": hw.String()},
		"hwaddr, 20 bytes of an earlier queue pair": {"hwaddr": "80:00:00:99" + hw.String()[11:]},
		"hwaddr, 8 bytes":         {"hwaddr": guidOf(hw)},
		"kernelpath":              {"kernelpath": "/sys/devices/platform/fakeib.0"},
		"kernelpath, net":         {"kernelpath": "/sys/devices/platform/fakeib.0/net/ibs108"},
		"rdmaDevice":              {"rdmaDevice": "mlx5_0"},
		"guid":                    {"guid": strings.ToUpper(guidOf(hw))},
		"guid, as rdma prints it": {"guid": strings.ReplaceAll(guidOf(hw), ":", "")},
	}
}

func TestPluginSelectors(t *testing.T) {
	S1(t)
	for name, fields := range selectors(t) {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(fields))
			a.add(t)
			pod.hasHCA(t, "mlx5_0")
			if got := pod.link(t, "net1").Attrs().ParentDev; got != "fakeib.0" {
				t.Errorf("net1 is the netdev of %s", got)
			}
			a.del(t)
		})
	}
}

func TestPluginSelectorsThatFitNothing(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		fields config
		words  []string
	}{
		"PCI":       {config{"deviceID": "0000:ff:1f.7"}, []string{`deviceID "0000:ff:1f.7"`, "no such device"}},
		"auxiliary": {config{"pciBusID": "mlx5_core.sf.44"}, []string{`pciBusID "mlx5_core.sf.44"`}},
		"runtime": {config{"runtimeConfig": config{"deviceID": "0000:ff:1f.7"}}, []string{`runtimeConfig.deviceID ` +
			`"0000:ff:1f.7"`}},
		"device": {config{"device": "ibs999"}, []string{`device "ibs999"`, "no such device", "ip -d link"}},
		"hwaddr": {config{"hwaddr": "02:00:00:00:00:01"}, []string{"02:00:00:00:00:01"}},
		"GUID":   {config{"guid": "00:02:c9:03:00:00:00:01"}, []string{"00:02:c9:03:00:00:00:01"}},
		"kernelpath": {config{"kernelpath": "/sys/devices/platform/fakeib.77"}, []string{"/sys/devices/platform/" +
			"fakeib.77"}},
		"rdmaDevice": {config{"rdmaDevice": "mlx5_99"}, []string{"mlx5_99"}},
		"master":     {config{"mode": "ipoib", "master": "ibs999"}, []string{"ibs999"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := interfaceOf(pod, "net1", network(c.fields))
			wantError(t, a.call("ADD").Exec(t), 100, c.words...)
			a.del(t)
		})
	}
}

func TestPluginSelectorsThatAreWrong(t *testing.T) {
	S1(t)
	Modprobe(t, "dummy")
	shell(t, "ip link add d1 type dummy; ip link add d2 address $(cat /sys/class/net/d1/address) type dummy")
	t.Cleanup(func() { shell(t, "ip link del d1; ip link del d2") })
	mac, err := os.ReadFile("/sys/class/net/d1/address")
	if err != nil {
		t.Fatal(err)
	}
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		fields config
		words  []string
	}{
		"ambiguous": {config{"hwaddr": strings.TrimSpace(string(mac))}, []string{"more than one", "d1", "d2"}},
		"none":      {config{}, []string{"deviceID", "device", "hwaddr", "kernelpath", "rdmaDevice", "guid"}},
		"two": {
			config{"device": "ibs108", "hwaddr": "02:00:00:00:00:01"}, []string{"hwaddr", "device", "one selector"},
		},
		"address":       {config{"deviceID": "3b:00"}, []string{"deviceID", "3b:00", "0000:3b:00.2"}},
		"number":        {config{"deviceID": "7"}, []string{"RDMA shared device plugin"}},
		"path":          {config{"kernelpath": "/sys/devices/../../etc"}, []string{"kernelpath", "/sys/devices/"}},
		"no device":     {config{"kernelpath": "/sys/devices/platform"}, []string{"platform"}},
		"name in place": {config{"device": "0000:3b:00.2"}, []string{"device", "deviceID"}},
		"GUID":          {config{"guid": "00:00:00:00:00:00:00:00"}, []string{"guid", "8 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := interfaceOf(pod, "net1", network(c.fields))
			out := a.call("ADD").Exec(t)
			code := uint(7)
			if name == "no device" && out.Err != nil && out.Err.Code == 100 {
				code = 100 // a directory is no device: either code tells that
			}
			wantError(t, out, code, c.words...)
		})
	}
}

func TestPluginDeviceInUse(t *testing.T) {
	S1(t)
	Unchanged(t)
	owner := interfaceOf(NewPod(t, "owner"), "net7", network(config{"device": "ibs108", "name": "first"}))
	owner.add(t)
	pod := NewPod(t, "pod")
	hw := owner.pod.link(t, "net7").Attrs().HardwareAddr
	for name, fields := range map[string]config{
		"by address": {
			"deviceID": "platform/fakeib.0"}, "by name": {"device": "ibs108"}, "by altname": {"device": "rail0"},
		"by RDMA device": {
			"rdmaDevice": "mlx5_0"}, "by GUID": {"guid": guidOf(hw)}, "by hardware address": {"hwaddr": guidOf(hw)},
		"by path": {"kernelpath": "/sys/devices/platform/fakeib.0"}, "as master": {"mode": "ipoib", "master": "ibs108"},
	} {
		t.Run(name, func(t *testing.T) {
			a := interfaceOf(pod, "net1", network(fields))
			wantError(t, a.call("ADD").Exec(t), 101, "container owner", "net7", "network first", owner.pod.Path)
			a.del(t) // must not touch the owner's
			owner.pod.hasHCA(t, "mlx5_0")
		})
	}
	// The same attachment twice: the runtime has to call DEL in between.
	wantError(t, owner.call("ADD").Exec(t), 101, "net7")
	other := interfaceOf(owner.pod, "net8", network(config{"device": "ibs108"}))
	wantError(t, other.call("ADD").Exec(t), 101, "owner")
	owner.del(t)
	a := interfaceOf(pod, "net1", network(config{"device": "ibs108"}))
	a.add(t)
	a.del(t)
}

// The owner's pod died without DEL: the device is taken back, its address freed, and ADD succeeds.
func TestPluginDeviceOfDeadOwner(t *testing.T) {
	for name, fields := range map[string]config{
		"by address": {"deviceID": "platform/fakeib.0"}, "by name": {"device": "ibs108"},
		"by RDMA device": {"rdmaDevice": "mlx5_0"},
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			fields["ipam"] = hostLocal("10.0.0.0/24")
			owner := interfaceOf(NewPod(t, "owner"), "net7", network(fields))
			owner.add(t)
			owner.pod.Delete(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(fields))
			a.add(t)
			pod.hasHCA(t, "mlx5_0")
			if held := heldAddresses(t); len(held) != 1 {
				t.Errorf("held: %v", held)
			}
			owner.del(t)
			pod.hasHCA(t, "mlx5_0")
			a.del(t)
		})
	}
}
