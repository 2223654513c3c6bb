package walk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Attachment is one interface of one pod, as a runtime has it.
type Attachment struct {
	Pod, Device int
	Life        int // how often the pod at this path had died before
}

// ID is the container id.
func (a Attachment) ID() string { return fmt.Sprintf("pod%d-%d", a.Pod, a.Life) }

// IfName is the interface's name in the pod.
func (a Attachment) IfName() string { return fmt.Sprintf("net%d", a.Device) }

// Call is one call of the plugin.
type Call struct {
	Verb  string // ADD, DEL, CHECK, GC
	Of    Attachment
	Netns bool // the call gets the path of the pod's namespace, also if another pod has it by now
	Fault string
	At    int
	Valid []Attachment // of GC
}

// Answer is what came of a call.
type Answer struct {
	OK     bool
	Killed bool
	Text   string // the error
}

// World carries out what a walk does. An error means that the world itself does not work.
type World interface {
	Call(c Call) (Answer, error) // may run beside others
	Mischief(pod, device int, what string) error
	EndPod(pod int, held bool) error
	Unplug(device int) error
	Plug(device int) error
	// Home ends a round, with every DEL done: processes that held namespaces end, hardware that has left is set up
	// anew. It returns how the host differs from what it was at the start, "" if it does not.
	Home() (difference string, err error)
}

// Walk is a walk with what it may do.
type Walk struct {
	Seed          uint64
	Ops           int // in all rounds
	Round         int // operations until everything is returned and compared; 0: 60
	Pods, Devices int
	Mischief      []string
	Fixed         bool // no hardware leaves
	Dies          bool // a device ends with the network namespace it is in, as virtual interfaces do
}

// Stats counts what a walk did.
type Stats struct {
	Ops, Rounds, Calls, Killed, Failed int
	By                                 map[Kind]int
}

func (s Stats) String() string {
	return fmt.Sprintf("%d operations in %d rounds, %d calls of the plugin, %d of them killed and %d with an error: %v",
		s.Ops, s.Rounds, s.Calls, s.Killed, s.Failed, s.By)
}

// RoundError is a walk that went wrong: the operations of its last round, from the host as it was at the start.
type RoundError struct {
	Seed    uint64 // of the round
	Round   int    // how many operations it was to have
	Ops     []Op   // done
	Log     []string
	Problem string
}

func (f *RoundError) Error() string {
	return fmt.Sprintf("%s\nagain: FABRIC_WALK_SEED=%d FABRIC_WALK_OPS=%d, or FABRIC_WALK_SCRIPT=FILE with:"+
		"\n%swhat happened:\n%s", f.Problem, f.Seed, f.Round, Script(f.Ops), strings.Join(f.Log, "\n"))
}

// Run walks. Round n of seed s is round 0 of seed s+n: a round that failed is repeated alone. The error is a
// *RoundError, or that of a world that does not work.
func (w Walk) Run(world World) (Stats, error) {
	if w.Round == 0 {
		w.Round = 60
	}
	s := Stats{By: map[Kind]int{}}
	for seed := w.Seed; s.Ops < w.Ops; seed++ {
		n := min(w.Round, w.Ops-s.Ops)
		if err := w.run(world, w.operations(seed, n), &s); err != nil {
			var f *RoundError
			if errors.As(err, &f) {
				f.Seed, f.Round = seed, n
			}
			return s, err
		}
	}
	return s, nil
}

// Replay does these operations as one round.
func (w Walk) Replay(world World, ops []Op) (Stats, error) {
	s := Stats{By: map[Kind]int{}}
	return s, w.run(world, ops, &s)
}

