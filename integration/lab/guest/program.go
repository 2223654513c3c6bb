package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// InHost is the guest's host where a pod is expected: its initial network namespace.
func InHost() *Pod { return &Pod{Name: "host", Path: "/proc/1/ns/net"} }

// Program is a process in a pod that has the pod's own /sys, as a container has it, and whose output is kept.
type Program struct {
	cmd    *exec.Cmd
	where  string // "ib_write_bw -n 50 in pod a"
	output syncBuffer
	ended  chan struct{} // closed after Wait
}

// Ended is what a program did.
type Ended struct {
	Program string // with its arguments, and its pod
	Exit    int    // -1 if it was killed
	Late    bool   // it was killed because it took too long
	Output  string // standard output and error
}

// OK reports whether the program succeeded.
func (e Ended) OK() bool { return e.Exit == 0 }

func (e Ended) String() string {
	late := ""
	if e.Late {
		late = ", killed: it took too long"
	}
	return fmt.Sprintf("%s: exit status %d%s\n%s", e.Program, e.Exit, late, e.Output)
}

// Start starts a program in the pod, in a process group of its own. The group is killed when the test ends. A program
// that can't be started fails the test.
func (p *Pod) Start(t testing.TB, command ...string) *Program {
	t.Helper()
	prog := &Program{
		cmd:   exec.Command(command[0], command[1:]...),
		where: strings.Join(command, " ") + " in pod " + p.Name,
		ended: make(chan struct{}),
	}
	prog.cmd.Stdout, prog.cmd.Stderr = &prog.output, &prog.output
	prog.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	prog.cmd.WaitDelay = 5 * time.Second // a child that left the group may hold the output open
	if err := p.DoSysfs(prog.cmd.Start); err != nil {
		t.Fatalf("start %s: %v", prog.where, err)
	}
	go func() {
		defer close(prog.ended)
		_ = prog.cmd.Wait() // its result is in ProcessState
	}()
	t.Cleanup(prog.Kill)
	return prog
}

// PID returns the process id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Output returns what the program has printed so far.
func (p *Program) Output() string { return p.output.String() }

// Running reports whether the program has not ended.
func (p *Program) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill sends SIGKILL to the program's process group and waits for its end. A second call does nothing.
func (p *Program) Kill() {
	if p.Running() {
		// The leader has not been waited for, so the number is still its group's.
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	}
	<-p.ended
}

// Wait waits until the program has ended, and kills it when patience is over.
func (p *Program) Wait(patience time.Duration) Ended {
	late := false
	select {
	case <-p.ended:
	case <-time.After(patience):
		late = true
		p.Kill()
	}
	return Ended{Program: p.where, Exit: p.cmd.ProcessState.ExitCode(), Late: late, Output: p.Output()}
}

// Run runs a program in the pod with the pod's own /sys until it ends, for at most a minute.
func (p *Pod) Run(t testing.TB, command ...string) Ended {
	t.Helper()
	return p.Start(t, command...).Wait(time.Minute)
}

// Listens returns nil if the program has a TCP socket that listens.
func (p *Program) Listens() error {
	if !p.Running() {
		return fmt.Errorf("%s has ended: %s", p.where, p.Output())
	}
	dir := fmt.Sprintf("/proc/%d", p.PID())
	own, err := sockets(dir + "/fd")
	if err != nil {
		return err
	}
	for _, table := range []string{"/net/tcp", "/net/tcp6"} {
		text, err := os.ReadFile(dir + table)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read sockets of %s: %w", p.where, err)
		}
		for line := range strings.Lines(string(text)) {
			// proc(5): sl local remote st tx:rx tr:when retrnsmt uid timeout inode
			const listen = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listen && own[f[9]] {
				return nil
			}
		}
	}
	return fmt.Errorf("%s does not listen: %s", p.where, p.Output())
}

// sockets returns the inodes of the sockets among a process's descriptors.
func sockets(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	inodes := make(map[string]bool)
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue // it has just been closed
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}

// syncBuffer is a buffer that is read while a program writes into it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
