package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Bounds of one call. Runtimes give up after minutes; a call that can't end by itself blocks the pod for that long.
const (
	lockWait  = 10 * time.Second // for another call that moves the same device
	kernelMax = 30 * time.Second // for the device work of one attachment
	homeWait  = 10 * time.Second // for the kernel to bring devices home from a namespace that is gone
)

// call is one invocation of the plugin: its configuration and what it has opened. What each verb does with it is in the
// file of the verb: add.go, del.go, check.go, status.go, gc.go.
type call struct {
	Plugin
	cfg   *netconf.Config
	env   netconf.Env
	key   journal.Key
	store journal.Store
	log   *slog.Logger

	held    *journal.Lock // of the attachment, for ADD and DEL
	asked   []byte        // the configuration as the runtime has given it
	planned bool          // nothing is to be done: it is a plan
	doing   string        // completes "could not ..." in an error
	host    *apply.Side
	pod     *apply.Side
	rules   *policy.Policy
	closers []func() error
}

func (p Plugin) newCall(cfg *netconf.Config, env netconf.Env) *call {
	return &call{
		Plugin: p, cfg: cfg, env: env,
		asked: cfg.Raw,
		key:   journal.Key{ContainerID: env.ContainerID, IfName: env.IfName},
		store: journal.Store{Dir: p.StateDir},
		log:   slog.New(slog.DiscardHandler),
	}
}

// who names the pod that the call is for.
func (c *call) who() string { return (&journal.Entry{Key: c.key, Args: c.env.Args}).Who() }

func (c *call) close() {
	c.letGo()
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
	side := &apply.Side{NS: ns, Reader: inventory.Reader{NS: ns}}
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
	ns, err := netns.Find(c.Proc, e.Netns)
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
func (c *call) alive(e *journal.Entry) bool {
	live, err := e.Alive(journal.Witness{Proc: c.Proc})
	return live || err != nil
}

// policy is the node's policy, read once.
func (c *call) policy() (*policy.Policy, error) {
	if c.rules != nil {
		return c.rules, nil
	}
	p, err := policy.Load(c.Policy, c.StateDir)
	if err != nil {
		return nil, err
	}
	c.rules = p
	return p, nil
}

// delegate is the IPAM plugin for this call's attachment.
func (c *call) delegate() ipam.Delegate {
	return ipam.Delegate{
		Type: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Asked: c.asked, Env: c.env, Stderr: c.Stderr,
		Policy: c.policyOrDefault(),
	}
}

// policyOrDefault is the node's policy, or that without a file if it can't be read: ADD has been refused by then, and
// DEL goes on.
func (c *call) policyOrDefault() *policy.Policy {
	p, err := c.policy()
	if err != nil {
		c.log.Warn("the node policy can't be read", "reason", err)
		return policy.Default(c.StateDir)
	}
	return p
}

// delegateOf is the IPAM plugin of an attachment as its ADD had it.
func (c *call) delegateOf(e *journal.Entry) ipam.Delegate {
	path := c.env.Path
	if path == "" {
		path = e.Path
	}
	return ipam.Delegate{
		Type: e.IPAM, Conf: e.Conf, Stderr: c.Stderr, Policy: c.policyOrDefault(),
		Env: netconf.Env{
			ContainerID: e.ContainerID, IfName: e.IfName, Netns: e.NetnsPath, Args: e.Args, Path: path,
		},
	}
}

func (c *call) bootID() string { return journal.BootID(c.Proc) }

func elapsed(e *journal.Entry) uint32 {
	return uint32(max(0, min(e.Age()/time.Second, 1<<31)))
}

// bounded is a context for work that must be finished even if the call's own time has run out.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
