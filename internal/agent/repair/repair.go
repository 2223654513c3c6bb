// Package repair gives back what pods have left: for each journal entry whose network namespace is gone, the plugin is
// called with the DEL that it missed. Runtimes forget one when Multus is absent, or when they and the node die
// together.
package repair

import (
	"context"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Loop looks at the journal.
type Loop struct {
	Store  journal.Store
	Plugin string // path of the installed CNI binary
	// HostProc is a /proc of the host, in a container; empty on the host itself. It shows the processes of pods (a
	// namespace whose path is gone lives on with a process), and the way to the host's files.
	HostProc string
	// Sandboxes are the container runtime's, by container id: true for those that are ready. Nil, or an error: only the
	// namespaces tell who lives.
	Sandboxes func(context.Context) (map[string]bool, error)
	// Grace is how long an attachment has to have been dead before it is touched: the runtime's own DEL is on its way
	// while a pod is being deleted, and knows more.
	Grace time.Duration
	// CallTimeout bounds one DEL. The plugin waits 10 s for a lock and 10 s for the kernel, and IPAM takes its time.
	CallTimeout time.Duration
	Log         *slog.Logger
	Now         func() time.Time

	// Done is told of every attempt. Nil: nobody is.
	Done func(e *journal.Entry, err error)

	dead    map[journal.Key]time.Time // since when
	runtime answer
}

// answer is what the container runtime did the last time.
type answer int

const (
	answers answer = iota + 1
	mute
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

// Once looks at every entry, and returns those whose devices it has brought home.
func (l *Loop) Once(ctx context.Context) []*journal.Entry {
	entries, err := l.Store.List()
	if err != nil {
		l.Log.Error(
			"journal has entries that cannot be read: their devices come home with the pod's own DEL",
			"error",
			err,
		)
	}
	ready := map[string]bool{}
	if len(entries) > 0 {
		ready = l.sandboxes(ctx)
	}
	dead := map[journal.Key]time.Time{}
	var out []*journal.Entry
	for _, e := range entries {
		live, err := e.Alive(journal.Witness{Proc: l.HostProc, Ready: ready})
		if err != nil {
			l.Log.Error("pod may be alive: nothing is taken from it", "attachment", e.String(), "error", err)
		}
		if live || err != nil {
			continue
		}
		since, known := l.dead[e.Key]
		if !known {
			since = l.Now()
		}
		dead[e.Key] = since
		if l.Now().Sub(since) < l.Grace || l.Now().Sub(e.Created) < l.Grace {
			continue
		}
		err = l.giveBack(ctx, e)
		if l.Done != nil {
			l.Done(e, err)
		}
		if err != nil {
			l.Log.Error("cannot bring a device home", "attachment", e.String(), "device", e.Claim, "error", err)
			continue
		}
		delete(dead, e.Key)
		out = append(out, e)
		l.Log.Warn(
			"brought home what a dead pod had left",
			"attachment",
			e.String(),
			"network",
			e.Network,
			"device",
			e.Claim,
		)
	}
	l.dead = dead
	return out
}

// sandboxes asks the runtime. Whether it answers is told the first time, and when it changes.
func (l *Loop) sandboxes(ctx context.Context) map[string]bool {
	if l.Sandboxes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list, err := l.Sandboxes(ctx)
	switch {
	case err != nil && l.runtime != mute:
		l.runtime = mute
		l.Log.Warn("container runtime does not answer: only the network namespaces tell which pods live", "error", err)
	case err == nil && l.runtime != answers:
		l.runtime = answers
		l.Log.Info("container runtime tells which pods live", "sandboxes", len(list))
	}
	return list
}

// giveBack calls the plugin where it finds what it finds when the runtime calls it.
func (l *Loop) giveBack(ctx context.Context, e *journal.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, l.CallTimeout)
	defer cancel()
	return inHost(l.HostProc, func() error { return Del(ctx, l.Plugin, e) })
}
