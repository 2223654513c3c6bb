package ipam

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// late is a context whose time is over as soon as a file is there.
type late struct {
	context.Context
	over chan struct{}
}

func overWith(t *testing.T, file string) late {
	l := late{t.Context(), make(chan struct{})}
	go func() {
		for l.Context.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				close(l.over)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return l
}

func (l late) Done() <-chan struct{} { return l.over }

func (l late) Err() error {
	select {
	case <-l.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestTimeout(t *testing.T) {
	d, dir := script(t, `[ $CNI_COMMAND = DEL ] && exit 0
trap 'echo ended > ended; exit 1' TERM
sleep 1000000 & echo $! > pid.new; mv pid.new pid; wait`)
	_, err := d.Add(overWith(t, filepath.Join(dir, "pid")))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("error: %v", err)
	}
	// The sleep goes on holding the pipes: without endTimeout this would never end.
	sandbox.Run(t, "sh", "-c", "kill $(cat "+filepath.Join(dir, "pid")+")")
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Error("the plugin was not given the chance to end by itself")
	}
	if got := calls(t, dir); got != "ADD DEL" {
		t.Errorf("calls: %s: the DEL must not share the deadline of the ADD", got)
	}
}

func TestChildLeftBehindIsNoFailure(t *testing.T) {
	d, _ := script(t, one+"\nsleep 9 &")
	if _, err := d.Add(t.Context()); err != nil {
		t.Error(err)
	}
}
