package condition

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// Reporter makes log lines, Events, the readiness of the agent and its metric from findings. Nothing else in the agent
// does.
type Reporter struct {
	Log *slog.Logger
	// Event makes an Event on the Node. Nil: there is no API server.
	Event func(warning bool, reason, message string)
	// Ready is called with each report: whether pods can be served. It may be nil.
	Ready func(ready bool)

	mu       sync.Mutex
	reported map[key]Finding
	looked   bool     // there was a report
	notReady []string // messages of the findings that make the agent not ready
}

// Known makes the Reporter take a finding for reported: an earlier agent on this node has done that.
func (r *Reporter) Known(of Reason, object string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported = map[key]Finding{}
	}
	f := Finding{Object: object, Reason: of, Message: object + ": " + of.Name}
	r.reported[f.key()] = f
}

// Report compares the findings with those of the last report. What is new or has another message becomes a log line
// and, if its reason has Event set, an Event; what has been resolved becomes a log line, and of a device an Event.
func (r *Reporter) Report(s *Set) {
	now := map[key]Finding{}
	var notReady []string
	for _, f := range s.list {
		now[f.key()] = f
		if f.Reason.Gate {
			notReady = append(notReady, f.Message)
		}
	}
	if r.Ready != nil { // before the probe and the log report it: the metric is not to be behind them
		r.Ready(len(notReady) == 0)
	}
	r.mu.Lock()
	before := r.reported
	r.reported, r.notReady, r.looked = now, notReady, true
	r.mu.Unlock()

	for _, f := range s.list {
		was, there := before[f.key()]
		if !there || was.Message != f.Message && !f.Reason.Once {
			r.changed(f)
		}
	}
	for k, f := range before {
		if _, still := now[k]; !still {
			r.resolved(f, s)
		}
	}
}

func (r *Reporter) changed(f Finding) {
	level := slog.LevelInfo
	if f.Reason.Event {
		level = slog.LevelWarn
		if r.Event != nil {
			r.Event(true, f.Reason.Name, f.Message)
		}
	}
	r.Log.Log(context.Background(), level, f.Message, attributes(f)...)
}

// resolved says that a finding is over. A device is healthy again only when it has no other one.
func (r *Reporter) resolved(f Finding, now *Set) {
	r.Log.Info("resolved: "+f.Message, attributes(f)...)
	other := func(o Finding) bool { return o.Object == f.Object }
	if r.Event != nil && f.Reason.Recovered != "" && !slices.ContainsFunc(now.list, other) {
		r.Event(false, f.Reason.Recovered, "resolved: "+f.Message)
	}
}

func attributes(f Finding) []any {
	out := []any{"condition", f.Reason.condition(), "reason", f.Reason.Name}
	if f.Object != Node {
		out = append(out, "object", f.Object)
	}
	return out
}

// Happened reports something that is over at once, and so is no finding. The log line is the caller's: it has the
// details.
func (r *Reporter) Happened(reason, message string) {
	if r.Event != nil {
		r.Event(true, reason, message)
	}
}

// NotReady returns why pods can't be served: one message per cause, none if they can.
func (r *Reporter) NotReady() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.looked {
		return []string{"the first look at the node has not finished"}
	}
	return r.notReady
}
