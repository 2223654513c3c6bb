package install

import (
	"context"
	"log/slog"
	"time"
)

// Watch puts the binary back whenever something else is in its place: other installers have a "fabric" too, and a
// node's image may be rolled back. It looks every interval, calls replaced each time it had to act, and ends with ctx.
func (t Target) Watch(ctx context.Context, interval time.Duration, replaced func(), log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for first := true; ; first = false {
		// The first time also removes what an earlier installer left behind.
		if same, err := t.Same(); first || err != nil || !same {
			changed, err := t.Install()
			switch {
			case err != nil:
				log.Error("cannot put the CNI binary back", "path", t.Path(), "error", err)
			case changed:
				replaced()
				if first {
					log.Info("installed the CNI binary", "path", t.Path())
				} else {
					log.Warn("the CNI binary had been changed: installed it again", "path", t.Path())
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
