package deviceplugin

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Set is the device plugins of a node, one for each resource.
type Set struct {
	Dir     string // kubelet's: /var/lib/kubelet/device-plugins
	InfoDir string // of the device-info files: /var/run/k8s.cni.cncf.io/devinfo/dp
	Log     *slog.Logger
	// Files returns the device files of a unit at this moment, for kubelet to hand out. Nil: those of the last update.
	Files func(context.Context, Unit) ([]string, error)
	// Prefer chooses units where kubelet may. Nil: kubelet takes any.
	Prefer func(context.Context, Choice) []string

	mu      sync.Mutex
	servers map[string]*running
	wg      sync.WaitGroup
}

type running struct {
	*server
	stop    context.CancelFunc
	missing map[string]bool // units that the last update did not have
}

// Update sets the resources of the node. A unit that is missing once stays as it was until the next update: a device
// that just then moves to another namespace is found in neither, and kubelet must not take it for lost. A resource
// that is gone keeps its plugin, with no units, so that kubelet does not hand out the units that it knew.
func (s *Set) Update(ctx context.Context, resources map[string][]Unit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers == nil {
		s.servers = map[string]*running{}
	}
	for name := range resources {
		if s.servers[name] == nil {
			run, cancel := context.WithCancel(ctx)
			r := &running{server: newServer(name, s.Dir, s.Log), stop: cancel}
			r.units = slices.Clone(resources[name])
			if s.Files != nil {
				r.files = s.Files
			}
			r.prefer = s.Prefer
			s.servers[name] = r
			s.wg.Go(func() { r.run(run) })
		}
	}
	infos := map[string][]byte{}
	for name, r := range s.servers {
		units := r.keep(resources[name])
		r.update(units)
		for _, u := range units {
			if err := addInfo(infos, name, u); err != nil {
				return err
			}
		}
	}
	return writeInfos(s.InfoDir, infos)
}

// keep adds the units of the last update that are missing for the first time.
func (r *running) keep(units []Unit) []Unit {
	old, _ := r.list()
	out := slices.Clone(units)
	missing := map[string]bool{}
	for _, u := range old {
		if slices.ContainsFunc(units, func(n Unit) bool { return n.ID == u.ID }) || r.missing[u.ID] {
			continue
		}
		missing[u.ID] = true
		out = append(out, u)
	}
	r.missing = missing
	slices.SortFunc(out, func(a, b Unit) int { // shares of a device by their numbers
		return cmp.Or(a.Compare(b.Location), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Stop ends all plugins, and waits for them.
func (s *Set) Stop() {
	s.mu.Lock()
	for _, r := range s.servers {
		r.stop()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// flat makes a file name of a resource or an id.
func flat(s string) string { return strings.ReplaceAll(s, "/", "-") }
