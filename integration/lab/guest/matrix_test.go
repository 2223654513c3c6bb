//go:build labguest

package guest

import (
	"fmt"
	"os"
	"testing"
)

// mode is a row of the fault matrix: a host with a device, and what the runtime asks for.
type mode struct {
	name string
	host func(t testing.TB) // makes the host; called again after a cell that spoiled it
	conf map[string]any
	// earlier is the plugin before ours in a chain, nil without one.
	earlier *mover
}

// full reports whether every cell of the matrix is wanted: FABRIC_LAB_FULL=1.
func full() bool { return os.Getenv("FABRIC_LAB_FULL") != "" }

// rig runs the cells of one mode on one host.
type rig struct {
	mode  mode
	start State // of the host
	pods  int
}

func newRig(t testing.TB, m mode) *rig {
	t.Helper()
	r := &rig{mode: m}
	r.set(t)
	return r
}

func (r *rig) set(t testing.TB) {
	t.Helper()
	r.mode.host(t)
	r.start = Snapshot(t)
}

// sandbox is a pod as the earlier plugins have left it.
type sandbox struct {
	*Pod
	id     string // of the container
	before podState
	conf   map[string]any
}

func (r *rig) sandbox(t testing.TB) *sandbox {
	t.Helper()
	r.pods++
	id := fmt.Sprintf("cell%d", r.pods)
	s := &sandbox{Pod: NewPod(t, id), id: id, conf: r.mode.conf}
	if r.mode.earlier != nil {
		s.conf = map[string]any{"prevResult": r.mode.earlier.give(t, s.Pod)}
		for k, v := range r.mode.conf {
			s.conf[k] = v
		}
	}
	s.before = s.state(t)
	return s
}

func (s *sandbox) call(command string) Call {
	return Call{Command: command, ContainerID: s.id, Netns: s.Path, IfName: "net1", Config: s.conf}
}

// runMatrix stops the plugin at every point of an operation, in every way, and wants everything back after one DEL.
func runMatrix(t *testing.T, m mode, op string) {
	r := newRig(t, m)
	points := r.points(t, op)
	if len(points) == 0 {
		t.Fatal("the plugin passed no failpoint: is it built with the tag failpoint?")
	}
	part, err := thisPiece()
	if err != nil {
		t.Fatal(err)
	}
	all := cellsOf(points, op, faultsOf(op, os.Getenv("FABRIC_LAB_SERIES"), full()), full())
	mine := part.cells(all)
	table := newRows(m.name, op, all)
	for _, c := range mine {
		row := table.begin(c.fault.name)
		ok := t.Run(c.name(), func(t *testing.T) {
			if op == opAdd {
				r.faultedAdd(t, c.point, c.fault)
			} else {
				r.faultedDel(t, c.point, c.fault, op == opGone)
			}
		})
		row.count(ok)
		if !ok {
			r.set(t) // the next cell starts from a host that is right
		}
	}
	table.report(t)
}

// points returns the failpoints of an operation without a fault.
func (r *rig) points(t testing.TB, op string) []string {
	t.Helper()
	s := r.sandbox(t)
	add, out := Points(t, s.call("ADD"))
	if out.Failed() {
		t.Fatalf("ADD: %s\n%s", out, out.Stderr)
	}
	if op == opGone {
		s.Delete(t)
	}
	del, out := Points(t, s.call("DEL"))
	if out.Failed() {
		t.Fatalf("DEL: %s\n%s", out, out.Stderr)
	}
	r.back(t, s, op == opGone)
	s.call("DEL").Must(t) // a second one changes nothing
	Same(t, r.start)
	if op == opAdd {
		return add
	}
	return del
}

// faultedAdd is a cell of ADD.
func (r *rig) faultedAdd(t *testing.T, point string, f fault) {
	s := r.sandbox(t)
	out := RunWithFault(t, s.call("ADD"), point, f.what)
	if f.what == FaultError {
		switch announcing := ofAnnounce(point); {
		case out.Failed() && announcing:
			t.Errorf("an announcement that failed has failed the ADD: %s", out)
		case !out.Failed() && !announcing:
			t.Errorf("ADD succeeded in spite of the error: %s", out)
		case out.Failed():
			r.same(t, s, "the failed ADD")
		}
	}
	r.finish(t, s, f.gone)
}

// faultedDel is a cell of DEL.
func (r *rig) faultedDel(t *testing.T, point string, f fault, gone bool) {
	s := r.sandbox(t)
	s.call("ADD").Must(t)
	if gone {
		s.Delete(t)
	}
	out := RunWithFault(t, s.call("DEL"), point, f.what)
	if !out.Failed() { // after success nothing is left to do
		r.back(t, s, gone)
		return
	}
	if f.gone {
		s.Delete(t)
	}
	r.delete(t, s, gone || f.gone)
}

// finish deletes the pod's namespace if so, and calls DEL.
func (r *rig) finish(t *testing.T, s *sandbox, gone bool) {
	t.Helper()
	if gone {
		s.Delete(t)
	}
	r.delete(t, s, gone)
}

// delete wants one DEL to be enough.
func (r *rig) delete(t *testing.T, s *sandbox, gone bool) {
	t.Helper()
	if out := s.call("DEL").Finish(t); out.Failed() {
		t.Errorf("DEL after the fault: %s\n%s", out, out.Stderr)
	}
	r.back(t, s, gone)
}

// same wants pod and host as they were when ADD was called.
func (r *rig) same(t *testing.T, s *sandbox, after string) {
	t.Helper()
	if diff := s.difference(s.before); diff != "" {
		t.Errorf("after %s the pod is not what it was (-before +after):\n%s", after, diff)
	}
	if r.mode.earlier == nil {
		Same(t, r.start)
	}
}

// back wants the pod, unless it is gone, as it was, and the host as it was before the pod.
func (r *rig) back(t testing.TB, s *sandbox, gone bool) {
	t.Helper()
	if !gone {
		if diff := s.difference(s.before); diff != "" {
			t.Errorf("after DEL the pod is not what it was (-before +after):\n%s", diff)
		}
	}
	if r.mode.earlier != nil {
		r.mode.earlier.takeBack(t, s.Pod, gone)
	}
	Same(t, r.start)
}
