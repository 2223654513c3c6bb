package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// openLog opens the log that the configuration asks for, as far as the node's owner lets it: the path comes from a
// NetworkAttachmentDefinition and is opened as root.
func (c *call) openLog() {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "error": slog.LevelError}
	l, ok := level[c.cfg.LogLevel]
	if !ok {
		l = slog.LevelWarn
	}
	out := c.Stderr
	var refused error
	if file := c.cfg.LogFile; file != "" {
		f, err := c.openLogFile(file)
		if refused = err; err == nil {
			out = f
			c.closers = append(c.closers, f.Close)
		}
	}
	handler := slog.NewJSONHandler(out, &slog.HandlerOptions{Level: l, ReplaceAttr: short})
	c.log = slog.New(handler).With("call", c.env.Command, "of", c.who(), "interface", c.key.IfName)
	if c.Trace != "" {
		c.log = c.log.With("trace", c.Trace)
	}
	if refused != nil {
		c.log.Warn("log goes to stderr", "reason", refused)
	}
}

// TraceID is the trace id of a traceparent (W3C Trace Context, section 3.2): that of the runtime's call, which libcni
// hands on in the environment variable TRACEPARENT; empty if parent is not one.
func TraceID(parent string) string {
	f := strings.Split(parent, "-")
	if len(f) < 4 || len(f[0]) != 2 || f[0] == "ff" || len(f[1]) != 32 {
		return ""
	}
	if strings.Trim(f[1], "0123456789abcdef") != "" || strings.Trim(f[1], "0") == "" {
		return ""
	}
	return f[1]
}

// Bounds of a log, whose content is up to the author of a network and of a pod: each call may be repeated without end.
const (
	maxLogFile = 10 << 20 // bytes; a file that has more is left to what rotates it
	maxLogText = 2048     // bytes of a message or value
	maxIgnored = 10       // fields that are named
)

// short cuts what is too long for a line.
func short(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindString && a.Value.Kind() != slog.KindAny {
		return a
	}
	if text := a.Value.String(); len(text) > maxLogText {
		start := strings.ToValidUTF8(text[:maxLogText], "")
		a.Value = slog.StringValue(fmt.Sprintf("%s... (%d bytes)", start, len(text)))
	}
	return a
}

// logIgnored names the fields of the configuration that mean nothing here.
func (c *call) logIgnored() {
	fields := c.cfg.Ignored
	for _, f := range fields[:min(len(fields), maxIgnored)] {
		c.log.Info("configuration field has no meaning here and is ignored", "field", f)
	}
	if more := len(fields) - maxIgnored; more > 0 {
		c.log.Info("more configuration fields have no meaning here and are ignored", "more", more)
	}
}

func (s *session) openLogFile(file string) (*os.File, error) {
	p, err := s.policy()
	if err != nil {
		return nil, err
	}
	dir, err := p.LogFile(file)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(file, s.StateDir+"/") {
		return nil, fmt.Errorf("%s is in the plugin's own state", file)
	}
	if dir == policy.DefaultLogDir {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	fd, err := openBelow(dir, strings.TrimPrefix(file[len(dir):], "/"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file of this name alone", file)
	}
	if st.Size >= maxLogFile {
		f.Close()
		return nil, fmt.Errorf("%s has %d bytes, at most %d are written: rotate it", file, st.Size, maxLogFile)
	}
	return f, nil
}

// openBelow opens a file to append to, and creates it. No symbolic link is followed on the whole way, and the way never
// leaves dir: what is in there may be another user's, as in /tmp. The kernel has this since 5.6.
func openBelow(dir, name string) (int, error) {
	top, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	return unix.Openat2(top, name, &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Mode:    0o600,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
}
