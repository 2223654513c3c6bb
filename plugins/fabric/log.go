package fabric

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
	handler := slog.NewTextHandler(out, &slog.HandlerOptions{Level: l})
	c.log = slog.New(handler).With("container", c.key.ContainerID, "ifname", c.key.IfName)
	if refused != nil {
		c.log.Warn("log goes to stderr", "reason", refused)
	}
}

func (c *call) openLogFile(file string) (*os.File, error) {
	p, err := c.policy()
	if err != nil {
		return nil, err
	}
	if err := p.LogFile(file); err != nil {
		return nil, err
	}
	if strings.HasPrefix(file, c.StateDir+"/") {
		return nil, fmt.Errorf("%s is in the plugin's own state", file)
	}
	// No symbolic link on the whole way: /tmp is everybody's. The kernel has this since 5.6.
	fd, err := unix.Openat2(unix.AT_FDCWD, file, &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Mode:    0o600,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	return f, nil
}
