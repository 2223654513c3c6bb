package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

// gap is what lies between two steps of the life of a pod with a claim. A cell of the matrix stops everything there,
// lets something happen to one actor, and lets everything go on.
type gap struct {
	after, before string
	ending        bool   // it is on the way out
	point         string // the failpoint at which a process is held
	// stopped is a component that is stopped before the pod is made, where no process of ours is on the way; reached
	// says that the pod has come to it.
	stopped func() *process
	reached func(*matrix) error
}

var gaps = []gap{
	{
		after: "slice published", before: "claim allocated",
		stopped: func() *process { return current.scheduler }, reached: (*matrix).claimMade,
	},
	{
		after: "claim allocated", before: "NodePrepare begun",
		stopped: func() *process { return current.kubelet }, reached: (*matrix).bound,
	},
	{after: "NodePrepare begun", before: "CDI written", point: "dra/prepare"},
	{after: "CDI written", before: "file written", point: "dra/cdi"},
	{after: "file written", before: "ADD begun", point: "dra/prepared"},
	{after: "ADD begun", before: "ADD done", point: "after/move-netdev"},
	{after: "ADD done", before: "networkData written", point: "dra/network-data"},
	{after: "networkData written", before: "DEL begun", ending: true},
	{after: "DEL begun", before: "DEL done", ending: true, point: "before/move-netdev"},
	{after: "DEL done", before: "NodeUnprepare begun", ending: true, point: "dra/unprepare"},
	{after: "NodeUnprepare begun", before: "NodeUnprepare done", ending: true, point: "dra/forgotten"},
}

// aloneGaps are those of a pod of a claim alone: the hook of its container does ADD, and NodeUnprepare DEL.
var aloneGaps = slices.Concat(gaps[:7], []gap{
	{after: "networkData written", before: "NodeUnprepare begun", ending: true},
	{after: "NodeUnprepare begun", before: "DEL begun", ending: true, point: "dra/unprepare"},
	{after: "DEL begun", before: "DEL done", ending: true, point: "before/move-netdev"},
	{after: "DEL done", before: "claim forgotten", ending: true, point: "dra/detached"},
	{after: "claim forgotten", before: "NodeUnprepare done", ending: true, point: "dra/forgotten"},
})

func (g *gap) String() string { return g.after + " - " + g.before }

// matrixCell is one entry of the matrix.
type matrixCell struct {
	gap   *gap
	actor string
	pause bool // else it is killed
}

func (c *matrixCell) String() string {
	how := "killed"
	if c.pause {
		how = "paused"
	}
	return fmt.Sprintf("%s/%s %s", c.gap, c.actor, how)
}

// matrixCells are all of them, or, where a landing has its share, one for each gap; FABRIC_MATRIX names a part of all.
func matrixCells(gaps []gap, actors []string) (starting, ending []matrixCell) {
	part, asked := os.LookupEnv("FABRIC_MATRIX")
	for i := range gaps {
		list := &starting
		if gaps[i].ending {
			list = &ending
		}
		var cells []matrixCell
		var names []string
		for _, a := range actors {
			for _, pause := range []bool{false, true} {
				c := matrixCell{&gaps[i], a, pause}
				cells, names = append(cells, c), append(names, c.String())
			}
		}
		if !asked {
			names = share.Pick(1, names...)
		}
		for k := range cells {
			if name := cells[k].String(); slices.Contains(names, name) && strings.Contains(name, part) {
				*list = append(*list, cells[k])
			}
		}
	}
	return starting, ending
}

// Whatever dies at whatever moment of a pod's start and end: the pod has exactly its devices, or does not run; no
// device is lost; and the next pod gets them. Each pod is made in one cell of the matrix and goes in another, and the
// next one is the next cell's.
func TestFaultMatrix(t *testing.T) {
	faultMatrix(newMatrix(t, false), gaps, actorNames)
}

