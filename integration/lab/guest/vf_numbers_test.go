//go:build labguest

package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// allocate is what the agent answers kubelet's Allocate.
func allocate(t testing.TB, vf SRIOVFunction) []string {
	t.Helper()
	files, err := allocateNow(vf)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func allocateNow(vf SRIOVFunction) ([]string, error) {
	n := survey.Node{Sys: os.DirFS("/sys"), Store: journal.Store{Dir: "/run/fabric-cni"}}
	three := []string{"uverbs", "umad", "issm"}
	return n.FilesNow(context.Background(), device.Address{Bus: "pci", Name: vf.PCI}, true, three)
}

// belongs checks that the device files are those of the VF: sysfs says which RDMA device each of them is for.
func (f SRIOVFunction) belongs(t testing.TB, files []string) {
	t.Helper()
	kinds := 0
	for _, file := range files {
		name := filepath.Base(file)
		if name == "rdma_cm" {
			continue
		}
		kinds++
		class := "infiniband_mad"
		if strings.HasPrefix(name, "uverbs") {
			class = "infiniband_verbs"
		}
		got := strings.TrimSpace(readFile(t, "/sys/class/"+class+"/"+name+"/ibdev"))
		at, err := os.Readlink("/sys/class/" + class + "/" + name + "/device")
		if err != nil || filepath.Base(at) != f.PCI {
			t.Errorf("%s is of %s (%s), not of %s: %v", file, at, got, f.PCI, err)
		}
	}
	if kinds != 3 {
		t.Errorf("%s has %v", f.PCI, files)
	}
}

// Eight pods die at once, and the kernel brings their VFs home in any order: the numbers of their character devices are
// others then. What Allocate hands out belongs to the device all the same, and the next ADD keeps it.
func TestVFNumbersAfterDeaths(t *testing.T) {
	vfs := VFHost(t, 8, Fabric{})
	before := Snapshot(t).numberless()
	swapped := 0
	for round := range 4 {
		var list []*attachment
		var had [][]string
		for i, vf := range vfs {
			guid := ""
			if i%2 == 0 { // its driver is bound again, on both ways
				guid = fmt.Sprintf("00:11:22:33:44:55:66:%02x", i)
			}
			files := allocate(t, vf)
			a := interfaceOf(NewPod(t, fmt.Sprintf("pod%d-%d", round, i)), "net1", vfConf(vf, guid, nil))
			a.add(t)
			vf.belongs(t, files)
			list, had = append(list, a), append(had, files)
		}
		for _, a := range list {
			a.pod.Delete(t)
		}
		if round%2 == 1 { // a new pod asks before the old ones are returned: it waits, and gets nothing old
			type answer struct {
				files []string
				err   error
			}
			early := make(chan answer, 1)
			go func() {
				files, err := allocateNow(vfs[7])
				early <- answer{files, err}
			}()
			for _, a := range list {
				a.del(t)
			}
			got := <-early
			switch {
			case got.err == nil:
				vfs[7].belongs(t, got.files)
			case !strings.Contains(got.err.Error(), "has not given it back"): // in time, on a machine that is busy
				t.Error(got.err)
			}
		} else {
			for _, a := range list {
				a.del(t)
			}
		}
		for i, vf := range vfs {
			now := allocate(t, vf)
			vf.belongs(t, now)
			if !slices.Equal(now, had[i]) {
				swapped++
			}
		}
		if diff := Diff(before, Snapshot(t).numberless()); diff != "" {
			t.Errorf("the host is not what it was (-before +after):\n%s", diff)
		}
	}
	t.Logf("%d of %d devices came home with other numbers", swapped, 4*len(vfs))
}

// A device that does not return to the host has no numbers to hand out, whatever its files were.
func TestVFNumbersOfAPod(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", vfConf(vfs[0], "", nil))
	a.add(t)
	if files, err := allocateNow(vfs[0]); err == nil {
		t.Errorf("a device in a pod has its files handed out: %v", files)
	}
	vfs[1].belongs(t, allocate(t, vfs[1]))
	a.del(t)
	vfs[0].belongs(t, allocate(t, vfs[0]))
}

// Two VFs whose drivers are bound again on both ways, in a pod that swaps their RDMA names.
func TestVFNamesSwapped(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			vfs := VFHost(t, 3, Fabric{})
			before := Snapshot(t).numberless() // the kernel may swap those
			pod := NewPod(t, "pod")
			var list []*attachment
			for i, guid := range []string{guidA, guidB} {
				a := interfaceOf(pod, fmt.Sprintf("net%d", i), vfConf(vfs[i], guid, nil))
				a.add(t)
				list = append(list, a)
			}
			index := map[string]uint32{}
			for i, name := range RDMANames(t, pod.Handle(t)) {
				index[name] = i
			}
			pod.rename(t, index["mlx5_1"], "away")
			pod.rename(t, index["mlx5_2"], "mlx5_1")
			pod.rename(t, index["mlx5_1"], "mlx5_2")
			if namesPerNetns(t) { // the name of a VF that is on the host
				pod.rename(t, index["mlx5_1"], "mlx5_3")
			}
			if failed := end(t, list, [2]int{0, 1}, dead); failed > 0 {
				t.Errorf("%d DELs failed", failed)
			}
			if diff := Diff(before, Snapshot(t).numberless()); diff != "" {
				t.Errorf("the host is not what it was (-before +after):\n%s", diff)
			}
		})
	}
}
