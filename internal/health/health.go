// Package health judges ports: from what is seen of them now and then, wherever they are, to what is wrong with them.
// It says each thing once when it begins and once when it ends, and takes the way of a device into a pod and back for
// neither. It is pure: looks and the time are arguments.
package health

import (
	"fmt"
	"time"
)

// Problem is why pods should not use a device: a word for conditions, Events and metrics.
type Problem string

// The problems. A device has one at a time: Flapping before PortDown and NotConnected before CounterLimit.
const (
	None         Problem = ""
	PortDown     Problem = "PortDown"     // the port is not Active, and once was
	NotConnected Problem = "NotConnected" // the port is not Active, and never was: no cable, most likely
	CounterLimit Problem = "CounterLimit" // a counter rises too fast
	Flapping     Problem = "Flapping"     // the port comes and goes
)

// Problems are all of them.
var Problems = []Problem{PortDown, NotConnected, CounterLimit, Flapping}

// Sample is one look at a device.
type Sample struct {
	// Place is where the device is, and whether its interface is up there: any text that is another one when a move, or
	// the interface's owner, may have changed the state of the port.
	Place string
	// Moving means that an attachment is being made or ended. Nothing is judged meanwhile.
	Moving bool
	Active bool
	// Was means that the port is known to have been Active before the Judge was made.
	Was bool
	// Counters are its counters by name. Nil: they can't be read now.
	Counters map[string]uint64
	// Downs is how often the link went down, as the port has counted it, also between two looks. Nil: it does not say,
	// or others than the wire can take it down.
	Downs *uint64
}

// Verdict is what is wrong with a device. What it says of rates and flaps is from when it was raised, so that it stays
// the same as long as the problem.
type Verdict struct {
	Problem Problem   `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Counter string    `json:"counter,omitempty"` // CounterLimit: which
	Rate    int64     `json:"rate,omitempty"`    // CounterLimit: how much it rose within a minute
	Limit   int64     `json:"limit,omitempty"`   // CounterLimit: how much it may
	Flaps   int       `json:"flaps,omitempty"`   // Flapping: how often the port left Active
}

// String says what is wrong: "the port left Active 3 times within 10m". It is empty for PortDown,
// NotConnected and None: what state the port is in is to be seen.
func (v *Verdict) String() string {
	switch v.Problem {
	case Flapping:
		return fmt.Sprintf("the port left Active %d times within %.0f minutes", v.Flaps, FlapWindow.Minutes())
	case CounterLimit:
		return fmt.Sprintf("%s rose by %d within a minute, more than %d", v.Counter, v.Rate, v.Limit)
	}
	return ""
}
