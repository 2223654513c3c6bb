package guest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// State is everything of the host that a plugin may change, in a form that two equal hosts have in common: no
// interface indexes, no queue pair numbers, no timers.
type State struct {
	Links  map[string]Link
	Addrs  map[string][]string // by link name
	Routes []string            // of all tables, IPv4 and IPv6
	Rules  []string
	Tables []string // neighbours, nexthop objects and qdiscs, but for the kernel's own
	RDMA   map[string]RDMADevice
	VFs    map[string][]string // by PF: its virtual functions, as ip shows them
	Nodes  []string            // under /dev/infiniband
	Files  map[string]string   // the plugin's and the IPAM plugins' files: path -> kind of content
}

// Take returns the present state. It does not wait for anything to settle.
func Take() (State, error) {
	var s State
	var err error
	names := make(map[int]string)
	if s.Links, err = takeLinks(names); err != nil {
		return State{}, fmt.Errorf("take links: %w", err)
	}
	if err = takeKept(s.Links, names); err != nil {
		return State{}, fmt.Errorf("take what stays on links: %w", err)
	}
	if s.Tables, err = takeTables(names); err != nil {
		return State{}, fmt.Errorf("take tables: %w", err)
	}
	if s.Addrs, err = takeAddrs(names); err != nil {
		return State{}, fmt.Errorf("take addresses: %w", err)
	}
	if s.Routes, err = takeRoutes(names); err != nil {
		return State{}, fmt.Errorf("take routes: %w", err)
	}
	if s.Rules, err = takeRules(); err != nil {
		return State{}, fmt.Errorf("take rules: %w", err)
	}
	if s.RDMA, err = takeRDMA(); err != nil {
		return State{}, fmt.Errorf("take RDMA devices: %w", err)
	}
	if s.VFs, err = takeVFs(); err != nil {
		return State{}, fmt.Errorf("take virtual functions: %w", err)
	}
	if s.Nodes, s.Files, err = takeFiles(); err != nil {
		return State{}, fmt.Errorf("take files: %w", err)
	}
	return s, nil
}

// Snapshot returns the state of the host once it has settled: carriers and link-local addresses are there, and two
// states in a row are equal.
func Snapshot(t testing.TB) State {
	t.Helper()
	var last State
	first := true
	Until(t, "the host has settled", func() error {
		if err := settled(); err != nil {
			return err
		}
		s, err := Take()
		if err != nil {
			return err
		}
		diff := cmp.Diff(last, s)
		if last = s; first || diff != "" {
			first = false
			return fmt.Errorf("it changes:\n%s", diff)
		}
		return nil
	})
	return last
}

// Diff returns how got differs from want, "" if it does not.
func Diff(want, got State) string {
	if reflect.DeepEqual(want, got) { // the usual case, and cmp is slow in emulation
		return ""
	}
	return cmp.Diff(want, got)
}

// Same waits until the host is in the state want again: carrier, multicast groups and link-local addresses come some
// time after a device has. It fails the test with the difference that remains.
func Same(t testing.TB, want State) {
	t.Helper()
	same(t, want, Take)
}

// SameButNumbers is Same but for the numbers of character devices, which the kernel may swap when several network
// namespaces with RDMA devices end at once: see kernel fact 29.
func SameButNumbers(t testing.TB, want State) {
	t.Helper()
	same(t, want.numberless(), func() (State, error) {
		got, err := Take()
		return got.numberless(), err
	})
}

func same(t testing.TB, want State, take func() (State, error)) {
	t.Helper()
	if diff := difference(want, take, Patience); diff != "" {
		t.Errorf("the host is not what it was (-before +after):\n%s", diff)
	}
}

// numberless is the state without the numbers of character devices.
func (s State) numberless() State {
	s.RDMA = maps.Clone(s.RDMA)
	for name, d := range s.RDMA {
		d.Chars = nil
		s.RDMA[name] = d
	}
	return s
}

func difference(want State, take func() (State, error), patience time.Duration) string {
	var diff string
	err := await(func() error {
		got, err := take()
		if err != nil {
			return err
		}
		if diff = Diff(want, got); diff != "" {
			return errors.New("the host differs")
		}
		return nil
	}, patience)
	if err != nil && diff == "" {
		return err.Error()
	}
	return diff
}

// Unchanged checks at the end of the test that the host is what it is now.
func Unchanged(t testing.TB) State {
	t.Helper()
	before := Snapshot(t)
	t.Cleanup(func() { Same(t, before) })
	return before
}
