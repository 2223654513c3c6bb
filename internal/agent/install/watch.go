package install

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// Watch puts the binary back whenever something else is in its place: other installers have a "fabric" too, and a
// node's image may be rolled back. It looks every interval, hashes only what has changed, calls replaced each time it
// had to act, and ends with ctx.
func (t Target) Watch(ctx context.Context, interval time.Duration, replaced func(), log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var good os.FileInfo // of the binary when it was last seen to be ours; nil: look at it again
	for {
		now, err := os.Stat(t.Path())
		if err != nil || good == nil || !os.SameFile(good, now) || !good.ModTime().Equal(now.ModTime()) ||
			good.Size() != now.Size() ||
			good.Mode() != now.Mode() {
			changed, ierr := t.Install()
			switch {
			case ierr != nil:
				log.Error("cannot put the CNI binary back", "path", t.Path(), "error", ierr)
			case changed:
				replaced()
				log.Warn("somebody has changed the CNI binary: installed it again", "path", t.Path())
			}
			// What was looked at before it was compared, so that nothing written meanwhile is taken for ours. A file
			// that was written to in this moment may be again without a new time.
			good = nil
			if err == nil && ierr == nil && !changed && time.Since(now.ModTime()) > time.Second {
				good = now
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
