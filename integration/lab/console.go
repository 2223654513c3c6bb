package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// scriptMark is what a guest prints on its console before it runs the script.
const scriptMark = "@@ script "

// console stores a guest's console in a file and notices when the script starts.
type console struct {
	mu      sync.Mutex
	file    *os.File
	also    io.Writer
	line    []byte
	started time.Time
	onStart func(uptime time.Duration) // called once, with the guest's own clock; may be nil
}

func newConsole(path string, also io.Writer) (*console, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create console log: %w", err)
	}
	return &console{file: file, also: also}, nil
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started.IsZero() {
		c.line = append(c.line, p...)
		if uptime, ok := scriptUptime(c.line); ok {
			c.started, c.line = time.Now(), nil
			if c.onStart != nil {
				c.onStart(uptime)
			}
		}
	}
	if c.also != nil {
		if _, err := c.also.Write(p); err != nil {
			return 0, fmt.Errorf("copy console: %w", err)
		}
	}
	return c.file.Write(p)
}

// Started returns when the script started, zero if it has not.
func (c *console) Started() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

func (c *console) Close() error { return c.file.Close() }

// follow copies what is appended to the file at path to w until the returned function is called, which copies the
// rest. The guest writes through 9p: the file grows here without any notification, so it is polled.
func follow(path string, w io.Writer) (stop func()) {
	if w == nil {
		return func() {}
	}
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		var offset int64
		for {
			last := false
			select {
			case <-tick.C:
			case <-done:
				last = true
			}
			offset += copyFrom(path, offset, w)
			if last {
				return
			}
		}
	}()
	return func() { close(done); <-finished }
}

func copyFrom(path string, offset int64, w io.Writer) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0 // not yet created
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0
	}
	n, _ := io.Copy(w, f) // a reader that has gone must not stop the guest
	return n
}

// tail returns the last lines of a file, "" if it can't be read.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
