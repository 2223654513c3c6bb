// Package measure runs ping and perftest between pods, or between network namespaces of this machine.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/kubectl"
)

// End is one side of a measurement: something that runs commands with the rails in reach.
type End struct {
	Name string
	Node string // of a pod, as the API server says; empty: not known
	UID  string // of the pod
	// prefix is put before every command; inside starts it elsewhere, if it is set.
	prefix []string
	inside interface {
		Start(c *exec.Cmd) error
		Close() error
	}
}

// Pod is a pod, through kubectl exec.
func Pod(namespace, name string) *End {
	return &End{Name: name, prefix: []string{"kubectl", "-n", namespace, "exec", name, "--"}}
}

// Close lets go of the namespace.
func (e *End) Close() {
	if e.inside != nil {
		_ = e.inside.Close() // nothing was written
	}
}

// maxOutput bounds what is kept of a command's output: a pod's owner decides what it prints.
const maxOutput = 1 << 20

// output keeps the beginning of what is written to it.
type output struct{ bytes.Buffer }

func (o *output) Write(p []byte) (int, error) {
	if room := maxOutput - o.Len(); room > 0 {
		o.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (e *End) command(ctx context.Context, args []string) (*exec.Cmd, *output) {
	all := append(append([]string{}, e.prefix...), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.WaitDelay = 10 * time.Second // what it has started may hold its output open
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// start starts a command where the end is.
func (e *End) start(cmd *exec.Cmd, args []string) error {
	start := cmd.Start
	if e.inside != nil {
		start = func() error { return e.inside.Start(cmd) }
	}
	err := start()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("run %s: %w: install %s, or put it in PATH", cmd.Args[0], err, packageOf(cmd.Args[0]))
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", e.Name, strings.Join(args, " "), err)
	}
	return nil
}

// packageOf is the Debian package that has a program.
func packageOf(program string) string {
	switch {
	case strings.HasPrefix(program, "ib_"):
		return "perftest"
	case program == "ping":
		return "iputils-ping"
	case program == "rping":
		return "rdmacm-utils"
	case program == "ip":
		return "iproute2"
	}
	return "it"
}

// Run runs a command and returns what it prints, on both outputs.
func (e *End) Run(ctx context.Context, args ...string) (string, error) {
	cmd, out := e.command(ctx, args)
	if err := e.start(cmd, args); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), e.ended(args, err, out.String())
}

// ended says what a command that has failed was, and its last words.
func (e *End) ended(args []string, err error, out string) error {
	if err == nil {
		return nil
	}
	if text := kubectl.Unreached(out); len(e.prefix) > 0 && text != "" {
		return fmt.Errorf("%s: %s", e.Name, text)
	}
	return fmt.Errorf("%s: %s: %w: %s", e.Name, strings.Join(args, " "), err, tail(out))
}

// Server is a command that waits for another one.
type Server struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended, out and err are set then
	out    string
	err    error
}

// Serve starts a command that runs until Stop, or until its client has what it wants.
func (e *End) Serve(ctx context.Context, args ...string) (*Server, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, out := e.command(ctx, args)
	if err := e.start(cmd, args); err != nil {
		cancel()
		return nil, err
	}
	s := &Server{cancel: cancel, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		s.out, s.err = out.String(), e.ended(args, err, out.String())
		close(s.done)
	}()
	return s, nil
}

// Stop ends the server, if it has not ended by itself, and returns what it has printed and how it ended.
func (s *Server) Stop() (string, error) {
	s.cancel()
	<-s.done
	return s.out, s.err
}

// Failed tells whether the server has ended already, with an error.
func (s *Server) Failed() bool {
	select {
	case <-s.done:
		return s.err != nil
	default:
		return false
	}
}

// tail are the last words of an output.
func tail(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); strings.Trim(line, "-") != "" && !kubectl.Logged(line) {
			lines = append(lines, line)
		}
	}
	return short(strings.Join(lines[max(0, len(lines)-2):], "; "))
}

// maxWords bounds what a report quotes of an output, in bytes.
const maxWords = 2 << 10

func short(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "..."
}
