//go:build labguest

package guest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	guidA = "00:11:22:33:44:55:66:0a"
	guidB = "00:11:22:33:44:55:66:0b"
)

// vfConf is a network on a VF, with a GUID for the pod unless that is empty.
func vfConf(vf SRIOVFunction, guid string, fields config) config {
	c := network(config{"deviceID": vf.PCI, "ipam": static(fmt.Sprintf("10.0.0.%d/24", vf.Index+1))})
	if guid != "" {
		c["runtimeConfig"] = config{"infinibandGUID": guid}
	}
	for k, v := range fields {
		c[k] = v
	}
	return c
}

// hasGUID checks node and port GUID of what is in the pod.
func hasGUID(t *testing.T, pod *Pod, ifname, guid string) {
	t.Helper()
	hw := pod.link(t, ifname).Attrs().HardwareAddr.String()
	if !strings.HasSuffix(hw, guid) {
		t.Errorf("hardware address %s, want GUID %s", hw, guid)
	}
	short := strings.ReplaceAll(guid, ":", "")
	if out := pod.sh(t, "rdma -d dev"); !strings.Contains(strings.ReplaceAll(out, ":", ""), "node_guid "+short) {
		t.Errorf("GUID %s is not in: %s", guid, out)
	}
}

// The pod's GUID is there, on the VF and on the PF; afterwards the VF has its own again, and its siblings never change.
func TestVFGUID(t *testing.T) {
	vfs := VFHost(t, 4, Fabric{})
	before := Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", vfConf(vfs[0], guidA, config{"linkState": "enable"}))
	out := a.add(t)
	hasGUID(t, pod, "net1", guidA)
	if f := out.Result.Interfaces; len(f) != 1 || f[0].PciID != vfs[0].PCI ||
		f[0].Mac != pod.link(t, "net1").Attrs().HardwareAddr.String() {
		t.Errorf("interfaces: %s", out.Stdout)
	}
	s, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if line := s.VFs["ibpf"][0]; !containsAll(line, "link-state enable", "NODE_GUID "+guidA, "PORT_GUID "+guidA) {
		t.Errorf("the PF has %s", line)
	}
	for name, was := range before.RDMA {
		if now := s.RDMA[name]; now.Device != was.Device && strings.HasPrefix(name, "mlx5") &&
			was.Device != before.RDMA["mlx5_1"].Device {
			t.Errorf("%s is %s, was %s", name, now.Device, was.Device)
		}
	}
	a.call("CHECK").Must(t)
	a.del(t)
	a.del(t)
	Same(t, before)

	// The next pod, without a GUID of its own, does not have this one's.
	next := interfaceOf(NewPod(t, "next"), "net1", vfConf(vfs[0], "", nil))
	next.add(t)
	if hw := next.pod.link(t, "net1").Attrs().HardwareAddr.String(); strings.HasSuffix(hw, guidA) {
		t.Errorf("the next pod has the GUID: %s", hw)
	}
	next.del(t)
}

// A GUID that the VF has already costs no rebind: the RDMA device stays the same.
func TestVFSameGUID(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	before := Unchanged(t)
	own := strings.TrimSpace(readFile(t, "/sys/class/infiniband/"+vfs[1].HCA()+"/node_guid"))
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", vfConf(vfs[1], strings.ReplaceAll(own, ":", ""), nil))
	points, out := Points(t, a.call("ADD"))
	if out.Failed() {
		t.Fatal(out)
	}
	for _, p := range points {
		if strings.Contains(p, "rebind") || strings.Contains(p, "set-vf") {
			t.Errorf("ADD has done %s", p)
		}
	}
	a.del(t)
	Same(t, before)
}

// A GUID is unique: the RDMA device, the VF or the pod that has it is named.
func TestVFGUIDTaken(t *testing.T) {
	vfs := VFHost(t, 3, Fabric{})
	commands(t, [][]string{{"ip", "link", "set", "ibpf", "vf", "2", "port_guid", guidB}})
	Unchanged(t)
	pf := strings.TrimSpace(readFile(t, "/sys/class/infiniband/mlx5_0/node_guid"))
	pod := NewPod(t, "pod")
	add := func(guid string) Outcome {
		return interfaceOf(pod, "net1", vfConf(vfs[0], guid, nil)).call("ADD").Exec(t)
	}
	wantError(t, add(strings.ReplaceAll(pf, ":", "")), 101, "guid", "mlx5_0")
	wantError(t, add(guidB), 101, "guid", "VF 2 of ibpf")
	other := interfaceOf(NewPod(t, "other"), "net1", vfConf(vfs[1], guidA, nil))
	other.add(t)
	wantError(t, add(guidA), 101, "guid", "other", "net1")
	other.del(t)
	a := interfaceOf(pod, "net1", vfConf(vfs[0], guidA, nil))
	a.add(t)
	a.del(t)
}

