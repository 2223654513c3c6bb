//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// functionOf returns the PCI address under a netdev.
func functionOf(t *testing.T, l netlink.Link) string {
	t.Helper()
	path, err := filepath.EvalSymlinks("/sys/class/net/" + l.Attrs().Name + "/device")
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(filepath.Base(path), "virtio") {
		path = filepath.Dir(path)
	}
	return filepath.Base(path)
}

// loseable gives a netdev something to lose.
func loseable(t *testing.T, name string, i int) {
	t.Helper()
	shell(
		t,
		fmt.Sprintf(
			`ip link set %[1]s mtu 1400 txqueuelen 77 alias 'card %[2]d' up
ip link property add dev %[1]s altname card%[2]d
ip address replace 10.7%[2]d.0.1/24 dev %[1]s; ip -6 address replace fd7%[2]d::1/64 dev %[1]s nodad
ip route replace 10.9%[2]d.0.0/16 via 10.7%[2]d.0.2 metric 5
echo 1 >/proc/sys/net/ipv4/conf/%[1]s/arp_ignore`,
			name,
			i,
		),
	)
	carrier(t, name, true) // e1000e takes seconds: a snapshot that is made before has no link-local address
	t.Cleanup(func() {
		shell(
			t,
			fmt.Sprintf(
				"ip link property del dev %[1]s altname card%[2]d; ip link set %[1]s alias ''; ip address flush dev "+
					"%[1]s; ip link set %[1]s down mtu 1500 txqueuelen 1000; "+
					"echo 0 >/proc/sys/net/ipv4/conf/%[1]s/arp_ignore",
				name,
				i,
			),
		)
	})
}

// A virtio card and a card with a RoCE HCA, selected in every way, moved, and given back.
func TestEtherPluginSelectors(t *testing.T) {
	v, e := nics(t, "virtio_net")[0], nics(t, "e1000e")[0]
	Fabric{RoCE: []string{e.Attrs().Name}}.Load(t)
	for i, l := range []netlink.Link{v, e} {
		name, pci := l.Attrs().Name, functionOf(t, l)
		loseable(t, name, i)
		before := Snapshot(t)
		path, err := filepath.EvalSymlinks("/sys/class/net/" + name + "/device")
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]config{
			"PCI": {
				"deviceID": pci,
			},
			"PCI, upper case": {"pciBusID": strings.ToUpper(pci)},
			"name":            {"device": name},
			"altname":         {"device": fmt.Sprint("card", i)},
			"hwaddr": {
				"hwaddr": l.Attrs().HardwareAddr.String(),
			},
			"kernelpath":        {"kernelpath": path + "/net/" + name},
			"kernelpath of net": {"kernelpath": path + "/net"},
		}
		if l == e {
			all["rdmaDevice"] = config{"rdmaDevice": "mlx5_0"}
		}
		for what, fields := range all {
			t.Run(name+" by "+what, func(t *testing.T) {
				fields["ipam"] = static("10.0.0.5/24", "fd00::5/64")
				pod := NewPod(t, "pod")
				a := interfaceOf(pod, "net1", network(fields))
				out := a.add(t)
				pod.has(t, "net1", "10.0.0.5/24", "fd00::5/64")
				if l == e {
					pod.hasHCA(t, "mlx5_0")
				}
				if out.Result == nil || out.Result.Interfaces[0].PciID != pci || out.Result.Interfaces[0].Mtu != 1400 {
					t.Errorf("result: %s", out)
				}
				a.call("CHECK").Must(t)
				a.del(t)
				Same(t, before)
			})
		}
	}
}

// The pod changes what it can, or dies; the host's names are taken meanwhile.
func TestEtherPluginComesBack(t *testing.T) {
	v, e := nics(t, "virtio_net")[0], nics(t, "e1000e")[0]
	Fabric{RoCE: []string{e.Attrs().Name}}.Load(t)
	Modprobe(t, "dummy")
	other := nics(t, "virtio_net")[1].Attrs().Name
	for i, l := range []netlink.Link{v, e} {
		name := l.Attrs().Name
		loseable(t, name, i)
		before := Snapshot(t)
		for what, change := range map[string]string{
			"renamed": "ip link set net1 down; ip link set net1 name other", "alias": "ip link set net1 alias x",
			"altnames":           "ip link property del dev net1 altname " + name,
			"altname of another": "ip link property add dev net1 altname " + other,
			"hardware address":   "ip link set net1 address 02:00:00:00:00:99", "dead": "",
			"VLAN on it":     "ip link add link net1 name net1.5 type vlan id 5",
			"bridge over it": "ip link add br9 type bridge; ip link set net1 master br9",
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				Modprobe(t, "8021q")
				Modprobe(t, "bridge")
				pod := NewPod(t, "pod")
				a := interfaceOf(pod, "net1", network(config{"device": name, "ipam": static("10.0.0.5/24")}))
				a.add(t)
				if what == "dead" {
					pod.Delete(t)
				} else {
					pod.sh(t, change)
				}
				a.del(t)
				a.del(t)
				Same(t, before)
			})
		}
	}
}

// Another netdev has the name when the device returns: it is on the host all the same, and DEL says under which name.
func TestEtherPluginNameTaken(t *testing.T) {
	name := nics(t, "virtio_net")[0].Attrs().Name
	Unload(t)
	Modprobe(t, "dummy")
	before := Snapshot(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": name}))
	a.add(t)
	shell(t, "ip link add "+name+" type dummy")
	out := a.call("DEL").Exec(t)
	shell(t, "ip link del "+name)
	home := nics(t, "virtio_net")[0].Attrs().Name
	if home == name || !strings.Contains(out.Stderr+out.String(), "the name is taken") {
		t.Errorf("the device is home as %s: %s %s", home, out, out.Stderr)
	}
	a.del(t)
	if now := nics(t, "virtio_net")[0].Attrs().Name; now != name {
		shell(t, "ip link set "+now+" name "+name)
	}
	if _, err := os.Stat(a.entryFile()); err == nil {
		t.Error("the attachment is still on record")
	}
	Same(t, before)
}

// Pods on two RoCE rails reach each other.
func TestEtherPluginPing(t *testing.T) {
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name, e[1].Attrs().Name}}.Load(t)
	Unchanged(t)
	var pods []*Pod
	var list []*attachment
	for i, l := range e {
		pods = append(pods, NewPod(t, fmt.Sprintf("pod%d", i)))
		list = append(
			list,
			interfaceOf(
				pods[i],
				"rail0",
				network(
					config{
						"deviceID": functionOf(t, l),
						"ipam":     static(fmt.Sprintf("10.0.0.%d/24", i+1), fmt.Sprintf("fd00::%d/64", i+1)),
					},
				),
			),
		)
		list[i].add(t)
		pods[i].hasHCA(t, fmt.Sprintf("mlx5_%d", i))
	}
	ping(t, pods[0], "10.0.0.2")
	ping(t, pods[1], "fd00::1")
	for _, a := range list {
		a.del(t)
	}
}
