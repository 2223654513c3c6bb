// Package repair reclaims devices that dead pods left behind: for each journal entry whose network namespace is gone,
// it calls the plugin with the DEL that never came. A DEL is lost when Multus is absent, or when runtime and node fail
// together.
package repair

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/foreign"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Loop looks for dead pods in the journal.
type Loop struct {
	Store  journal.Store
	Plugin string // path of the installed CNI binary
	// HostProc is where the host's /proc is mounted, if the program runs in a container. It shows the processes of
	// pods (a namespace whose path is gone exists as long as a process is in it), and is the way to the host's files.
	HostProc string
	// Sandboxes returns the container runtime's sandboxes by container id: true for those that are ready. Nil, or an
	// error: only the network namespaces count.
	Sandboxes func(context.Context) (map[string]bool, error)
	// Grace is how long a pod must have been dead: while a pod is being deleted, the runtime's own DEL is on its way,
	// with the pod's namespace.
	Grace time.Duration
	// CallTimeout bounds one DEL. The plugin waits 10 s for a lock and 10 s for the kernel, and IPAM takes its time.
	CallTimeout time.Duration
	Log         *slog.Logger
	Now         func() time.Time

	// Done is called after each attempt. It may be nil.
	Done func(e *journal.Entry, err error)

	dead    map[string]time.Time // by attachment, since when
	told    []string             // what is foreign, and logged
	runtime answer
}

// answer is whether the container runtime answered the last time; zero: it was not asked yet.
type answer int

const (
	answers answer = iota + 1
	silent
)

// Run looks at once and then every interval, until ctx ends.
func (l *Loop) Run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		l.Once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Once looks at every entry, and returns those whose devices it has reclaimed.
func (l *Loop) Once(ctx context.Context) (reclaimed []*journal.Entry) {
	entries, err := l.Store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		l.Log.Error("the journal cannot be read", "error", err)
	}
	l.tell(foreign.In(l.Store.Dir))
	ready := map[string]bool{}
	if len(entries) > 0 || (journal.Holds{Store: l.Store}).Any() {
		if err := l.ownNames(ctx); err != nil {
			l.Log.Error("cannot look for devices on the host that pods have", "error", err)
		}
		ready = l.sandboxes(ctx)
	}
	dead := map[string]time.Time{}
	for _, e := range entries {
		alive, err := e.Alive(journal.Liveness{Proc: l.HostProc, Ready: ready})
		if err != nil {
			l.Log.Error("pod may be alive: nothing is taken from it", "of", e.Who(), "interface", e.IfName,
				"error", err)
		}
		if alive || err != nil {
			continue
		}
		// Not when it was created, by a clock that may have been set since: this one, and no later one of its name.
		this := e.String() + " " + cmp.Or(e.Nonce, e.Created.String())
		since, known := l.dead[this]
		if !known {
			since = l.Now()
		}
		if l.Now().Sub(since) < l.Grace || !l.reclaim(ctx, e) {
			dead[this] = since
			continue
		}
		reclaimed = append(reclaimed, e)
	}
	l.dead = dead
	return reclaimed
}

// tell logs once what is foreign or damaged in the state directory: only a DEL of its own pod touches it.
func (l *Loop) tell(now []string) {
	for _, what := range now {
		if !slices.Contains(l.told, what) {
			l.Log.Error("foreign or damaged in the state directory: it is left alone and costs only itself; "+
				"fabricctl doctor host names it too", "what", quote.Terminal(what))
		}
	}
	l.told = now
}

// reclaim returns the device of a dead pod to the host, and reports whether that worked. It calls the plugin in the
// host's mount namespace.
func (l *Loop) reclaim(ctx context.Context, e *journal.Entry) bool {
	err := l.Return(ctx, e)
	if l.Done != nil {
		l.Done(e, err)
	}
	if err != nil {
		l.Log.Error("cannot reclaim a device", "of", e.Who(), "interface", e.IfName, "device", e.DeviceKey,
			"trace", e.Trace, "error", err)
		return false
	}
	l.Log.Warn("reclaimed a device that a dead pod left behind", "of", e.Who(), "interface", e.IfName, "network",
		e.Network, "device", e.DeviceKey, "trace", e.Trace)
	return true
}

// Return calls the plugin with the DEL of an attachment, in the host's mount namespace.
func (l *Loop) Return(ctx context.Context, e *journal.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, l.CallTimeout)
	defer cancel()
	err := inHost(l.HostProc, func() error { return Del(ctx, l.Plugin, e) })
	if err == nil {
		err = Kept(l.Store, e)
	}
	return err
}

// sandboxes asks the container runtime. Whether it answers is logged the first time, and when it changes.
func (l *Loop) sandboxes(ctx context.Context) map[string]bool {
	if l.Sandboxes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list, err := l.Sandboxes(ctx)
	switch {
	case err != nil && l.runtime != silent:
		l.runtime = silent
		l.Log.Warn("container runtime does not answer: a pod counts as alive only while its network namespace exists",
			"error", err)
	case err == nil && l.runtime != answers:
		l.runtime = answers
		l.Log.Info("container runtime answers: a pod also counts as alive while its sandbox is ready",
			"sandboxes", len(list))
	}
	return list
}
