//go:build labguest

package guest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// A random walk over four rails of the node S1: see docs/testing.md.
func TestWalkRails(t *testing.T) {
	node := S1(t)
	var devices []walkDevice
	for i, r := range node.Rails[:4] {
		conf := config{"deviceID": "platform/" + r.Bus, "ipam": static(fmt.Sprintf("10.20.%d.1/24", i))}
		if i == 1 {
			conf["ipam"] = hostLocal("10.21.0.0/24")
		}
		devices = append(devices, walkDevice{
			sysfs: "/sys/bus/platform/devices/" + r.Bus, netdev: r.Netdev, hca: r.HCA, conf: network(conf),
		})
	}
	w := walk.Walk{Ops: walkOps(200, 60), Fixed: true, Mischief: walk.Tricks([]string{"ib", "rdma"})}
	stroll(t, w, devices, func() State { return S1(t).Pristine })
}

// The same over four VFs: their driver is unbound and bound again, and each pod has GUIDs of its own.
func TestWalkVF(t *testing.T) {
	var devices []walkDevice
	setUp := func() State {
		devices = nil
		for i, vf := range VFHost(t, 4, Fabric{}) {
			guid := ""
			if i%2 == 0 {
				guid = fmt.Sprintf("00:11:22:33:44:55:66:0%d", i)
			}
			devices = append(devices, walkDevice{
				sysfs: "/sys/bus/pci/devices/" + vf.PCI, netdev: vf.Netdev(), hca: vf.HCA(),
				conf: vfConf(vf, guid, config{"ipam": static(fmt.Sprintf("10.20.%d.1/24", i))}),
			})
		}
		return Snapshot(t)
	}
	setUp()
	w := walk.Walk{Ops: walkOps(120, 60), Mischief: walk.Tricks([]string{"ib", "rdma"})}
	stroll(t, w, devices, setUp)
}

// walkOps is how many operations a walk has where the environment does not say it.
func walkOps(on612, elsewhere int) int {
	n := elsewhere
	if os.Getenv("FABRIC_LAB_SERIES") == "6.12" {
		n = on612
	}
	if full() {
		n *= 5
	}
	return n
}

func stroll(t *testing.T, w walk.Walk, devices []walkDevice, setUp func() State) {
	t.Helper()
	w.Pods, w.Devices = 2, len(devices)
	w.Seed = walkNumber(t, "FABRIC_WALK_SEED", 1)
	w.Ops = int(walkNumber(t, "FABRIC_WALK_OPS", uint64(w.Ops)))
	if s := os.Getenv("FABRIC_WALK_TRICKS"); s != "" {
		w.Mischief = strings.Split(s, ",")
	}
	world := newWalkWorld(t, devices, setUp)
	var stats walk.Stats
	var err error
	if file := os.Getenv("FABRIC_WALK_SCRIPT"); file != "" {
		ops, perr := walk.Parse(readFile(t, file))
		if perr != nil {
			t.Fatal(perr)
		}
		stats, err = w.Replay(world, ops)
	} else {
		stats, err = w.Run(world)
	}
	t.Logf("seed %d: %s", w.Seed, stats)
	if err != nil {
		t.Error(err)
		if !errors.As(err, new(*walk.RoundError)) {
			t.Error("the walk itself went wrong")
		}
	}
}

func walkNumber(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), fmt.Sprint(otherwise)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
