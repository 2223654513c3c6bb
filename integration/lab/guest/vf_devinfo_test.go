//go:build labguest

package guest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The device information file has what the device plugin told and what we know; DEL removes it.
func TestVFDeviceInfo(t *testing.T) {
	vfs := VFHost(t, 1, Fabric{})
	Unchanged(t)
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := dir + "/rails-uid-net1.json"
	if err := os.WriteFile(
		file,
		[]byte(`{"type":"pci","version":"1.0.0","pci":{"pci-address":"`+vfs[0].PCI+`","vhost-net":"/dev/vhost-net"}}`),
		0o644,
	); err != nil {
		t.Fatal(err)
	}
	hca := vfs[0].HCA()
	a := interfaceOf(
		NewPod(t, "pod"),
		"net1",
		vfConf(vfs[0], "", config{"runtimeConfig": config{"CNIDeviceInfoFile": file}}),
	)
	a.add(t)
	want := fmt.Sprintf(
		`{"pci":{"pci-address":%q,"pf-pci-address":%q,"rdma-device":%q,"vhost-net":"/dev/vhost-net"},"type":"pci",`+
			`"version":"1.1.0","writer":"fabric %s/net1"}`,
		vfs[0].PCI,
		vfs[0].PF,
		hca,
		a.id,
	)
	if got := readFile(t, file); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a.del(t)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	// Another pod's is neither written nor removed, with an entry of the journal and without one.
	const others = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:ff:1f.7"},"writer":"fabric other/net1"}`
	if err := os.WriteFile(file, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := a.add(t); !strings.Contains(out.Stderr, file) {
		t.Errorf("stderr: %s", out.Stderr)
	}
	for range 2 {
		a.del(t)
		if got := readFile(t, file); got != others {
			t.Errorf("another pod's file is now %s", got)
		}
	}
	os.Remove(file)
	// One that is not where such files are is not written, and ADD succeeds all the same.
	a = interfaceOf(
		NewPod(t, "second"),
		"net1",
		vfConf(vfs[0], "", config{"runtimeConfig": config{"CNIDeviceInfoFile": "/etc/devinfo.json"}}),
	)
	if out := a.add(t); !strings.Contains(out.Stderr, "/etc/devinfo.json") {
		t.Errorf("stderr: %s", out.Stderr)
	}
	if _, err := os.Stat("/etc/devinfo.json"); !os.IsNotExist(err) {
		t.Errorf("written: %v", err)
	}
	a.del(t)
}
