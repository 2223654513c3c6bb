//go:build failpoint

// Package failpoint lets a test stop the plugin at a named point, with an error or with SIGKILL. It does nothing unless
// built with the tag failpoint: a released binary can't be steered by its environment.
package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The environment of a test: FABRIC_FAILPOINT=point:action, where action is error or kill, and
// FABRIC_FAILPOINT_TRACE=file, to which the name of every point passed is appended. A point passed more than once is
// numbered from the second time on: point#2. To FABRIC_FAILPOINT_STEPS=file every step is appended as it is printed, to
// FABRIC_FAILPOINT_TIMES=file every point with the nanoseconds of CLOCK_MONOTONIC.
//
// FABRIC_FAILPOINT_HOLD=directory is for processes that run already: a process that comes to a point while the
// directory has a file of its name (with - for /) writes its process id to NAME.pid, and waits until the file is gone.
var (
	mu     sync.Mutex
	passed = map[string]int{}
)

// Hit is passed on the way through a named point.
func Hit(point string) error {
	if err := hold(point); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	passed[point]++
	if n := passed[point]; n > 1 {
		point = fmt.Sprintf("%s#%d", point, n)
	}
	if err := note("FABRIC_FAILPOINT_TRACE", point); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	if err := note("FABRIC_FAILPOINT_TIMES", fmt.Sprintf("%s %d", point, now.Nano())); err != nil {
		return err
	}
	want, action, _ := strings.Cut(os.Getenv("FABRIC_FAILPOINT"), ":")
	if want != point {
		return nil
	}
	if action == "kill" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	return fmt.Errorf("failpoint %s", point)
}

// Step is called with each step that is about to be carried out.
func Step(s fmt.Stringer) error {
	mu.Lock()
	defer mu.Unlock()
	return note("FABRIC_FAILPOINT_STEPS", s.String())
}

// Environ is what a child process needs in its environment to pass its points as this one does.
func Environ() []string {
	if dir := os.Getenv("FABRIC_FAILPOINT_HOLD"); dir != "" {
		return []string{"FABRIC_FAILPOINT_HOLD=" + dir}
	}
	return nil
}

// note appends a line to the file that a variable names.
func note(variable, line string) error {
	file := os.Getenv(variable)
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(f, line)
	return f.Close()
}