// The same with nothing in the place of Multus, and with no annotation: a claim alone is enough.
func TestFaultMatrixOfClaimsAlone(t *testing.T) {
	withoutMultus := slices.DeleteFunc(slices.Clone(actorNames), func(a string) bool { return a == "Multus" })
	faultMatrix(newMatrix(t, true), aloneGaps, withoutMultus)
}

func faultMatrix(m *matrix, gaps []gap, actors []string) {
	starting, ending := matrixCells(gaps, actors)
	for i := range max(len(starting), len(ending)) {
		if share.NoTime("cluster: the rest of "+m.t.Name(), time.Minute) {
			break
		}
		name := fmt.Sprint("pod-", i)
		made := i < len(starting)
		if made {
			made = m.run(&starting[i], func(t *testing.T) { m.start(t, name, &starting[i]) })
		}
		if !made { // what happens at the end needs a pod that runs
			m.plain(func(t *testing.T) { m.start(t, name, nil) })
		}
		if i < len(ending) {
			m.run(&ending[i], func(t *testing.T) { m.end(t, &ending[i]) })
		} else {
			m.plain(func(t *testing.T) { m.end(t, nil) })
		}
	}
	m.plain(func(t *testing.T) { // the last cell has a next pod, too
		m.start(t, "last", nil)
		m.end(t, nil)
	})
	m.report()
}

// run runs a cell. What a cell that failed has left is cleared away, so that the next ones have their say.
func (m *matrix) run(c *matrixCell, f func(*testing.T)) (ok bool) {
	began := time.Now()
	m.outcome = ""
	ok = m.t.Run(c.String(), f)
	m.results = append(m.results, result{c, ok, m.outcome, time.Since(began)})
	if !ok {
		m.clear()
	}
	return ok
}

// plain runs what is no cell.
func (m *matrix) plain(f func(*testing.T)) {
	if !m.t.Run("undisturbed", f) {
		m.clear()
	}
}

// hold makes everybody wait at a point until release.
func (m *matrix) hold(t *testing.T, g *gap) {
	t.Helper()
	switch {
	case g.stopped != nil:
		until(t, "the node is Ready", nodeReady) // or without kubelet it would stay as it is, and get no pod
		m.halted = g.stopped()
		if err := m.halted.stop(); err != nil {
			t.Fatal(err)
		}
	case g.point != "":
		m.held = filepath.Join(m.holds, strings.ReplaceAll(g.point, "/", "-"))
		if err := os.WriteFile(m.held, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// nodeReady asserts that the scheduler may use the node rig.
func nodeReady() error {
	return prints("True ", "get", "node", "rig", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}`)()
}

// await waits until the gap is reached.
func (m *matrix) await(t *testing.T, g *gap) {
	t.Helper()
	err := poll("it comes to "+g.after, time.Minute, shortly, func() error {
		if g.reached != nil {
			return g.reached(m)
		}
		if g.point == "" {
			return nil
		}
		_, err := os.Stat(m.held + ".pid")
		return err
	})
	if err != nil {
		m.release()
		t.Fatal(err)
	}
}

// release lets all go on.
func (m *matrix) release() {
	if m.halted != nil {
		_ = m.halted.cmd.Process.Signal(unix.SIGCONT)
		m.halted = nil
	}
	if m.held != "" {
		_ = os.Remove(m.held)
		_ = os.Remove(m.held + ".pid")
		m.held = ""
	}
}

// strike lets happen what the cell is about.
func (m *matrix) strike(t *testing.T, c *matrixCell) {
	t.Helper()
	a := m.actors[c.actor]
	if c.pause {
		a.pause(t, c.gap)
		if m.halted != nil && (c.actor == "kubelet" && m.halted == current.kubelet || c.actor == "node") {
			time.Sleep(paused) // it is what everything waits for
			a.resume(t)
			m.release()
			return
		}
		m.release()
		time.Sleep(paused)
		a.resume(t)
		return
	}
	a.kill(t, c.gap)
	m.release()
	a.restart(t)
}
