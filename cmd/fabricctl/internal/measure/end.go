// Package measure runs ping and perftest between pods, or between network namespaces of this machine.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	utilexec "k8s.io/client-go/util/exec"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
)

// End is one side of a measurement: something that runs commands with the rails in reach.
type End struct {
	Name string
	Node string // of a pod, as the API server says; empty: not known
	UID  string // of the pod
	// Either pod runs a command in a pod, or inside starts it in a network namespace.
	pod    func(ctx context.Context, args []string, out io.Writer) error
	inside interface {
		Start(c *exec.Cmd) error
		Close() error
	}
}

// Pod is a pod of a cluster.
func Pod(kube *cluster.Cluster, namespace, name string) *End {
	return &End{Name: name, pod: func(ctx context.Context, args []string, out io.Writer) error {
		return kube.Exec(ctx, namespace, name, "", args, out, out)
	}}
}

// Close lets go of the namespace.
func (e *End) Close() {
	if e.inside != nil {
		_ = e.inside.Close() // nothing was written
	}
}

// maxOutput bounds what is kept of a command's output: a pod's owner decides what it prints.
const maxOutput = 1 << 20

// Output keeps the beginning of what is written to it. Both streams of a command may be written at once.
type Output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	most int
}

// NewOutput keeps so many bytes.
func NewOutput(most int) *Output { return &Output{most: most} }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p[:min(len(p), max(0, o.most-o.b.Len()))])
	return len(p), nil
}

// Bytes is what was kept.
func (o *Output) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.b.Bytes())
}

func (o *Output) String() string { return string(o.Bytes()) }

// start starts a command where the end is. wait waits until it has ended.
func (e *End) start(ctx context.Context, args []string, out io.Writer) (wait func() error, err error) {
	if e.pod != nil {
		done := make(chan error, 1)
		go func() { done <- e.pod(ctx, args, out) }()
		return func() error { return <-done }, nil
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 10 * time.Second // what it has started may hold its output open
	cmd.Stdout, cmd.Stderr = out, out
	err = e.inside.Start(cmd)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("run %s: %w: install %s, or put it in PATH", args[0], err, packageOf(args[0]))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", e.Name, strings.Join(args, " "), err)
	}
	return cmd.Wait, nil
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
	out := NewOutput(maxOutput)
	wait, err := e.start(ctx, args, out)
	if err != nil {
		return "", err
	}
	err = wait()
	return out.String(), e.ended(args, err, out.String())
}

// ended says what a command that has failed was, and its last words.
func (e *End) ended(args []string, err error, out string) error {
	if err == nil {
		return nil
	}
	if e.pod != nil && !errors.As(err, new(utilexec.CodeExitError)) { // it was not run at all
		return fmt.Errorf("%s: %w", e.Name, err)
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
	out := NewOutput(maxOutput)
	wait, err := e.start(ctx, args, out)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Server{cancel: cancel, done: make(chan struct{})}
	go func() {
		err := wait()
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
		if line = strings.TrimSpace(line); strings.Trim(line, "-") != "" {
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
