// Package measure runs ping and perftest between pods, or between network namespaces of this machine.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// End is one side of a measurement: something that runs commands with the rails in reach.
type End struct {
	Name string
	// prefix is put before every command; netns is entered before, if it is set.
	prefix []string
	netns  *netns.NS
}

// Pod is a pod, through kubectl exec.
func Pod(namespace, name string) *End {
	return &End{Name: name, prefix: []string{"kubectl", "-n", namespace, "exec", name, "--"}}
}

// Netns is a network namespace of this machine.
func Netns(path string) (*End, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	return &End{Name: path, netns: ns}, nil
}

// Close lets go of the namespace.
func (e *End) Close() {
	if e.netns != nil {
		_ = e.netns.Close() // nothing was written
	}
}

// start starts a command. The child has the network namespace of the thread that starts it.
func (e *End) start(cmd *exec.Cmd) error {
	if e.netns == nil {
		return cmd.Start()
	}
	return e.netns.Do(cmd.Start)
}

func (e *End) command(ctx context.Context, args []string) (*exec.Cmd, *bytes.Buffer) {
	all := append(append([]string{}, e.prefix...), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// Run runs a command and returns what it prints, on both outputs.
func (e *End) Run(ctx context.Context, args ...string) (string, error) {
	cmd, out := e.command(ctx, args)
	err := e.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("run %s: %w: install it, or put it in PATH", args[0], err)
		}
		return out.String(), fmt.Errorf("%s: %s: %w: %s", e.Name, strings.Join(args, " "), err, tail(out.String()))
	}
	return out.String(), nil
}

// Serve starts a command and returns how to end it.
func (e *End) Serve(ctx context.Context, args ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, _ := e.command(ctx, args)
	if err := e.start(cmd); err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %s: %w", e.Name, strings.Join(args, " "), err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed, or has ended with its client: either is well
	}, nil
}

// tail are the last words of an output.
func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-2):], "; ")
}
