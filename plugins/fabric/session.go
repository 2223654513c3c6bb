package fabric

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
)

// session is what a call works with, whatever its configuration says: the node's two namespaces, journal, policy and
// log.
type session struct {
	Plugin
	store journal.Store
	log   *slog.Logger
	host  *apply.Side
	pod   *apply.Side

	rules   *policy.Policy
	closers []func() error
}

func (s *session) close() {
	for _, f := range s.closers {
		_ = f()
	}
}

// openHost opens the namespace the plugin was started in.
func (s *session) openHost() error {
	if s.host != nil {
		return nil
	}
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	side := &apply.Side{NS: ns, Reader: inventory.Reader{Sys: inventory.Sys("/sys")}}
	if err := s.dial(side); err != nil {
		return err
	}
	s.host = side
	return nil
}

func (s *session) openSide(path string) (*apply.Side, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	return s.enter(ns)
}

func (s *session) enter(ns *netns.NS) (*apply.Side, error) {
	side := &apply.Side{NS: ns, Reader: inventory.Reader{NS: ns}}
	return side, ns.Do(func() error { return s.dial(side) })
}

// dial opens the netlink connections in the calling thread's namespace.
func (s *session) dial(side *apply.Side) (err error) {
	s.closers = append(s.closers, side.NS.Close)
	if side.Link, err = link.Dial(); err != nil {
		return err
	}
	s.closers = append(s.closers, side.Link.Close)
	side.RDMA, err = rdma.Dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		side.RDMA = nil
		return nil
	}
	if err == nil {
		s.closers = append(s.closers, side.RDMA.Close)
	}
	return err
}

// runner carries steps out between the host and a pod, which is nil when it is gone.
func (s *session) runner(pod *apply.Side) apply.Runner {
	return apply.Runner{
		Host: s.host, Pod: pod, Proc: s.Proc, Log: s.log,
		EvictName: s.names().evictName, EvictRDMA: s.names().evictRDMA, Renumbering: s.renumbering,
	}
}

// renumberWait bounds the wait for other calls that move RDMA devices or rebind drivers: one at a time.
const renumberWait = 20 * time.Second

// renumberLock is the name under which numbers of character devices are given out. No device is named so.
const renumberLock = "numbers"

// renumbering is apply.Runner's Renumbering.
func (s *session) renumbering(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, renumberWait)
	defer cancel()
	lock, err := s.store.Lock(ctx, renumberLock)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

// alive reports whether the pod of an attachment exists, or may exist: a device is taken only from a pod that is known
// to be dead.
func (s *session) alive(e *journal.Entry) bool {
	live, err := e.Alive(journal.Liveness{Proc: s.Proc})
	return live || err != nil
}

// policy is the node's policy, read once.
func (s *session) policy() (*policy.Policy, error) {
	if s.rules != nil {
		return s.rules, nil
	}
	p, err := policy.Load(s.Policy, s.StateDir)
	if err != nil {
		return nil, err
	}
	s.rules = p
	return p, nil
}

// policyOrDefault is the node's policy, or that without a file if it can't be read: ADD has been refused by then, and
// DEL goes on.
func (s *session) policyOrDefault() *policy.Policy {
	p, err := s.policy()
	if err != nil {
		s.log.Warn("the node policy can't be read", "reason", err)
		return policy.Default(s.StateDir)
	}
	return p
}

func (s *session) bootID() string { return journal.BootID(s.Proc) }

// enroll keeps an uninstall from removing anything until the call ends. An ADD that comes while one is at work, or has
// waited for it, is refused: there would be no plugin to return its device. Other verbs go on in any case.
func (s *session) enroll() error {
	s.store.Private()
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := s.store.LockCall(ctx)
	if err == nil {
		s.closers = append(s.closers, func() error { lock.Unlock(); return nil })
	}
	if s.Command != "ADD" {
		if err != nil {
			s.log.Warn("an uninstall does not wait for this call", "reason", err)
		}
		return nil
	}
	if err != nil && !errors.Is(err, journal.ErrBusy) {
		return err
	}
	return s.installed()
}

// installed refuses an ADD whose plugin is being uninstalled, or has been since the process began.
func (s *session) installed() error {
	away := s.store.Away()
	exe, _ := os.Readlink("/proc/self/exe")
	if path, deleted := strings.CutSuffix(exe, " (deleted)"); deleted { // or replaced by another version
		_, err := os.Lstat(path)
		away = away || errors.Is(err, fs.ErrNotExist)
	}
	if !away {
		return nil
	}
	return &failure{code: codeTryAgain, err: errors.New("the plugin is being uninstalled from this node"),
		hint: "install it again, or let the pod run on another node"}
}
