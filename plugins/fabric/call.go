package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Bounds of one call. Runtimes give up after minutes; a call that can't end by itself blocks the pod for that long.
const (
	lockWait  = 10 * time.Second // for another call that moves the same device
	kernelMax = 30 * time.Second // for the device work of one attachment
	homeWait  = 10 * time.Second // for the kernel to bring devices home from a namespace that is gone
)

// call is one invocation of the plugin: its configuration, and a session. What each verb does with it is in the file of
// the verb: add.go, del.go, check.go, status.go, gc.go.
type call struct {
	*session
	cfg *netconf.Config
	env netconf.Env
	key journal.Key

	held    *journal.Lock        // of the attachment, for ADD and DEL
	claimed *journal.ClaimDevice // what the hook attaches; nil: a runtime has called
	asked   []byte               // the configuration as the runtime has given it
	first   *call                // it attaches another port of an RDMA device, which this one has; nil: it does not
	prior   *result.Result       // if so, what has been attached already
	planned bool                 // nothing is to be done: it is a plan
	doing   string               // completes "could not ..." in an error

	static struct { // what staticAddresses has found
		of    *netconf.Config
		addrs []netip.Prefix
	}
}

func (p Plugin) newCall(cfg *netconf.Config, env netconf.Env) *call {
	return &call{
		session: &session{
			Plugin: p, store: journal.Store{Dir: p.StateDir}, log: slog.New(slog.DiscardHandler),
		},
		cfg: cfg, env: env, asked: cfg.Raw,
		key: journal.Key{ContainerID: env.ContainerID, IfName: env.IfName},
	}
}

// who names the pod that the call is for.
func (c *call) who() string { return (&journal.Entry{Key: c.key, Args: c.env.Args}).Who() }

func (c *call) close() {
	c.letGo()
	c.session.close()
}

// hold takes the lock of the call's attachment: one ADD or DEL of it at a time. It is taken before a device's.
func (c *call) hold() error {
	if c.first != nil && !c.first.held.Held() {
		if err := c.first.hold(); err != nil {
			return err
		}
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	var err error
	c.held, err = c.store.LockAttachment(ctx, c.key)
	return err
}

func (c *call) letGo() {
	c.held.Unlock()
	if c.first != nil {
		c.first.letGo()
	}
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

// podOf opens the namespace of an attachment by what it is, not by where it was: a path is reused, and a namespace
// whose path is gone keeps its devices while a process or a mount holds it. It returns nil when it is gone for good.
func (c *call) podOf(e *journal.Entry) (*apply.Side, error) {
	paths := []string{e.NetnsPath, c.env.Netns}
	if e.Held {
		paths = append(paths, journal.Holds{Store: c.store}.Path(e.Netns))
	}
	for _, path := range paths {
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

// delegate is the IPAM plugin for this call's attachment.
func (c *call) delegate() ipam.Delegate {
	return ipam.Delegate{
		Type: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Asked: c.asked, Env: c.env, Stderr: c.Stderr,
		Policy: c.policyOrDefault(),
	}
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

// bounded is a context for work that must be finished even if the call's own time has run out.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