// A VF without a GUID is not handed out; with one its port comes up.
func TestVFWithoutGUID(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{NoVFGUID: true})
	Unchanged(t)
	pod := NewPod(t, "pod")
	wantError(
		t,
		interfaceOf(pod, "net1", vfConf(vfs[0], "", nil)).call("ADD").Exec(t),
		102,
		"no GUID",
		"infinibandGUID",
	)
	a := interfaceOf(pod, "net1", vfConf(vfs[0], guidA, nil))
	a.add(t)
	hasGUID(t, pod, "net1", guidA)
	a.del(t)
	// The link state keeps the port down whatever the GUID.
	wantError(
		t,
		interfaceOf(pod, "net1", vfConf(vfs[0], guidA, config{"link_state": "disable"})).call("ADD").Exec(t),
		102,
		"Down",
	)
}

// ib-kubernetes has its say first, and then the subnet manager: the port must be in the partition.
func TestVFKubernetes(t *testing.T) {
	vfs := VFHost(t, 1, Fabric{})
	Unchanged(t)
	pod := NewPod(t, "pod")
	conf := func(pkey string, cni config) config {
		return vfConf(
			vfs[0],
			"",
			config{"type": "ib-sriov", "ibKubernetesEnabled": true, "pkey": pkey, "args": config{"cni": cni}},
		)
	}
	wantError(t, interfaceOf(pod, "net1", conf("0x1", config{"guid": guidA})).call("ADD").Exec(t), 11, "ib-kubernetes")
	configured := config{"guid": guidA, "mellanox.infiniband.app": "configured"}
	a := interfaceOf(pod, "net1", conf("0x5", configured))
	wantError(t, a.call("ADD").Exec(t), 102, "pkey", "0x8005", "0x8001")
	a.del(t)
	a = interfaceOf(pod, "net1", conf("0x1", configured))
	a.add(t)
	hasGUID(t, pod, "net1", guidA)
	a.del(t)
}

// What does not fit is refused before anything changes.
func TestVFRefused(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	Unchanged(t)
	pf := SRIOVFunction{PCI: vfs[0].PF}
	pod := NewPod(t, "pod")
	for name, tt := range map[string]struct {
		conf  config
		code  uint
		words []string
	}{
		"vlan on InfiniBand": {vfConf(vfs[0], "", config{"vlan": 7}), 7, []string{"vlan", "InfiniBand"}},
		"mac on InfiniBand": {
			vfConf(vfs[0], "", config{"mac": "02:00:00:00:00:01"}), 7, []string{"mac", "InfiniBand"},
		},
		"rates on InfiniBand": {vfConf(vfs[0], "", config{"max_tx_rate": 7}), 7, []string{"TxRate", "InfiniBand"}},
		"GUID on a PF":        {vfConf(pf, guidA, nil), 7, []string{"guid", "virtual function"}},
		"link state on a PF": {
			vfConf(pf, "", config{"link_state": "enable"}), 7, []string{"linkState", "virtual function"},
		},
		"vfio with a netdev": {
			vfConf(vfs[0], "", config{"vfioPciMode": true}), 7, []string{"vfioPciMode", "fakeib"},
		},
		"GUID that nobody takes": {vfConf(vfs[0], "ff:ff:ff:ff:ff:ff:ff:ff", nil), 7, []string{"infinibandGUID"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, interfaceOf(pod, "net1", tt.conf).call("ADD").Exec(t), tt.code, tt.words...)
		})
	}
	// A PF whose VF is in a pod stays where it can be configured.
	a := interfaceOf(pod, "net1", vfConf(vfs[1], "", nil))
	a.add(t)
	wantError(
		t,
		interfaceOf(NewPod(t, "second"), "net1", vfConf(pf, "", nil)).call("ADD").Exec(t),
		101,
		vfs[1].PCI,
		"pod",
	)
	a.del(t)
	b := interfaceOf(pod, "net1", vfConf(pf, "", nil))
	b.add(t)
	wantError(
		t,
		interfaceOf(NewPod(t, "third"), "net1", vfConf(vfs[0], guidA, nil)).call("ADD").Exec(t),
		101,
		"PF "+pf.PCI,
		"container pod",
	)
	b.del(t)
}

