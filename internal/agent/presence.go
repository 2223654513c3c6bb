package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Two files of the state directory are between the agents of a node and `fabric-agent uninstall`, which is another
// process. Locks of flock end with their process, whatever ends that.
const (
	// presentName is held, shared, by each agent that works, and whole by uninstall. It says where the agent's things
	// are on this node.
	presentName = "agent.lock"
	// awayName is made by uninstall, and removed by install. While it is there no agent of the node works: each holds
	// it, shared, and waits. The plugin begins no ADD.
	awayName = journal.AwayName
)

// presence is those files of a state directory.
type presence struct{ dir string }

func (p presence) present() string { return filepath.Join(p.dir, presentName) }
func (p presence) away() string    { return filepath.Join(p.dir, awayName) }

// isAway reports whether the agents of this node are to do nothing.
func (p presence) isAway() bool {
	_, err := os.Lstat(p.away())
	return err == nil
}

// lockPoll is the time between two attempts to get a lock that another process holds.
const lockPoll = 50 * time.Millisecond

// errHeld means that another process holds the lock.
var errHeld = errors.New("another process holds it")

// lock opens a file, makes it if flags say so, and locks it. It waits for the lock until ctx ends. Closing the file
// gives the lock back.
func lock(ctx context.Context, file string, flags, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(file, flags|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil && isFile(file, f) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", file, errHeld)
		case <-time.After(lockPoll):
		}
	}
}

// isFile reports whether the file of this name is still the open one.
func isFile(name string, f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(name)
	return err == nil && os.SameFile(now, open)
}

// enter says that an agent works on this node, with its things in these places. It waits while uninstall is at work.
func (p presence) enter(ctx context.Context, at *places) (*os.File, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := lock(ctx, p.present(), os.O_CREATE, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	if err := at.write(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", p.present(), err), f.Close())
	}
	return f, nil
}

// wait is what an agent holds while it does nothing; nil: it may work.
func (p presence) wait(ctx context.Context) (*os.File, error) {
	f, err := lock(ctx, p.away(), 0, unix.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// leave removes the file for which agents wait, unless one does. It reports whether the file is gone.
func (p presence) leave() (bool, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no waiting
	f, err := lock(ctx, p.away(), 0, unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, errHeld):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, errors.Join(remove(p.away()), f.Close())
}

// places are the directories of the node in which the agent's things are, as its command line has named them.
type places struct {
	BinDir     string `json:"binDir"`
	ConfDir    string `json:"confDir"`
	DeviceDir  string `json:"deviceDir"`
	InfoDir    string `json:"infoDir"`
	PluginsDir string `json:"pluginsDir"`
	CDIDir     string `json:"cdiDir"`
}

func (a *places) write(f *os.File) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	old := make([]byte, len(b)+1)
	if n, _ := f.ReadAt(old, 0); bytes.Equal(old[:n], b) {
		return nil
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Truncate(int64(len(b))))
}

// places are those of the command line.
func (o *Options) places() *places {
	return &places{o.BinDir, o.ConfDir, o.DeviceDir, o.InfoDir, o.PluginsDir, o.CDIDir}
}

// adopt takes from the node's agent where its things are, for all that the command line does not say: an uninstall
// that looks in the wrong directories would leave everything, and be content.
func (o *Options) adopt() {
	b, err := os.ReadFile(presence{o.StateDir}.present())
	at := &places{}
	if err != nil || json.Unmarshal(b, at) != nil {
		return // no agent has been here since the last boot
	}
	for flag, p := range map[string]struct {
		to   *string
		from string
	}{
		"bin-dir":             {&o.BinDir, at.BinDir},
		"conf-dir":            {&o.ConfDir, at.ConfDir},
		"device-plugin-dir":   {&o.DeviceDir, at.DeviceDir},
		"device-info-dir":     {&o.InfoDir, at.InfoDir},
		"kubelet-plugins-dir": {&o.PluginsDir, at.PluginsDir},
		"cdi-dir":             {&o.CDIDir, at.CDIDir},
	} {
		if !o.flagged[flag] {
			*p.to = p.from
		}
	}
}

// remove removes a file. One that is not there is no error.
func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
