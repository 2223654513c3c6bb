//go:build labguest

package guest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

const parallelRails = 8

// rounds returns the rounds that this process runs of the parallel test: from first to before end. In full these are
// 200 rounds on one kernel, and fewer on the others because the machine is emulated.
func rounds(t *testing.T) (first, end int) { return roundsOr(t, 200, 30, 25) }

// vfRounds is rounds for VFs, whose drivers are rebound one after the other.
func vfRounds(t *testing.T) (first, end int) { return roundsOr(t, 25, 12, 12) }

func roundsOr(t *testing.T, fully, on612, elsewhere int) (first, end int) {
	t.Helper()
	n := elsewhere
	if os.Getenv("FABRIC_LAB_SERIES") == "6.12" {
		if n = on612; full() {
			n = fully
		}
	}
	if text := os.Getenv("FABRIC_LAB_ROUNDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	part, err := thisPiece()
	if err != nil {
		t.Fatal(err)
	}
	return part.rounds(n)
}

// Eight rails added and returned in parallel, in random order: no failure, no swapped name. ib-sriov-cni failed in 20
// of 80 parallel DELs; a lookup of an RDMA device by dump fails in 6 of 80 (kernel fact 7 in docs/kernel.md).
func TestParallelRails(t *testing.T) {
	Fabric{Num: parallelRails}.Load(t)
	// Names that are not in the order of the bus, so that the kernel's lowest free name is mostly another device's.
	shell(
		t,
		"for i in 0 1 2 3 4 5 6 7; do ip link set ib$i name x$i; done; for i in 0 1 2 3 4 5 6 7; do ip link set x$i "+
			"name ib$(((i*3+2)%8)); done",
	)
	// The driver lets go of the kernel's network lock while it switches the mode.
	shell(t, "for i in 3 6; do echo connected >/sys/class/net/ib$i/mode; done")
	before := Snapshot(t)
	pods := make([]*Pod, parallelRails)
	for i := range pods {
		pods[i] = NewPod(t, fmt.Sprintf("pod%d", i))
	}
	begin := time.Now()
	first, end := rounds(t)
	for round := first; round < end; round++ {
		list := make([]*attachment, parallelRails)
		for i := range list {
			pod, ifname := pods[i], "net1"
			if round%4 == 3 { // all rails of one pod
				pod, ifname = pods[0], fmt.Sprintf("net%d", i+1)
			}
			list[i] = interfaceOf(pod, ifname, network(config{"deviceID": fmt.Sprintf("platform/fakeib.%d", i)}))
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if round%2 == 0 { // ADDs of some meet DELs of others
			backAndForth(t, list)
		} else {
			together(t, list, "ADD")
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			together(t, list, "DEL")
		}
		// The full comparison waits for carriers; the names are what can be swapped.
		if err := namesAre(before); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds in %s", end-first, time.Since(begin).Round(time.Second))
	Same(t, before)
}

// backAndForth adds and returns every attachment, each in its own time.
func backAndForth(t *testing.T, list []*attachment) {
	t.Helper()
	var wait sync.WaitGroup
	for _, a := range list {
		wait.Go(func() {
			for _, command := range []string{"ADD", "DEL"} {
				out := a.call(command).Exec(t)
				for try := 0; try < 3 && strings.Contains(out.String(), journal.ErrBusy.Error()); try++ {
					out = a.call(command).Exec(t) // as a runtime does
				}
				if out.Failed() {
					t.Errorf("%s of %s %s: %s", command, a.id, a.ifname, out)
				}
			}
		})
	}
	wait.Wait()
}

// namesAre compares the names of all netdevs and RDMA devices with their places.
func namesAre(want State) error {
	now, err := Take()
	if err != nil {
		return err
	}
	for name, l := range want.Links {
		if now.Links[name].Device != l.Device {
			return fmt.Errorf("%s is on %q, was on %q", name, now.Links[name].Device, l.Device)
		}
	}
	for name, d := range want.RDMA {
		if now.RDMA[name].Device != d.Device {
			return fmt.Errorf("%s is on %q, was on %q", name, now.RDMA[name].Device, d.Device)
		}
		if !slices.Equal(now.RDMA[name].Chars, d.Chars) {
			return fmt.Errorf("%s has %v, had %v", name, now.RDMA[name].Chars, d.Chars)
		}
	}
	if len(now.Links) != len(want.Links) || len(now.Files) != len(want.Files) {
		return fmt.Errorf(
			"%d links and %d files, there were %d and %d",
			len(now.Links),
			len(now.Files),
			len(want.Links),
			len(want.Files),
		)
	}
	return nil
}
