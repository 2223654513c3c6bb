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
// numbered from the second time on: point#2.
var (
	mu     sync.Mutex
	passed = map[string]int{}
)

// Hit is passed on the way through a named point.
func Hit(point string) error {
	mu.Lock()
	defer mu.Unlock()
	passed[point]++
	if n := passed[point]; n > 1 {
		point = fmt.Sprintf("%s#%d", point, n)
	}
	if file := os.Getenv("FABRIC_FAILPOINT_TRACE"); file != "" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, point)
		f.Close()
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
