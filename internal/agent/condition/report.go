package condition

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// Reporter makes log lines, Events, the readiness of the agent and its metric from conditions. Nothing else in the
// agent does.
type Reporter struct {
	Log *slog.Logger
	// Event makes an Event on the Node. Nil: there is no API server.
	Event func(warning bool, reason, message string)
	// Ready is called with each report: whether pods can be served. It may be nil.
	Ready func(ready bool)

	mu       sync.Mutex
	reported map[key]Condition
	looked   bool     // there was a report
	notReady []string // messages of the conditions that make the agent not ready
}

// Known makes the Reporter take a condition for reported: an earlier agent on this node has done that.
func (r *Reporter) Known(t Type, object string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported = map[key]Condition{}
	}
	c := Condition{Object: object, Type: t, Reason: t.Reason, Message: object + ": " + t.Reason}
	r.reported[c.key()] = c
}

// Report compares the conditions with those of the last report. What is new or has another message becomes a log line
// and, if its type has Event set, an Event; what has been resolved becomes a log line, and of a device an Event.
func (r *Reporter) Report(s *Set) {
	now := map[key]Condition{}
	var notReady []string
	for _, c := range s.list {
		now[c.key()] = c
		if c.Type.Gate {
			notReady = append(notReady, c.Message)
		}
	}
	if r.Ready != nil { // before the probe and the log report it: the metric is not to be behind them
		r.Ready(len(notReady) == 0)
	}
	r.mu.Lock()
	before := r.reported
	r.reported, r.notReady, r.looked = now, notReady, true
	r.mu.Unlock()

	for _, c := range s.list {
		was, there := before[c.key()]
		if !there || was.Message != c.Message && !c.Type.Once {
			r.changed(c)
		}
	}
	for k, c := range before {
		if _, still := now[k]; !still {
			r.resolved(c, s)
		}
	}
}

func (r *Reporter) changed(c Condition) {
	level := slog.LevelInfo
	if c.Type.Event {
		level = slog.LevelWarn
		if r.Event != nil {
			r.Event(true, c.Reason, c.Message)
		}
	}
	r.Log.Log(context.Background(), level, c.Message, attributes(c)...)
}

// resolved says that a condition is over. A device is healthy again only when it has no other one.
func (r *Reporter) resolved(c Condition, now *Set) {
	r.Log.Info("resolved: "+c.Message, attributes(c)...)
	other := func(o Condition) bool { return o.Object == c.Object }
	if r.Event != nil && c.Type.Recovered != "" && !slices.ContainsFunc(now.list, other) {
		r.Event(false, c.Type.Recovered, "resolved: "+c.Message)
	}
}

func attributes(c Condition) []any {
	out := []any{"condition", c.Type.Name, "status", string(c.Status), "reason", c.Reason}
	if c.Object != Node {
		out = append(out, "object", c.Object)
	}
	return out
}

// Happened reports something that is over at once, and so is no condition. The log line is the caller's: it has the
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
