package fabric_test

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

// A random walk: whatever runtimes, pods, kills and hardware do, in whatever order, the host is what it was after the
// last DEL, and nothing stays on file. docs/testing.md says how to repeat a walk that failed.
func TestWalk(t *testing.T) {
	w := walk.Walk{
		Seed: 1, Ops: 150, Pods: 2, Devices: len(walkDevices), Dies: true,
		Mischief: walk.Tricks([]string{"ether"}),
	}
	if tags == "failpoint" { // a kill after a while hits fewer places than one at a point
		w.Ops = 300
	}
	if os.Getenv("FABRIC_LAB_FULL") != "" {
		w.Ops = 10000
	}
	w.Seed = number(t, "FABRIC_WALK_SEED", w.Seed)
	w.Ops = int(number(t, "FABRIC_WALK_OPS", uint64(w.Ops)))
	if s := os.Getenv("FABRIC_WALK_TRICKS"); s != "" {
		w.Mischief = strings.Split(s, ",")
	}
	var stats walk.Stats
	var err error
	if file := os.Getenv("FABRIC_WALK_SCRIPT"); file != "" {
		stats, err = w.Replay(newWalkWorld(t), script(t, file))
	} else {
		t.Logf("seed %d", w.Seed)
		stats, err = w.Run(newWalkWorld(t))
	}
	t.Log(stats)
	var f *walk.RoundError
	if !errors.As(err, &f) {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Error(f)
	if os.Getenv("FABRIC_WALK_SHRINK") != "" {
		ops := w.Shrink(f, func() walk.World { return newWalkWorld(t) })
		t.Logf("the same with fewer operations:\n%s", walk.Script(ops))
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), fmt.Sprint(otherwise)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func script(t *testing.T, file string) []walk.Op {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := walk.Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return ops
}
