// Package walk is a random walk over the life of attachments: what runtimes, pods, kills and hardware may do, in any
// order. It knows neither the plugin nor the kernel. A World carries the operations out: in network namespaces of this
// machine (plugins/fabric) and in the lab (integration/lab/guest).
package walk

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations.
const (
	Add      Kind = "add"      // ADD of a device for a pod
	Del      Kind = "del"      // DEL of the oldest attachment of pod and device, or else of the device
	Check    Kind = "check"    // CHECK
	GC       Kind = "gc"       // GC with every attachment of living pods as valid
	EndPod   Kind = "endpod"   // the pod's network namespace is deleted, and the next pod gets its path
	Unplug   Kind = "unplug"   // the hardware leaves, wherever the device is
	Plug     Kind = "plug"     // the hardware is back, if it had left
	Mischief Kind = "mischief" // the pod does something to the device
)

// Op is one operation. What it does depends on what came before, so a walk is the list of its operations.
type Op struct {
	Kind   Kind
	Pod    int
	Device int
	What   string // of Mischief: its name; of EndPod "held": a process stays in the namespace
	Fault  string // "kill" or "error": of a call, at a point that At chooses; "": none
	At     int    // 0 to 999: how far the call gets
	Beside bool   // starts together with the operation before it
}

// calls says whether the operation executes the plugin.
func (o Op) calls() bool { return o.Kind == Add || o.Kind == Del || o.Kind == Check || o.Kind == GC }

// String is a line of a script: Parse reads it.
func (o Op) String() string {
	s := fmt.Sprintf("%s %d %d", o.Kind, o.Pod, o.Device)
	if o.What != "" {
		s += " " + o.What
	}
	if o.Fault != "" {
		s += fmt.Sprintf(" %s %d", o.Fault, o.At)
	}
	if o.Beside {
		s += " beside"
	}
	return s
}

// Script writes operations as lines.
func Script(ops []Op) string {
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// Parse reads a script.
func Parse(script string) ([]Op, error) {
	var ops []Op
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		o, err := parse(f)
		if err != nil {
			return nil, fmt.Errorf("operation %q: %w", strings.TrimSpace(line), err)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

func parse(f []string) (o Op, err error) {
	if len(f) < 3 {
		return o, fmt.Errorf("want a kind, a pod and a device")
	}
	o.Kind = Kind(f[0])
	if o.Pod, err = strconv.Atoi(f[1]); err != nil {
		return o, err
	}
	if o.Device, err = strconv.Atoi(f[2]); err != nil {
		return o, err
	}
	for f = f[3:]; len(f) > 0; f = f[1:] {
		switch {
		case f[0] == "beside":
			o.Beside = true
		case (f[0] == "kill" || f[0] == "error") && len(f) > 1:
			o.Fault = f[0]
			if o.At, err = strconv.Atoi(f[1]); err != nil {
				return o, err
			}
			f = f[1:]
		default:
			o.What = f[0]
		}
	}
	return o, nil
}

// weights are how often each kind comes, in this order: a walk with a seed stays the same.
var weights = []struct {
	kind   Kind
	weight int
}{{Add, 32}, {Del, 26}, {Check, 5}, {GC, 3}, {EndPod, 3}, {Unplug, 2}, {Plug, 10}, {Mischief, 19}}

// mostBeside is how many calls run side by side.
const mostBeside = 4

// operations are those of the round with this seed.
func (w Walk) operations(seed uint64, n int) []Op {
	r := rand.New(rand.NewPCG(seed, 0))
	ops := make([]Op, 0, n)
	group := 0
	for len(ops) < n {
		o := w.next(r)
		if o.Beside = o.calls() && o.Kind != GC && group > 0 && group < mostBeside && r.IntN(3) == 0 &&
			!busy(ops[len(ops)-group:], o); o.Beside {
			group++
		} else {
			group = 0
			if o.calls() && o.Kind != GC {
				group = 1
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// busy says that a call of the group is about the same attachment: a runtime makes one call of an attachment at a time.
func busy(group []Op, o Op) bool {
	for _, g := range group {
		if g.Pod == o.Pod && g.Device == o.Device {
			return true
		}
	}
	return false
}

func (w Walk) next(r *rand.Rand) Op {
	total := 0
	for _, k := range weights {
		total += k.weight
	}
	n := r.IntN(total)
	o := Op{Pod: r.IntN(w.Pods), Device: r.IntN(w.Devices)}
	for _, k := range weights {
		if n -= k.weight; n < 0 {
			o.Kind = k.kind
			break
		}
	}
	// Drawn whatever the kind is: a list of mischief that grows changes what is done, not who does it.
	fault, at, what := r.IntN(12), r.IntN(1000), r.IntN(1<<20)
	if w.Fixed {
		switch o.Kind {
		case Unplug:
			o.Kind = Del
		case Plug:
			o.Kind = Add
		}
	}
	switch {
	case o.Kind == Mischief:
		if len(w.Mischief) == 0 {
			o.Kind = Check
			break
		}
		o.What = w.Mischief[what%len(w.Mischief)]
	case o.Kind == EndPod && what%3 == 0:
		o.What = "held"
	case o.Kind == Add || o.Kind == Del || o.Kind == GC:
		if fault < 5 {
			o.Fault, o.At = "kill", at
			if fault == 0 {
				o.Fault = "error"
			}
		}
	}
	return o
}