func (w Walk) run(world World, ops []Op, s *Stats) error {
	m := newModel(w)
	var log []string
	fail := func(done int, format string, args ...any) error {
		return &RoundError{Ops: ops[:done], Log: log, Problem: fmt.Sprintf(format, args...)}
	}
	for i := 0; i < len(ops); {
		end := i + 1
		for end < len(ops) && ops[end].Beside {
			end++
		}
		lines, problem, err := m.do(world, ops[i:end], s)
		log = append(log, lines...)
		if err != nil {
			return fmt.Errorf("operation %s: %w", ops[i], err)
		}
		if problem != "" {
			return fail(end, "%s", problem)
		}
		i = end
	}
	for _, a := range slices.Clone(m.owed) {
		lines, problem, err := m.finish(world, a, s)
		log = append(log, lines...)
		if err != nil {
			return err
		}
		if problem != "" {
			return fail(len(ops), "%s", problem)
		}
	}
	s.Rounds++
	switch diff, err := world.Home(); {
	case err != nil:
		return err
	case diff != "":
		return fail(len(ops), "after every DEL the host is not what it was:\n%s", diff)
	}
	return nil
}

// do carries out operations that start together.
func (m *model) do(world World, group []Op, s *Stats) (log []string, problem string, err error) {
	for _, o := range group {
		s.Ops++
		s.By[o.Kind]++
	}
	if !group[0].calls() {
		return m.doOther(world, group[0])
	}
	calls, answers, errs := make([]Call, len(group)), make([]Answer, len(group)), make([]error, len(group))
	for i, o := range group {
		calls[i] = m.call(o)
	}
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() { answers[i], errs[i] = world.Call(calls[i]) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, "", err
	}
	for i, c := range calls {
		s.count(answers[i])
		alone := !slices.ContainsFunc(group, func(o Op) bool { return o != group[i] && o.Device == group[i].Device })
		want := m.answered(c, answers[i], alone && c.Fault == "")
		log = append(log, describe(c, answers[i]))
		if want != "" && problem == "" {
			problem = fmt.Sprintf("%s, but %s", describe(c, answers[i]), want)
		}
	}
	m.overtaken(calls)
	if problem == "" {
		problem = twice(calls, answers)
	}
	return log, problem, nil
}

func (s *Stats) count(a Answer) {
	s.Calls++
	switch {
	case a.Killed:
		s.Killed++
	case !a.OK:
		s.Failed++
	}
}

func describe(c Call, a Answer) string {
	s := fmt.Sprintf("%s of %s %s", c.Verb, c.Of.ID(), c.Of.IfName())
	if c.Fault != "" {
		s += fmt.Sprintf(" with %s at %d", c.Fault, c.At)
	}
	switch {
	case a.Killed:
		return s + ": killed"
	case a.OK:
		return s + ": done"
	}
	return s + ": " + a.Text
}

func (m *model) doOther(world World, o Op) (log []string, problem string, err error) {
	switch o.Kind {
	case EndPod:
		m.endPod(o.Pod)
		err = world.EndPod(o.Pod, o.What == "held")
	case Unplug:
		m.unplug(o.Device)
		err = world.Unplug(o.Device)
	case Plug:
		m.plug(o.Device)
		err = world.Plug(o.Device)
	case Mischief:
		pod := o.Pod
		if h := m.devices[o.Device].holder; h != nil { // else the pod would mostly not have the device
			pod = h.Pod
		}
		m.spoil(pod, o.What)
		err = world.Mischief(pod, o.Device, o.What)
	default:
		err = errors.New("no such operation")
	}
	return []string{o.String()}, "", err
}

// tries is how often a runtime repeats a DEL that fails, in a walk: the plugin gives up restoring at the third.
const tries = 5

// finish sends the DEL of an attachment until it succeeds.
func (m *model) finish(world World, a Attachment, s *Stats) (log []string, problem string, err error) {
	for range tries {
		c := m.del(a)
		answer, err := world.Call(c)
		if err != nil {
			return log, "", err
		}
		s.count(answer)
		log = append(log, describe(c, answer))
		if answer.OK {
			m.forget(a)
			return log, "", nil
		}
	}
	return log, fmt.Sprintf("%d DELs have failed: %s", tries, log[len(log)-1]), nil
}
