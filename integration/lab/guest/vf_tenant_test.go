//go:build labguest

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// number is the kernel's of the VF's RDMA device, which is on the host. It gets a new one whenever its driver is bound.
func (f SRIOVFunction) number(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("rdma", "dev", "show", f.HCA()).Output()
	n, _, ok := strings.Cut(string(out), ":")
	if err != nil || !ok {
		t.Fatalf("rdma dev show: %v, %q", err, out)
	}
	return n
}

// of is an attachment of a pod in a namespace. The pod has the namespace's name and a number.
func (f SRIOVFunction) of(t *testing.T, namespace string, number int, guid string) *attachment {
	t.Helper()
	a := interfaceOf(NewPod(t, fmt.Sprint("pod", number)), "net1", vfConf(f, guid, nil))
	if namespace != "" {
		a.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace
	}
	return a
}

// ADD binds a VF's driver again if the VF's last pod was in another namespace, and the VF keeps the host's settings. It
// does not for the first pod, for the next pod in the same namespace, or if the node policy turns it off.
func TestVFTenant(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	before := Unchanged(t)
	for i, c := range []struct {
		namespace string
		off, anew bool
	}{
		{namespace: ""},
		{namespace: ""},
		{namespace: "team-a", anew: true},
		{namespace: "team-a"},
		{namespace: "team-b", anew: true},
		{namespace: "team-a", off: true},
		{namespace: "team-a"},
		{namespace: "", anew: true},
	} {
		policyFile(t, fmt.Sprintf(`{"rebindBetweenTenants": %t}`, !c.off))
		was := vfs[0].number(t)
		a := vfs[0].of(t, c.namespace, i, "")
		a.add(t)
		if mtu := a.pod.link(t, "net1").Attrs().MTU; mtu != 2000 {
			t.Errorf("%d: MTU %d", i, mtu)
		}
		a.call("CHECK").Must(t)
		a.del(t)
		if anew := vfs[0].number(t) != was; anew != c.anew {
			t.Errorf("pod %d of namespace %q: bound anew %t, want %t", i, c.namespace, anew, c.anew)
		}
		Same(t, before)
	}
}

// With a GUID of the pod's the driver is bound once, not twice.
func TestVFTenantGUID(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	before := Unchanged(t)
	for i, namespace := range []string{"team-a", "team-b"} {
		a := vfs[0].of(t, namespace, i, guidA)
		points, out := Points(t, a.call("ADD"))
		if out.Failed() {
			t.Fatal(out)
		}
		hasGUID(t, a.pod, "net1", guidA)
		if !slices.Contains(points, "within/rebind-driver") {
			t.Errorf("%s: passed %v", namespace, points)
		}
		a.del(t)
		Same(t, before)
	}
}

// An ADD that dies, or fails, around the new binding: its DEL, or the ADD of the next pod, binds the driver, and the
// tenant's next ADD does so once more.
func TestVFTenantKilled(t *testing.T) {
	for _, point := range []string{"before/rebind-driver", "within/rebind-driver", "after/rebind-driver"} {
		for _, end := range []string{"DEL", "next ADD", "error", "DEL without the PF"} {
			t.Run(point+" "+end, func(t *testing.T) {
				vfs := VFHost(t, 2, Fabric{})
				first := vfs[0].of(t, "team-a", 0, "")
				first.add(t)
				first.del(t)
				if end == "DEL without the PF" {
					elsewhere := NewPod(t, "elsewhere")
					shell(t, "ip link set ibpf netns "+elsewhere.Name)
				}
				before := Unchanged(t)
				a := vfs[0].of(t, "team-b", 1, "")
				fault := FaultKill
				if end == "error" {
					fault = FaultError
				}
				out := RunWithFault(t, a.call("ADD"), point, fault)
				switch end {
				case "error":
					wantError(t, out, 105, vfs[0].PCI, "another namespace", "rebindBetweenTenants")
				case "next ADD":
					a.pod.Delete(t)
					next := vfs[0].of(t, "team-a", 2, "")
					next.add(t)
					next.del(t)
				default:
					if driver := vfs[0].Driver(); (driver == "") != strings.HasPrefix(point, "within") {
						t.Errorf("driver %q", driver)
					}
				}
				a.del(t)
				Same(t, before)
				was := vfs[0].number(t)
				again := vfs[0].of(t, "team-b", 3, "")
				again.add(t)
				again.del(t)
				if vfs[0].number(t) == was {
					t.Error("the next ADD has not bound the driver anew")
				}
				Same(t, before)
			})
		}
	}
}

