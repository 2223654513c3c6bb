package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

const (
	maxAnswer = 1 << 20 // bytes of stdout; a result with a thousand addresses has a tenth
	maxQuote  = 256     // bytes of an answer in an error
	maxStderr = 1 << 10 // bytes of stderr in an error

	// A plugin that is told to end (SIGTERM, so that it can give up a lease it holds) or that has ended, while a child
	// of it keeps the pipes open, is waited for this long.
	endTimeout = 2 * time.Second

	// A plugin that is being written by an installer can't be run (ETXTBSY). It is tried again for a second.
	busyTries = 10
	busyWait  = 100 * time.Millisecond
)

// choose returns the built-in plugin, or else the path of the executable, that serves a command. The error matches
// policy.ErrRefused or ErrNotStarted.
func (d Delegate) choose(command string) (b *builtin, path string, err error) {
	b, key := d.builtin()
	rules := d.Policy
	if rules == nil {
		rules = &policy.Policy{}
	}
	err = rules.IPAM(policy.IPAMCall{
		Type: d.Type, Command: command, Conf: d.Conf, Asked: d.Asked, Executed: b == nil,
	})
	if err != nil {
		return nil, "", d.wrap(command, err)
	}
	if b != nil {
		return b, "", nil
	}
	path, err = find(d.Type, d.Env.Path)
	if err != nil && key != "" {
		err = fmt.Errorf("%w; it is looked for because the built-in %s does not know the key %s", err, d.Type, key)
	}
	return nil, path, err
}

// call runs the plugin once, built in or as a process, and returns its answer.
func (d Delegate) call(ctx context.Context, command string, env netconf.Env, conf []byte) ([]byte, error) {
	env.Command = command
	b, path, err := d.choose(command)
	if err != nil {
		return nil, err
	}
	if b != nil {
		out, err := b.run(ctx, env, conf)
		if err != nil {
			return nil, d.wrap(command, err)
		}
		return out, nil
	}
	for try := 1; ; try++ {
		out, err := d.run(ctx, path, env, conf)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(busyWait):
		}
	}
}

func (d Delegate) run(ctx context.Context, path string, env netconf.Env, conf []byte) ([]byte, error) {
	stdout, stderr := &answer{}, &ends{to: d.Stderr}
	if stderr.to == nil {
		stderr.to = os.Stderr
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = (&invoke.Args{
		Command: env.Command, ContainerID: env.ContainerID, NetNS: env.Netns, IfName: env.IfName,
		PluginArgsStr: env.Args, Path: env.Path,
	}).AsEnv()
	cmd.Env = append(cmd.Env, DepthVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(conf), stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTimeout
	if d.Hold != nil {
		cmd.ExtraFiles = []*os.File{d.Hold}
	}
	// It must not outlive this process: nothing would give back the address that it gets. The signal comes when the
	// thread ends that has started it (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, d.wrap(env.Command, fmt.Errorf("%w: %w", ErrNotStarted, err))
	}
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() && ctx.Err() == nil {
		err = nil // it has answered, and left a child behind
	}
	if err == nil && !stdout.full {
		return stdout.b.Bytes(), nil
	}
	return nil, d.wrap(env.Command, failure(ctx, err, stdout, stderr.String()))
}

// failure finds out why the plugin failed: its own words first, then what ended it.
func failure(ctx context.Context, err error, stdout *answer, stderr string) error {
	out := stdout.b.Bytes()
	if stdout.full {
		return fmt.Errorf("answered with more than %d bytes: %s", maxAnswer, quote(out))
	}
	var said types.Error
	if json.Unmarshal(out, &said) == nil && (said.Code != 0 || said.Msg != "") {
		return &said
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("did not answer in time: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			err = fmt.Errorf("killed by signal %d (%v): %w", ws.Signal(), ws.Signal(), err)
		}
	}
	if len(out) > 0 {
		err = fmt.Errorf("%w; answered %s, which is no CNI error", err, quote(out))
	}
	if stderr != "" {
		err = fmt.Errorf("%w; stderr: %q", err, strings.TrimSpace(stderr))
	}
	return err
}

func (d Delegate) wrap(command string, err error) error {
	return fmt.Errorf("IPAM plugin %q: %s: %w", d.Type, command, err)
}

// quote is the beginning of an answer, made printable.
func quote(b []byte) string {
	if len(b) == 0 {
		return "nothing"
	}
	if len(b) > maxQuote {
		return fmt.Sprintf("%q...", b[:maxQuote])
	}
	return fmt.Sprintf("%q", b)
}

// answer keeps up to maxAnswer bytes, then refuses, which closes the pipe and so ends the plugin.
type answer struct {
	b    bytes.Buffer
	full bool
}

func (a *answer) Write(p []byte) (int, error) {
	if a.b.Len()+len(p) > maxAnswer {
		a.full = true
		return 0, io.ErrShortWrite
	}
	return a.b.Write(p)
}

// ends passes on everything and keeps the first and the last maxStderr/2 bytes: a panic begins with its cause, and most
// others end with theirs. What can't be passed on is no failure of the plugin.
type ends struct {
	to          io.Writer
	first, last []byte
	cut         bool // something between them is not kept
}

func (e *ends) Write(p []byte) (int, error) {
	_, _ = e.to.Write(p)
	n := min(len(p), maxStderr/2-len(e.first))
	e.first, e.last = append(e.first, p[:n]...), append(e.last, p[n:]...)
	if over := len(e.last) - maxStderr/2; over > 0 {
		e.last, e.cut = append(e.last[:0], e.last[over:]...), true
	}
	return len(p), nil
}

func (e *ends) String() string {
	if e.cut {
		return string(e.first) + " ... " + string(e.last)
	}
	return string(e.first) + string(e.last)
}
