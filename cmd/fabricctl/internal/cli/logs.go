package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// read looks at all logs, at those after one that can't be read, too. When the program is interrupted, as Ctrl-C does
// to all of a pipe, it waits a moment for the end of what is read.
func (e *explainer) read(ctx context.Context, scan *doctor.Scan) error {
	done := make(chan error, 1)
	go func() {
		var err error
		for _, name := range e.files {
			err = errors.Join(err, e.readLog(scan, name))
		}
		if len(e.files) == 0 {
			err = e.readLog(scan, "-")
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		return errInterrupted
	}
}

// errInterrupted says that a log is still being read: the scan must not be used.
var errInterrupted = errors.New("interrupted")

// readLog looks at a file, or at standard input for "-".
func (e *explainer) readLog(scan *doctor.Scan, name string) error {
	shown, from := name, e.stdin
	if name == "-" {
		shown, name = "", "standard input"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return err // names the file
		}
		defer f.Close()
		from = f
	}
	progress := e.progress(from)
	defer progress.end()
	in := bufio.NewReaderSize(progress, 256<<10)
	var log io.Reader = in
	magic, _ := in.Peek(6) // fewer bytes: a short log
	if program := packer(magic); program != "" {
		return fmt.Errorf("read %s: packed with %s; unpack it first: %s -dc %s | fabricctl doctor "+
			"explain", name, program,
			program, quote.Shell(name))
	}
	if bytes.HasPrefix(magic, []byte("\x1f\x8b")) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		log = z
	}
	if err := scan.Read(shown, log); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// packer is the program that has packed a log and that unpacks it, for formats that are not read here.
func packer(magic []byte) string {
	for program, begins := range map[string]string{"xz": "\xfd7zXZ\x00", "zstd": "(\xb5/\xfd", "bzip2": "BZh"} {
		if bytes.HasPrefix(magic, []byte(begins)) {
			return program
		}
	}
	return ""
}

// progress tells on a terminal how far reading is. Logs may be long, and a pipe may be slow.
type progress struct {
	*console
	from        io.Reader
	on, printed bool
	bytes       int64
	began, last time.Time
}

func (e *explainer) progress(from io.Reader) *progress {
	p := &progress{console: e.console, from: from, began: time.Now()}
	p.last = p.began
	if f, ok := e.stderr.W.(*os.File); ok {
		st, err := f.Stat()
		p.on = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.bytes += int64(n)
	if p.on && time.Since(p.last) > 500*time.Millisecond {
		p.last, p.printed = time.Now(), true
		mb := float64(p.bytes) / 1e6
		p.stderr.Printf("\r\x1b[K%.0f MB read, %.0f MB/s", mb, mb/time.Since(p.began).Seconds())
	}
	return n, err
}

func (p *progress) end() {
	if p.printed {
		p.stderr.Printf("\r\x1b[K")
	}
}
