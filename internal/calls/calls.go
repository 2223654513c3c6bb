// Package calls passes to the agent how long the plugin's calls took and how they ended: the plugin appends a line per
// call to a file, and the agent takes the file away and counts. A call never fails because of it, and never waits.
package calls

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// File is the name of the file in the state directory.
const File = "calls"

// taken is the name of the file that the agent has taken away: a call that opened it before may still write its line.
const taken = "calls.taken"

// maxSize bounds the file where no agent takes it away: some 40 000 calls.
const maxSize = 1 << 20

// Call is one call of the plugin.
type Call struct {
	Verb string        // ADD, DEL, CHECK, STATUS, GC; or Other
	Code uint          // of its error; 0: it succeeded
	Took time.Duration // wall time
}

// Note appends a call to the file in the state directory. A call that can't be written is not counted. Lines are
// shorter than PIPE_BUF and written at once to a file opened to append, so those of calls side by side do not mix.
func Note(dir string, c Call) {
	if c.Verb = counted(c.Verb); c.Verb == "" {
		return
	}
	fd, err := unix.Open(
		filepath.Join(dir, File),
		unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0o600,
	)
	if err != nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size < maxSize {
		_, _ = unix.Write(fd, append(c.line(), '\n'))
	}
	_ = unix.Close(fd)
}

// line is "ADD 0 12345": verb, code, microseconds.
func (c Call) line() []byte {
	b := append(make([]byte, 0, 40), c.Verb...)
	b = strconv.AppendUint(append(b, ' '), uint64(c.Code), 10)
	return strconv.AppendInt(append(b, ' '), c.Took.Microseconds(), 10)
}

// Take returns the calls that were noted until it was called the time before, each once. It takes the file away and
// reads it with the next call, when those that had opened it have long written their line. A line that makes no sense
// is skipped.
func Take(dir string) (out []Call, err error) {
	old := filepath.Join(dir, taken)
	b, err := os.ReadFile(old)
	if err == nil {
		out = parse(b)
		err = os.Remove(old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("read the plugin's calls: %w", err)
	}
	if err := os.Rename(filepath.Join(dir, File), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("take the plugin's calls: %w", err)
	}
	return out, nil
}

func parse(b []byte) (out []Call) {
	for line := range bytes.Lines(b) {
		w := strings.Fields(string(line))
		if len(w) != 3 {
			continue
		}
		verb := counted(w[0])
		code, err := strconv.ParseUint(w[1], 10, 32)
		us, uerr := strconv.ParseInt(w[2], 10, 64)
		if verb != "" && err == nil && uerr == nil && us >= 0 {
			out = append(out, Call{verb, uint(code), time.Duration(us) * time.Microsecond})
		}
	}
	return out
}

// Other stands for a malformed verb: the runtime is broken.
const Other = "other"

// counted is the verb that a call is counted as; empty: it is not counted. VERSION, and a start without any verb, do
// nothing. Any other verb is counted by its name, so that a new one needs no change here.
func counted(verb string) string {
	const longest = 16
	switch {
	case verb == "VERSION", verb == "":
		return ""
	case len(verb) > longest, strings.Trim(verb, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return Other
	}
	return verb
}
