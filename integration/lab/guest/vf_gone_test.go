//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Hardware that has left while a pod had it is nothing to wait for: DEL succeeds at once and nothing is left on file.
func TestVFGone(t *testing.T) {
	for name, do := range map[string]string{
		"no VFs any more":   "echo 0 >$PF/sriov_numvfs",
		"fewer VFs":         "echo 0 >$PF/sriov_numvfs; echo 1 >$PF/sriov_numvfs",
		"PF without driver": "echo $NAME >/sys/bus/pci/drivers/fakeib/unbind",
		"VF without driver": "echo $(basename $VF) >$VF/driver/unbind",
		"PF unplugged":      "echo 1 >$PF/remove",
	} {
		for _, guid := range []string{"", guidA} {
			t.Run(fmt.Sprintf("%s %t", name, guid != ""), func(t *testing.T) {
				vfs := VFHost(t, 2, Fabric{})
				pod := NewPod(t, "pod")
				a := interfaceOf(pod, "net1", vfConf(vfs[1], guid, config{"link_state": "enable"}))
				a.add(t)
				pf := "/sys/bus/pci/devices/" + vfs[1].PF
				shell(t, "PF="+pf+" NAME="+vfs[1].PF+" VF=/sys/bus/pci/devices/"+vfs[1].PCI+"; "+do)
				defer shell(t, "echo 1 >/sys/bus/pci/rescan; echo "+vfs[1].PF+
					" >/sys/bus/pci/drivers/fakeib/bind 2>/dev/null || true; echo 0 >"+pf+"/sriov_numvfs")
				a.del(t)
				a.del(t)
				if out := onFile(t); out != "" {
					t.Errorf("on file: %s", out)
				}
				s, err := Take()
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range s.VFs["ibpf"] { // what the PF has set is its administrator's again
					if strings.Contains(line, guidA) || strings.Contains(line, "link-state enable") {
						t.Errorf("the PF has %s", line)
					}
				}
			})
		}
	}
}

// Hardware that is back by then is restored: it is another device with the same address.
func TestVFBack(t *testing.T) {
	for _, guid := range []string{"", guidA} {
		t.Run(fmt.Sprint(guid != ""), func(t *testing.T) {
			vfs := VFHost(t, 1, Fabric{})
			before := Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", vfConf(vfs[0], guid, nil))
			a.add(t)
			pf := "/sys/bus/pci/devices/" + vfs[0].PF
			shell(t, "echo 0 >"+pf+"/sriov_numvfs; echo 1 >"+pf+"/sriov_numvfs")
			Until(t, "the VF is back", func() error {
				if vfs[0].HCA() == "" || vfs[0].Netdev() == "" {
					return errors.New("not yet")
				}
				return nil
			})
			a.del(t)
			Same(t, before)
		})
	}
}

// onFile lists what the journal has beside locks.
func onFile(t *testing.T) string {
	t.Helper()
	var out []string
	for _, dir := range []string{"attachments", "claims"} {
		entries, err := os.ReadDir("/run/fabric-cni/" + dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
	}
	return strings.Join(out, " ")
}
