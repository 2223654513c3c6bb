//go:build labguest

package guest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// verbsProcess is a process of integration/lab/verbs: it has verbs objects, and does with them what a test says.
type verbsProcess struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.Writer
	out     *os.File
	answers *bufio.Reader
	lid     string // of the port of its HCA
}

// verbsObject is a queue pair or a memory region of a verbsProcess.
type verbsObject struct {
	*verbsProcess
	index  string // in the process
	number string // QPN or rkey
	addr   string // of a memory region
}

// startVerbs starts the process in a pod, or on the host if pod is nil. It is killed when the test ends.
func startVerbs(t testing.TB, pod *Pod) *verbsProcess { return startVerbsAs(t, pod, "lab-verbs") }

// startVerbsAs is startVerbs with another name of the program.
func startVerbsAs(t testing.TB, pod *Pod, program string) *verbsProcess {
	t.Helper()
	v := &verbsProcess{t: t, cmd: exec.Command(program)}
	in, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v.in, v.out, v.answers = in, out, bufio.NewReader(out)
	v.cmd.Stdout, v.cmd.Stderr = answers, answers
	start := v.cmd.Start
	if pod != nil {
		start = func() error { return pod.DoSysfs(v.cmd.Start) }
	}
	err = start()
	answers.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.kill)
	return v
}

// openVerbs is startVerbs with an HCA opened and one protection domain.
func openVerbs(t testing.TB, pod *Pod, hca string) *verbsProcess {
	t.Helper()
	v := startVerbs(t, pod)
	v.lid = v.must("open", hca)[0]
	v.must("pd")
	return v
}

// kill ends the process as the kernel's memory killer would. A second call does nothing.
func (v *verbsProcess) kill() {
	if v.cmd.ProcessState != nil {
		return
	}
	_ = v.cmd.Process.Kill() // it may have ended by itself
	_ = v.cmd.Wait()
	v.out.Close()
}

// say returns the answer to a command.
func (v *verbsProcess) say(words ...any) string {
	v.t.Helper()
	command := strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	if _, err := fmt.Fprintln(v.in, command); err != nil {
		v.t.Fatal(err)
	}
	// Longer than the process itself waits for anything.
	if err := v.out.SetReadDeadline(time.Now().Add(3 * Patience)); err != nil {
		v.t.Fatal(err)
	}
	answer, err := v.answers.ReadString('\n')
	if err != nil {
		v.t.Fatalf("answer to %q: %q, %v", command, answer, err)
	}
	return strings.TrimSpace(answer)
}

// must returns the words of the answer to a command that has to succeed.
func (v *verbsProcess) must(words ...any) []string {
	v.t.Helper()
	answer := v.say(words...)
	rest, ok := strings.CutPrefix(answer, "ok")
	if !ok {
		v.t.Fatalf("%v: %s", words, answer)
	}
	return strings.Fields(rest)
}

// memory registers memory in a protection domain, with a text in it.
func (v *verbsProcess) memory(pd int, access, text string) verbsObject {
	v.t.Helper()
	w := v.must("mr", pd, access, text)
	return verbsObject{verbsProcess: v, index: w[0], addr: w[1], number: w[2]}
}

// qp makes a queue pair in a protection domain.
func (v *verbsProcess) qp(pd int, kind string, pkeyIndex int) verbsObject {
	v.t.Helper()
	w := v.must("qp", pd, kind, pkeyIndex)
	return verbsObject{verbsProcess: v, index: w[0], number: w[1]}
}

// connect makes a queue pair ready to send to another one, which need not know of it.
func (q verbsObject) connect(to verbsObject) {
	q.t.Helper()
	q.must("connect", q.index, to.lid, to.number)
}

// write and read return what becomes of a request about all of from or to and as much of the remote memory.
func (q verbsObject) write(from, remote verbsObject) string {
	q.t.Helper()
	return q.say("write", q.index, from.index, remote.addr, remote.number)
}

func (q verbsObject) read(to, remote verbsObject) string {
	q.t.Helper()
	return q.say("read", q.index, to.index, remote.addr, remote.number)
}

// text is what the memory holds.
func (q verbsObject) text() string {
	q.t.Helper()
	return strings.Join(q.must("text", q.index), " ")
}

// What becomes of a request, as ibv_wc_status_str has it.
const (
	wcSuccess      = "wc success"
	wcRemoteAccess = "wc remote access error"
	wcNobody       = "wc transport retry counter exceeded"
)

// wantStatus fails the test unless a request ended so.
func wantStatus(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// connected returns queue pairs of two processes that are connected to each other, of the protection domains 0.
func connected(a, b *verbsProcess) (verbsObject, verbsObject) {
	a.t.Helper()
	qa, qb := a.qp(0, "rc", 0), b.qp(0, "rc", 0)
	qa.connect(qb)
	qb.connect(qa)
	return qa, qb
}
