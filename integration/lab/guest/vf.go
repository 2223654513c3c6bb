package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// takeVFs returns what ip shows of the virtual functions of each PF that has any: iproute2 reads the kernel's messages
// by itself.
func takeVFs() (map[string][]string, error) {
	files, err := filepath.Glob("/sys/class/net/*/device/sriov_numvfs")
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string)
	for _, f := range files {
		name := strings.Split(f, "/")[4]
		if b, err := os.ReadFile(f); err != nil || strings.TrimSpace(string(b)) == "0" {
			continue // a VF, or renamed since
		}
		shown, err := exec.Command("ip", "-d", "link", "show", "dev", name).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("ip link show dev %s: %w: %s", name, err, shown)
		}
		for line := range strings.Lines(string(shown)) {
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[0] != "vf" {
				continue
			}
			if fields[2] == "link/infiniband" { // an address that no driver sets: what the kernel's stack held
				fields = append(fields[:2], fields[5:]...)
			}
			out[name] = append(out[name], strings.Join(fields, " "))
		}
	}
	return out, nil
}

// SRIOVFunction is a virtual function of the guest's PF.
type SRIOVFunction struct {
	PCI, PF string // PCI addresses
	Index   int
}

// HCA returns the name of its RDMA device, "" if the host has none.
func (f SRIOVFunction) HCA() string { return f.face("infiniband") }

// Netdev returns the name of its netdev, "" if the host has none.
func (f SRIOVFunction) Netdev() string { return f.face("net") }

func (f SRIOVFunction) face(class string) string {
	entries, err := os.ReadDir("/sys/bus/pci/devices/" + f.PCI + "/" + class)
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Name()
}

// Driver returns the driver it is bound to, "" for none.
func (f SRIOVFunction) Driver() string {
	target, err := os.Readlink("/sys/bus/pci/devices/" + f.PCI + "/driver")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// VFs makes n virtual functions on the PF that fakeib drives, and waits until each has both its faces.
func VFs(t testing.TB, n int) []SRIOVFunction {
	t.Helper()
	pfs, err := filepath.Glob("/sys/bus/pci/drivers/fakeib/*/sriov_totalvfs")
	if err != nil || len(pfs) != 1 {
		t.Fatalf("PFs of fakeib: %v, %v; see Suite.Devices", pfs, err)
	}
	dir := filepath.Dir(pfs[0])
	if err := os.WriteFile(dir+"/sriov_numvfs", []byte(strconv.Itoa(n)), 0o200); err != nil {
		t.Fatal(err)
	}
	out := make([]SRIOVFunction, n)
	for i := range out {
		target, err := os.Readlink(fmt.Sprintf("%s/virtfn%d", dir, i))
		if err != nil {
			t.Fatal(err)
		}
		out[i] = SRIOVFunction{PCI: filepath.Base(target), PF: filepath.Base(dir), Index: i}
		Until(t, "VF "+out[i].PCI+" has its faces", func() error {
			if out[i].HCA() == "" || out[i].Netdev() == "" {
				return errors.New("not yet")
			}
			return nil
		})
	}
	return out
}

// forgetTenants has the plugin take VFs for ones that no pod has had.
func forgetTenants(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll("/run/fabric-cni/tenants"); err != nil {
		t.Fatal(err)
	}
}

// VFHost is a host with a PF, ibpf, and n VFs, ibv0 and on, of which the first has something to lose.
func VFHost(t testing.TB, n int, f Fabric) []SRIOVFunction {
	t.Helper()
	forgetS1()
	forgetTenants(t)
	f.SRIOV = true
	f.Load(t)
	pf, err := filepath.Glob("/sys/bus/pci/drivers/fakeib/*/net/*")
	if err != nil || len(pf) != 1 {
		t.Fatalf("netdevs of fakeib: %v, %v", pf, err)
	}
	list := [][]string{{"ip", "link", "set", filepath.Base(pf[0]), "name", "ibpf"}, {"ip", "link", "set", "ibpf", "up"}}
	vfs := VFs(t, n)
	for i, vf := range vfs {
		list = append(list, []string{"ip", "link", "set", vf.Netdev(), "name", fmt.Sprintf("ibv%d", i)})
	}
	list = append(list, [][]string{
		{"ip", "link", "set", "ibv0", "alias", "virtual rail", "mtu", "2000"},
		{"ip", "link", "property", "add", "dev", "ibv0", "altname", "ibp1s0v0"},
		{"sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/ibv0/accept_dad"},
		{"ip", "link", "set", "ibv0", "up"},
		{"ip", "address", "add", "10.9.0.1/24", "dev", "ibv0"},
		{"ip", "address", "add", "fd00:9::1/64", "dev", "ibv0", "nodad"},
		{"ip", "route", "add", "10.99.0.0/16", "via", "10.9.0.254", "dev", "ibv0", "metric", "7"},
	}...)
	commands(t, list)
	return vfs
}