// flrs runs do, and returns how often the kernel has reset a function meanwhile.
func flrs(t *testing.T, do func()) int {
	t.Helper()
	const dir = "/sys/kernel/tracing"
	shell(t, "mountpoint -q "+dir+" || mount -t tracefs tracefs "+dir)
	shell(t, "cd "+dir+" && echo pcie_flr >set_ftrace_filter && echo function >current_tracer && echo >trace")
	defer shell(t, "cd "+dir+" && echo nop >current_tracer && echo >set_ftrace_filter")
	do()
	return strings.Count(readFile(t, dir+"/trace"), ": pcie_flr <-")
}

// resetsFor wants a VF to be reset for a pod of another namespace, while no driver is bound to it, and only then; not
// if the node policy has it off, and a function that refuses to be reset is used all the same.
func (f SRIOVFunction) resetsFor(t *testing.T, pod func(namespace string, number int) *attachment) {
	t.Helper()
	before := Unchanged(t)
	methods := "/sys/bus/pci/devices/" + f.PCI + "/reset_method"
	had := strings.TrimSpace(readFile(t, methods))
	for i, c := range []struct {
		namespace, policy string
		want              int
	}{
		{namespace: "team-a", want: 0}, // its first pod
		{namespace: "team-a", want: 0},
		{namespace: "team-b", want: 1},
		{namespace: "team-a", policy: `"resetBetweenTenants": false`, want: 0},
		{namespace: "team-b", policy: `"rebindBetweenTenants": false`, want: 0},
		{namespace: "team-a", want: 1},
	} {
		policyFile(t, "{"+c.policy+"}")
		got := flrs(t, func() {
			a := pod(c.namespace, i)
			a.add(t)
			a.call("CHECK").Must(t)
			a.del(t)
		})
		if got != c.want {
			t.Errorf("%d: %+v: %d resets; it can be reset by: %s", i, c, got, had)
		}
		Same(t, before)
	}
	if err := os.WriteFile(methods, []byte("\n"), 0o644); err != nil { // none any more
		t.Fatal(err)
	}
	a := pod("team-b", 9)
	a.add(t)
	a.del(t)
	if err := os.WriteFile(methods, []byte("default"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestVFReset(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	vfs[0].resetsFor(t, func(namespace string, number int) *attachment { return vfs[0].of(t, namespace, number, "") })
}

// With GUIDs, too, which do not suffer.
func TestVFResetGUID(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	vfs[0].resetsFor(t, func(namespace string, number int) *attachment {
		return vfs[0].of(t, namespace, number, guidA)
	})
}

// A PF with as many VFs as the emulated card can have: none of the kernel's messages is too long.
func TestManyVFs(t *testing.T) {
	policyFile(t, `{"resetBetweenTenants": false}`)
	var took [2]time.Duration
	for i, n := range []int{8, 127} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			vfs := VFHost(t, n, Fabric{})
			before := Unchanged(t)
			for j, guid := range []string{"", guidA} {
				a := vfs[n-1].of(t, "team-a", j, guid)
				start := time.Now()
				a.add(t)
				a.call("CHECK").Must(t)
				a.del(t)
				took[i] += time.Since(start)
				Same(t, before)
			}
			out := exec.Command(filepath.Join(BinDir(), "fabricctl"), "discover", "-o", "json")
			b, err := out.Output()
			if have := strings.Count(string(b), `"kind": "VF"`); err != nil || have != 2*n {
				t.Errorf("discover: %v, %d RDMA devices and interfaces of VFs, want %d of each:\n%.2000s",
					err, have, n, b)
			}
		})
	}
	t.Logf("two times ADD, CHECK and DEL: %s with 127 VFs, %s with 8", took[1], took[0])
}
