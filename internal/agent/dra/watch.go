package dra

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// watchEvery is how often the journal is looked at without a sign, and settle how long a sign waits for others: an ADD
// renames several files.
const (
	watchEvery = time.Second
	settle     = 20 * time.Millisecond
)

// watch follows the journal until ctx ends: nothing else tells the agent that ADD has attached a claim's device, or
// that DEL has returned it.
func (d *Driver) watch(ctx context.Context) {
	var signs <-chan fsnotify.Event
	if w, err := fsnotify.NewWatcher(); err != nil {
		d.Log.Warn("cannot watch the journal: it is read every second", "error", err)
	} else {
		defer func() { _ = w.Close() }()
		signs = w.Events
		dir := filepath.Join(d.Store.Dir, "attachments")
		if err := errors.Join(os.MkdirAll(dir, 0o700), w.Add(dir)); err != nil {
			d.Log.Debug("cannot watch the journal: it is read every second", "error", err)
		}
	}
	reports := newReports(d)
	go reports.run(ctx)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-signs:
			wait(ctx, settle)
			drain(signs)
		}
		d.follow(reports)
	}
}

// follow brings the runtime's files and the status of the claims in line with the journal.
func (d *Driver) follow(r *reports) {
	claims, err := d.Prepared.All()
	if err != nil {
		d.Log.Debug("some prepared claims cannot be read", "error", err)
	}
	if len(claims) == 0 {
		r.set(nil)
		return
	}
	entries, err := d.Store.List()
	if err != nil {
		d.Log.Debug("some journal entries cannot be read", "error", err)
	}
	for _, c := range claims {
		d.follow1(c)
	}
	r.set(statuses(d.Node, claims, entries))
}

// follow1 rewrites the runtime's file of a claim whose devices have other files by now: the kernel renumbers them when
// a device returns to the host, and a pod whose sandbox is made again starts its containers after that, without another
// NodePrepareResources. See kernel fact 29 in docs/kernel.md.
func (d *Driver) follow1(c *prepared.Claim) {
	defer d.claims.lock(c.UID)()
	if still, err := d.Prepared.Claim(c.UID); err != nil || still.PodUID != c.PodUID {
		return
	}
	if err := d.refresh(c); err != nil {
		d.Log.Error("cannot keep the CDI spec of a claim as it should be", "error", err)
	}
}

// refresh writes the files of a prepared claim, if one is not there or the runtime's says something else. A device that
// is on its way has fewer device files for a moment, and keeps what it had.
func (d *Driver) refresh(c *prepared.Claim) error {
	files := make([][]string, len(c.Devices))
	n := 0
	for i := range c.Devices {
		var known, extra []string
		if n, _, ok := d.device(c.Devices[i].Name); ok {
			known, extra = n.Files, n.Extra
		}
		now, err := d.Files(context.Background(), c.Devices[i].Address, false, known)
		if err != nil {
			now = nil // the hardware is gone: what there was is as good as anything
		}
		files[i] = survey.AllowedFiles(now, extra)
		n += len(files[i])
	}
	if err := d.Prepared.InitMetadata(c); err != nil {
		return err
	}
	list := d.requests(c, files)
	had, there := d.CDI.Files(c.UID)
	if there && (n < had || d.CDI.Same(c.UID, list)) {
		return nil
	}
	return d.CDI.Write(c.UID, list)
}

func wait(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}

func drain(signs <-chan fsnotify.Event) {
	for {
		select {
		case <-signs:
		default:
			return
		}
	}
}

// entryOf is the attachment of a device of a claim: ADD says of each which claim has given it the device.
func entryOf(c *prepared.Claim, n *prepared.Device, entries []*journal.Entry) *journal.Entry {
	for _, e := range entries {
		g := e.FromClaim
		if e.Attached && g != nil && g.ClaimUID == c.UID && g.Request == n.Request && g.Device == n.Name &&
			g.ShareID == n.ShareID {
			return e
		}
	}
	return nil
}
