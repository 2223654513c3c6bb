//go:build labguest

package guest

import (
	"fmt"
	"testing"
)

// A PF and its VFs are never in pods at once: the pod with the PF can change the settings of the VFs.
func TestVFAndPF(t *testing.T) { pfAndVF(t) }

// The same in shared mode, where the RDMA devices stay.
func TestFunctionSharedAndPF(t *testing.T) { pfAndVF(t) }

func pfAndVF(t *testing.T) {
	t.Helper()
	vfs := VFHost(t, 2, Fabric{})
	before := Unchanged(t)
	pf := interfaceOf(NewPod(t, "has-pf"), "net1", network(config{"device": "ibpf"}))
	vf := interfaceOf(NewPod(t, "has-vf"), "net1", vfConf(vfs[1], guidA, nil))
	pf.add(t)
	wantError(t, vf.call("ADD").Exec(t), 101, "PF "+vfs[1].PF, "has-pf", "net1")
	// What the pod changes of the VFs is not there afterwards.
	pf.pod.sh(t, "ip link set net1 vf 0 node_guid "+guidB+"; ip link set net1 vf 1 port_guid "+guidB+
		"; ip link set net1 vf 1 state enable")
	pf.del(t)
	Same(t, before)

	vf.add(t)
	wantError(t, pf.call("ADD").Exec(t), 101, "VF "+vfs[1].PCI, "has-vf")
	vf.del(t)
	Same(t, before)

	// A pod that is dead has nothing to say, whichever of the two it had.
	for i, order := range [][2]*attachment{{pf, vf}, {vf, pf}} {
		first, second := order[0], order[1]
		first.pod, second.pod = NewPod(t, fmt.Sprintf("dead%d", i)), NewPod(t, fmt.Sprintf("alive%d", i))
		first.add(t)
		first.pod.Delete(t)
		second.add(t)
		first.del(t)
		second.del(t)
		Same(t, before)
	}
}

// A VF that a program in userspace has is one in a pod, too.
func TestVFUserspaceAndPF(t *testing.T) {
	vfs := VFHost(t, 1, Fabric{})
	Modprobe(t, "vfio_pci")
	dev := "/sys/bus/pci/devices/" + vfs[0].PCI
	shell(t, "echo vfio-pci >"+dev+"/driver_override; echo "+vfs[0].PCI+" >"+dev+"/driver/unbind; "+
		"echo "+vfs[0].PCI+" >/sys/bus/pci/drivers/vfio-pci/bind")
	defer shell(t, "echo >"+dev+"/driver_override; echo "+vfs[0].PCI+" >/sys/bus/pci/drivers/vfio-pci/unbind; "+
		"echo "+vfs[0].PCI+" >/sys/bus/pci/drivers/fakeib/bind")
	before := Snapshot(t)
	vf := interfaceOf(NewPod(t, "has-vf"), "net1", vfConf(vfs[0], "", nil))
	pf := interfaceOf(NewPod(t, "has-pf"), "net1", network(config{"device": "ibpf"}))
	vf.add(t)
	wantError(t, pf.call("ADD").Exec(t), 101, "VF "+vfs[0].PCI, "has-vf")
	vf.del(t)
	pf.add(t)
	wantError(t, vf.call("ADD").Exec(t), 101, "PF "+vfs[0].PF, "has-pf")
	pf.del(t)
	Same(t, before)
}

// Two calls that look at the same moment: at most one of them is served.
func TestVFAndPFAtOnce(t *testing.T) {
	vfs := VFHost(t, 1, Fabric{})
	before := Unchanged(t)
	for i := range 6 {
		pf := interfaceOf(NewPod(t, fmt.Sprintf("pf%d", i)), "net1", network(config{"device": "ibpf"}))
		vf := interfaceOf(NewPod(t, fmt.Sprintf("vf%d", i)), "net1", vfConf(vfs[0], "", nil))
		answers := make(chan Outcome)
		for _, a := range []*attachment{pf, vf} {
			go func() { answers <- a.call("ADD").Exec(t) }()
		}
		served := 0
		for range 2 {
			if out := <-answers; !out.Failed() {
				served++
			} else if out.Err == nil || out.Err.Code != 101 {
				t.Errorf("%s", out)
			}
		}
		if served > 1 {
			t.Error("both are served")
		}
		pf.del(t)
		vf.del(t)
		Same(t, before)
	}
}
