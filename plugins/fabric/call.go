package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Bounds of one call. Runtimes give up after minutes; a call that can't end by itself blocks the pod for that long.
const (
	lockWait  = 10 * time.Second // for another call that moves the same device
	kernelMax = 30 * time.Second // for the device work of one attachment
	homeWait  = 10 * time.Second // for the kernel to bring devices home from a namespace that is gone
)

// call is one invocation of the plugin.
type call struct {
	Plugin
	cfg   *netconf.Config
	env   netconf.Env
	key   journal.Key
	store journal.Store
	log   *slog.Logger

	doing   string // completes "could not ..." in an error
	host    *apply.Side
	pod     *apply.Side
	rules   *policy.Policy
	closers []func() error
}

func (c *call) close() {
	for _, f := range c.closers {
		_ = f()
	}
}

// openHost opens the namespace the plugin was started in.
func (c *call) openHost() error {
	if c.host != nil {
		return nil
	}
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	side := &apply.Side{NS: ns, Reader: inventory.Reader{Sys: os.DirFS("/sys")}}
	if err := c.dial(side); err != nil {
		return err
	}
	c.host = side
	return nil
}

// openPod opens the namespace CNI_NETNS names. It returns fs.ErrNotExist when that is gone.
func (c *call) openPod() error {
	side, err := c.openSide(c.env.Netns)
	if err != nil {
		return err
	}
	if side.NS.ID == c.host.NS.ID {
		return &failure{
			code: types.ErrInvalidNetNS,
			err:  fmt.Errorf("CNI_NETNS %s is the host's own network namespace", c.env.Netns),
		}
	}
	c.pod = side
	return nil
}

func (c *call) openSide(path string) (*apply.Side, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	return c.enter(ns)
}

func (c *call) enter(ns *netns.NS) (*apply.Side, error) {
	side := &apply.Side{NS: ns}
	return side, ns.Do(func() error { return c.dial(side) })
}

// dial opens the netlink connections in the calling thread's namespace.
func (c *call) dial(side *apply.Side) (err error) {
	c.closers = append(c.closers, side.NS.Close)
	if side.Link, err = link.Dial(); err != nil {
		return err
	}
	c.closers = append(c.closers, side.Link.Close)
	side.RDMA, err = rdma.Dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		side.RDMA = nil
		return nil
	}
	if err == nil {
		c.closers = append(c.closers, side.RDMA.Close)
	}
	return err
}

// podOf opens the namespace of an attachment by what it is, not by where it was: a path is reused, and a namespace
// whose path is gone keeps its devices while a process or a mount holds it. It returns nil when it is gone for good.
func (c *call) podOf(e *journal.Entry) (*apply.Side, error) {
	for _, path := range []string{e.NetnsPath, c.env.Netns} {
		if path == "" {
			continue
		}
		ns, err := netns.Open(path)
		if err != nil {
			continue
		}
		if ns.ID == e.Netns {
			return c.enter(ns)
		}
		ns.Close()
	}
	ns, err := netns.Find("/proc", e.Netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.enter(ns)
}

// alive reports whether the pod of an attachment exists, or may exist: a device is taken only from a pod that is known
// to be dead.
func (*call) alive(e *journal.Entry) bool {
	live, err := e.Alive(journal.Witness{})
	return live || err != nil
}

// netnsMode returns the RDMA mode; the second value is false without RDMA.
func (c *call) netnsMode() (device.NetnsMode, bool, error) {
	if c.host.RDMA == nil {
		return 0, false, nil
	}
	m, err := c.host.RDMA.NetnsMode()
	if errors.Is(err, rdma.ErrNoRDMA) {
		c.host.RDMA = nil
		return 0, false, nil
	}
	return m, err == nil, err
}

func (c *call) policy() (*policy.Policy, error) {
	if c.rules != nil {
		return c.rules, nil
	}
	p, err := policy.Load(c.Policy)
	if err != nil {
		return nil, &failure{code: codeRefused, err: err, todo: "mend the file; until then no device is moved"}
	}
	c.rules = p
	return p, nil
}

// delegate is the IPAM plugin for this call's attachment.
func (c *call) delegate() ipam.Delegate {
	return ipam.Delegate{Type: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Env: c.env, Stderr: c.Stderr}
}

func (c *call) newEntry(kind journal.Kind) *journal.Entry {
	return &journal.Entry{
		Key: c.key, Network: c.cfg.Name, Kind: kind, Created: time.Now().UTC(), BootID: bootID(),
		NetnsPath: c.env.Netns, Netns: c.pod.NS.ID,
		IPAM: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Args: c.env.Args, Path: c.env.Path,
	}
}

func bootID() string { return journal.BootID("/proc") }

func elapsed(e *journal.Entry) uint32 {
	return uint32(max(0, min(time.Since(e.Created)/time.Second, 1<<31)))
}

// bounded is a context for work that must be finished even if the call's own time has run out.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

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
	c.log = slog.New(
		slog.NewTextHandler(out, &slog.HandlerOptions{Level: l}),
	).With(
		"container",
		c.key.ContainerID,
		"ifname",
		c.key.IfName,
	)
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
