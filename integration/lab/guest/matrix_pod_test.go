//go:build labguest

package guest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// podState is what a plugin can leave in a pod's network namespace.
type podState struct {
	Links  map[string]Link
	Addrs  map[string][]string
	Routes []string
	Rules  []string
	RDMA   []string // names
}

// state reads the pod. It opens no socket that stays: one would keep the namespace alive.
func (s *sandbox) state(t testing.TB) podState {
	t.Helper()
	p, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// settled reads a pod that has just got its interface, when the kernel has done its part: the link-local address comes
// with the carrier, some time after ADD.
func (s *sandbox) settled(t testing.TB) podState {
	t.Helper()
	ready := func() error { return waitsFor(func(netlink.Link) bool { return true }) } // all have a peer
	Until(t, "the pod's interface is ready", func() error { return s.Do(ready) })
	return s.state(t)
}

func (s *sandbox) take() (p podState, err error) {
	err = s.Do(func() error {
		names := make(map[int]string)
		var errs [5]error
		p.Links, errs[0] = takeLinks(names)
		p.Addrs, errs[1] = takeAddrs(names)
		p.Routes, errs[2] = takeRoutes(names)
		p.Rules, errs[3] = takeRules()
		var devices []*netlink.RdmaLink
		devices, errs[4] = dump(netlink.RdmaLinkList)
		if ownsRDMA() {
			for _, d := range devices {
				p.RDMA = append(p.RDMA, d.Attrs.Name)
			}
		}
		return errors.Join(errs[:]...)
	})
	return p, err
}

// ownsRDMA tells whether a namespace has RDMA devices of its own: in shared mode it sees those of the host.
func ownsRDMA() bool {
	mode, err := netlink.RdmaSystemGetNetnsMode()
	return err == nil && mode == "exclusive"
}

// difference waits until the pod is in the state want, and returns what still differs.
func (s *sandbox) difference(want podState) string {
	var diff string
	err := await(func() error {
		got, err := s.take()
		if err != nil {
			return err
		}
		if reflect.DeepEqual(want, got) {
			diff = ""
			return nil
		}
		diff = cmp.Diff(want, got)
		return errors.New("the pod differs")
	}, Patience)
	if err != nil && diff == "" {
		return err.Error()
	}
	return diff
}