// The device plugin has given the pod uverbsN before ADD: when a lower number is free, the VF gets that, and the pod
// has another device's.
func TestVFCharDevices(t *testing.T) {
	vfs := VFHost(t, 3, Fabric{})
	pod := NewPod(t, "pod")
	shell(t, "echo "+vfs[0].PCI+" >/sys/bus/pci/drivers/fakeib/unbind")
	defer shell(t, "echo "+vfs[0].PCI+" >/sys/bus/pci/drivers/fakeib/bind")
	wantError(
		t,
		interfaceOf(pod, "net1", vfConf(vfs[2], guidA, nil)).call("ADD").Exec(t),
		105,
		"character devices",
		"uverbs",
	)
	if vfs[2].HCA() != "mlx5_3" || vfs[2].Netdev() != "ibv2" {
		t.Errorf("the VF is %s, %s", vfs[2].HCA(), vfs[2].Netdev())
	}
}

// A VF for a program in userspace: nothing of it is a netdev, and it has its settings and an address all the same.
func TestVFUserspace(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	Modprobe(t, "vfio_pci")
	dev := "/sys/bus/pci/devices/" + vfs[1].PCI
	shell(
		t,
		"echo vfio-pci >"+dev+"/driver_override; echo "+vfs[1].PCI+" >"+dev+"/driver/unbind; "+
			"echo "+vfs[1].PCI+" >/sys/bus/pci/drivers/vfio-pci/bind",
	)
	defer shell(
		t,
		"echo >"+dev+"/driver_override; echo "+vfs[1].PCI+" >/sys/bus/pci/drivers/vfio-pci/unbind; "+
			"echo "+vfs[1].PCI+" >/sys/bus/pci/drivers/fakeib/bind",
	)
	before := Snapshot(t)
	pod := NewPod(t, "pod")
	for name, fields := range map[string]config{
		"told": {"vfioPciMode": true, "link_state": "enable"}, "seen": {"link_state": "enable"},
	} {
		t.Run(name, func(t *testing.T) {
			a := interfaceOf(pod, "net1", vfConf(vfs[1], guidA, fields))
			out := a.add(t)
			if f := out.Result.Interfaces; len(f) != 1 || f[0].PciID != vfs[1].PCI || f[0].Sandbox != "" ||
				len(out.Result.IPs) != 1 {
				t.Errorf("result: %s", out.Stdout)
			}
			s, err := Take()
			if err != nil {
				t.Fatal(err)
			}
			if line := s.VFs["ibpf"][1]; !containsAll(line, "link-state enable", "PORT_GUID "+guidA) {
				t.Errorf("the PF has %s", line)
			}
			if vfs[1].Driver() != "vfio-pci" {
				t.Errorf("driver %s", vfs[1].Driver())
			}
			a.del(t)
			Same(t, before)
		})
	}
}

// A subfunction, by its name on the auxiliary bus as a device plugin gives it.
func TestVFSubfunction(t *testing.T) {
	Fabric{SFs: 2}.Load(t)
	commands(
		t,
		[][]string{{"ip", "link", "set", "ib1", "name", "ibsf1"}, {"ip", "link", "set", "ibsf1", "mtu", "2000", "up"}},
	)
	before := Unchanged(t)
	for _, fields := range []config{
		{"deviceID": "fakeib.sf.1"},
		{"runtimeConfig": config{"deviceID": "fakeib.sf.1"}, "capabilities": config{"deviceID": true}},
	} {
		for _, gone := range []bool{false, true} {
			pod := NewPod(t, fmt.Sprintf("pod-%d-%t", len(fields), gone))
			a := interfaceOf(pod, "net1", network(fields))
			a.add(t)
			if mtu := pod.link(t, "net1").Attrs().MTU; mtu != 2000 {
				t.Errorf("MTU %d", mtu)
			}
			if out := pod.sh(t, "rdma dev"); !strings.Contains(out, "mlx5_1") || strings.Contains(out, "mlx5_0") {
				t.Errorf("in the pod: %s", out)
			}
			if gone {
				pod.Delete(t)
			}
			a.del(t)
			Same(t, before)
		}
	}
}

// In shared mode the netdev goes into the pod and the RDMA device stays, both with the pod's GUID.
func TestFunctionSharedGUID(t *testing.T) {
	RequireMode(t, "shared")
	vfs := VFHost(t, 2, Fabric{})
	before := Unchanged(t)
	for _, gone := range []bool{false, true} {
		pod := NewPod(t, fmt.Sprintf("pod-%t", gone))
		a := interfaceOf(pod, "net1", vfConf(vfs[0], guidA, nil))
		a.add(t)
		if hw := pod.link(t, "net1").Attrs().HardwareAddr.String(); !strings.HasSuffix(hw, guidA) {
			t.Errorf("hardware address %s", hw)
		}
		if gone {
			pod.Delete(t)
		}
		a.del(t)
		Same(t, before)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
