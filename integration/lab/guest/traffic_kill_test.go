//go:build labguest

package guest

import (
	"strings"
	"syscall"
	"testing"
)

// hostObjects returns the verbs objects while no process has any.
func hostObjects(t *testing.T) map[string]int {
	t.Helper()
	objects := verbsObjects(t, InHost())
	for what, n := range objects {
		if strings.HasSuffix(what, " ctx") && n != 0 {
			t.Fatalf("%s: %d before the test", what, n)
		}
	}
	return objects
}

// DEL ends the traffic of a pod and takes its queue pairs, also from a process that is stopped. The next pod has the
// HCA while such processes of the last one still live, and they can do nothing to it.
func TestTrafficEndsAtDel(t *testing.T) {
	RequireMode(t, "exclusive")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	idle := hostObjects(t)
	pods, attachments := podsWithHCAs(t, "old", "peer")
	old, peer := pods[0], pods[1]
	stopped, running := openVerbs(t, old, "mlx5_0"), openVerbs(t, old, "mlx5_0")
	other := openVerbs(t, peer, "mlx5_1")
	greeting := other.memory(0, "rw", "greeting")
	stoppedText, runningText := stopped.memory(0, "rw", "stopped"), running.memory(0, "rw", "running")
	fromStopped, toStopped := connected(stopped, other)
	fromRunning, toRunning := connected(running, other)
	wantStatus(t, "a write before DEL", toStopped.write(greeting, stoppedText), wcSuccess)
	wantStatus(t, "a write before DEL", toRunning.write(greeting, runningText), wcSuccess)
	l := endless(t, old, peer, "mlx5_0", "mlx5_1", "10.1.0.1", 18515)
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	signal(t, l.Server, syscall.SIGSTOP)

	attachments[0].del(t)
	for what, n := range verbsObjects(t, InHost()) {
		if strings.HasSuffix(what, " ctx") && n != 0 || strings.HasSuffix(what, " mr") && n != 0 {
			t.Errorf("after DEL %s: %d", what, n)
		}
	}
	if got := verbsObjects(t, old); len(got) != 0 {
		t.Errorf("after DEL the pod has %v", got)
	}
	fails(t, l.Client)
	wantStatus(t, "a write to the old pod after DEL", toRunning.write(greeting, runningText), wcNobody)
	wantCut(t, running, fromRunning, runningText, greeting)

	next := interfaceOf(NewPod(t, "next"), "net1", network(config{"device": "ib0", "ipam": static("10.1.0.1/24")}))
	next.add(t)
	next.pod.hasHCA(t, "mlx5_0")
	young := openVerbs(t, next.pod, "mlx5_0")
	text := young.memory(0, "rw", "young")
	fromYoung, toYoung := connected(young, other)
	wantStatus(t, "the next pod writes", fromYoung.write(text, greeting), wcSuccess)
	if got := greeting.text(); got != "young" {
		t.Errorf("the next pod's write has left %q", got)
	}
	// The old pod's process goes on where it was stopped: its queue pair sends nothing, and it gets no other one.
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantCut(t, stopped, fromStopped, stoppedText, greeting)
	if got := startVerbs(t, old).say("open", "mlx5_0"); !strings.HasPrefix(got, "error find") {
		t.Errorf("a new process of the old pod opens the HCA: %s", got)
	}
	other.must("text", greeting.index, "still here")
	wantStatus(t, "a write to the next pod", toYoung.write(greeting, text), wcSuccess)
	if got := text.text(); got != "still here" {
		t.Errorf("the next pod has %q", got)
	}
	running.kill()
	stopped.kill()
	l.Server.Kill()
	wantStatus(t, "the next pod writes after the last one's death", fromYoung.write(text, greeting), wcSuccess)
	next.del(t)
	attachments[1].del(t)
	young.kill()
	other.kill()
	wantObjects(t, InHost(), idle)
	wantUnused(t)
}

// wantCut fails the test unless a process whose HCA has been taken away knows it, and can do nothing with what it had.
func wantCut(t *testing.T, v *verbsProcess, qp, from, to verbsObject) {
	t.Helper()
	if got := v.say("event"); got != "ok local catastrophic error" {
		t.Errorf("the event of the move is %q", got)
	}
	before := to.text()
	for what, got := range map[string]string{
		"write": qp.write(from, to), "state": v.say("state", qp.index), "pd": v.say("pd"),
		"qp": v.say("qp", 0, "rc", 0),
	} {
		if !strings.HasSuffix(got, "Input/output error") {
			t.Errorf("%s without the HCA: %q, want EIO", what, got)
		}
	}
	if got := to.text(); got != before {
		t.Errorf("memory of the peer changed to %q", got)
	}
}

// What processes leave that are killed while data moves is freed, and the HCA works for the next ones. So it does after
// the death of the pod with its network namespace, without DEL.
func TestTrafficKilled(t *testing.T) {
	RequireMode(t, "exclusive")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	idle := hostObjects(t)
	pods, attachments := podsWithHCAs(t, "pod0", "pod1")
	attached := verbsObjects(t, pods[0])
	l := endless(t, pods[0], pods[1], "mlx5_0", "mlx5_1", "10.1.0.1", 18515)
	l.Server.Kill()
	fails(t, l.Client)
	wantObjects(t, pods[0], attached)
	wantUnused(t)

	l = endless(t, pods[0], pods[1], "mlx5_0", "mlx5_1", "10.1.0.1", 18515)
	pods[0].Delete(t)
	l.Server.Kill()
	fails(t, l.Client)
	attachments[0].del(t)
	attachments[1].del(t)
	wantObjects(t, InHost(), idle)
	wantUnused(t)
}
