//go:build labguest

package guest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// vfPCI is the first VF of QEMU's root port: one bus, the PF at function 0.
const vfPCI = "0000:01:00.1"

func vfHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	if vfs := VFHost(t, 2, Fabric{}); vfs[0].PCI != vfPCI {
		t.Fatalf("the first VF is %s", vfs[0].PCI)
	}
}

var vfGUID = mode{name: "device-vf-guid", host: vfHost, conf: conf(map[string]any{
	"deviceID": vfPCI, "guid": guidA, "linkState": "enable", "rdmaName": "rail", "ipam": ipv4})}

func TestMatrixVFGUIDAdd(t *testing.T)  { runMatrix(t, vfGUID, opAdd) }
func TestMatrixVFGUIDDel(t *testing.T)  { runMatrix(t, vfGUID, opDel) }
func TestMatrixVFGUIDGone(t *testing.T) { runMatrix(t, vfGUID, opGone) }

// Eight VFs, each with a GUID of its pod: every round rebinds every driver twice, and nothing drifts.
func TestVFParallel(t *testing.T) {
	const n = 8
	vfs := VFHost(t, n, Fabric{})
	before := Snapshot(t)
	pods := make([]*Pod, n)
	for i := range pods {
		pods[i] = NewPod(t, fmt.Sprintf("pod%d", i))
	}
	begin := time.Now()
	first, end := vfRounds(t)
	for round := first; round < end; round++ {
		list := make([]*attachment, n)
		for i := range list {
			guid := fmt.Sprintf("00:11:22:33:44:55:%02x:%02x", round%200, i+1)
			if i%4 == 3 {
				guid = ""
			}
			list[i] = interfaceOf(pods[i], "net1", vfConf(vfs[i], guid, config{"linkState": "enable"}))
		}
		rand.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		backAndForth(t, list)
		if err := namesAre(before); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds of %d VFs in %s", end-first, n, time.Since(begin).Round(time.Second))
	Same(t, before)
}
