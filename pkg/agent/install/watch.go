package install

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// Watch puts the binary back whenever something else is in its place: other installers have a "fabric" too, and a node's image
// may be rolled back. It looks every interval, hashes only what has changed, calls replaced each time it had to act, and ends with
// ctx.
func (t Target) Watch(ctx context.Context, interval time.Duration, replaced func(), log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last os.FileInfo
	for {
		now, err := os.Stat(t.Path())
		if err != nil || last == nil || !os.SameFile(last, now) || !last.ModTime().Equal(now.ModTime()) || last.Mode() != now.Mode() {
			changed, err := t.Install()
			switch {
			case err != nil:
				log.Error("cannot put the CNI binary back", "path", t.Path(), "error", err)
			case changed:
				replaced()
				log.Warn("somebody has changed the CNI binary: installed it again", "path", t.Path())
			}
			if last, err = os.Stat(t.Path()); err != nil {
				last = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
