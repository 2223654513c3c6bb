package agent

import (
	"log/slog"
	"time"
)

// outcome logs how something that is done again and again went: an error when it is another one than the last time, and
// that it is over. A look at the node every ten seconds would else fill the log while the API server is away.
type outcome struct {
	what  string
	last  string
	since time.Time
}

func (o *outcome) note(log *slog.Logger, now time.Time, err error) {
	switch {
	case err == nil && o.last == "":
	case err == nil:
		log.Info("resolved: cannot "+o.what, "after", now.Sub(o.since).Round(time.Second).String())
		o.last = ""
	case o.last == "":
		o.since = now
		fallthrough
	default:
		if text := err.Error(); text != o.last {
			log.Error("cannot "+o.what, "error", err)
			o.last = text
		}
	}
}
