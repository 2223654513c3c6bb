package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// scenario is the agents, the controller and what happens to them, phase by phase.
type scenario struct {
	*options
	rig         *rig
	fleet       fleet
	controllers *controllers
	process     *exec.Cmd // a whole agent
	generation  int64     // of all Fabrics together
}

// run goes through the phases.
func (s *scenario) run(ctx context.Context) error {
	var err error
	if s.rig, err = newRig(ctx, s.agents+s.silent+2); err != nil {
		return err
	}
	defer s.rig.stop() //nolint:errcheck // a directory in /tmp
	if err := errors.Join(s.rig.install(ctx), s.rig.addFabrics(ctx)); err != nil {
		return err
	}
	s.generation = nFabrics
	for _, phase := range []func(context.Context) error{s.bringUp, s.atRest, s.change, s.takeOver, s.away} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	s.controllers.stop()
	_, peak := memory(s.process.Process.Pid)
	fmt.Printf("\nPeaks: whole agent %d MiB; controllers %d MiB; %s.\n", peak, s.controllers.peak, s.rig.memory())
	_ = s.process.Process.Kill()
	_ = s.process.Wait() // killed
	return nil
}

func (s *scenario) bringUp(ctx context.Context) error {
	from, err := s.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	if s.controllers, err = startControllers(s.rig, s.bin, s.port); err != nil {
		return err
	}
	began := time.Now()
	others, err := newSilent(s.rig, s.agents, s.agents+s.silent)
	if err != nil {
		return err
	}
	status, err := machine()
	if err != nil {
		return err
	}
	if err := others.report(ctx, status); err != nil {
		return err
	}
	if s.fleet, err = startFleet(ctx, s.rig, s.agents, s.rate); err != nil {
		return err
	}
	_, err = until(ctx, "all nodes have their ranges", 20*time.Minute, func() bool {
		waits, all := s.fleet.waits()
		s.progress("%d of %d nodes have their ranges", len(waits), s.agents)
		return all
	})
	if err != nil {
		return err
	}
	if err := others.await(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if _, err = s.allReported(ctx); err != nil {
		return err
	}
	waits, _ := s.fleet.waits()
	p, err := s.rig.meter.since(ctx, "bring-up", s.agents+s.silent, from)
	if err != nil {
		return err
	}
	s.add(p, fmt.Sprintf("all nodes had their ranges after %.0f s, started %d a second; a node waited %.1f s "+
		"(median), %.1f s (longest). %s", took.Seconds(), s.rate, waits[len(waits)/2].Seconds(),
		waits[len(waits)-1].Seconds(), s.rig.memory()),
		s.controllers.memory(ctx))
	return nil
}

// settle waits until the counts in the status of the Fabrics stand.
func (s *scenario) settle(ctx context.Context) error {
	quiet := 0
	var last float64
	_, err := until(ctx, "the cluster is at rest", 20*time.Minute, func() bool {
		pause(ctx, 10*time.Second)
		m, err := s.rig.meter.read(ctx)
		if err != nil {
			return false
		}
		n := m.rows[call{"PATCH", "fabrics/status"}].requests +
			m.rows[call{"PATCH", "fabricnodes/status"}].requests
		if quiet++; n != last {
			quiet, last = 0, n
		}
		return quiet > 2+s.agents/500
	})
	return err
}

func (s *scenario) atRest(ctx context.Context) (err error) {
	if s.process, err = startProcess(s.rig, s.bin, name(s.agents+s.silent+1)); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	from, err := s.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	pause(ctx, s.steady)
	p, err := s.rig.meter.since(ctx, "at rest", s.agents, from)
	if err != nil {
		return err
	}
	now, _ := memory(selfPID)
	agent, _ := memory(s.process.Process.Pid)
	s.add(p, fmt.Sprintf("%.4f requests a second and node. The memory of one whole agent, without devices: %d "+
		"MiB; of this process, with the links of all agents: %d "+
		"MiB", p.requests()/p.seconds/float64(s.agents), agent, now),
		s.controllers.memory(ctx))
	return nil
}

// allReported waits until all nodes work with the Fabrics as they are, and have reported so. Otherwise it says what
// some of those that have not were told when they last tried.
func (s *scenario) allReported(ctx context.Context) (time.Duration, error) {
	took, err := until(ctx, "all nodes have reported", 20*time.Minute, func() bool {
		n := s.fleet.reported(s.generation)
		s.progress("%d of %d nodes have reported", n, s.agents)
		return n == s.agents
	})
	if err == nil {
		return took, nil
	}
	errs := []error{err}
	for _, a := range s.fleet {
		if len(errs) < 4 && a.generated.Load() < s.generation {
			errs = append(errs, fmt.Errorf("%s: %v", a.name, a.last.Load()))
		}
	}
	return took, errors.Join(errs...)
}

// change gives one Fabric another MTU.
func (s *scenario) change(ctx context.Context) error {
	from, err := s.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	s.generation++
	if err := s.rig.addFabric(ctx, 0, 2044); err != nil {
		return err
	}
	took, err := s.allReported(ctx)
	if err != nil {
		return err
	}
	p, err := s.rig.meter.since(ctx, "one Fabric changed", s.agents, from)
	if err != nil {
		return err
	}
	s.add(p, fmt.Sprintf("every node worked with it and had reported so after %.1f s", took.Seconds()),
		s.controllers.memory(ctx))
	return nil
}

// takeOver kills the leader while a node joins.
func (s *scenario) takeOver(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	from, err := s.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	leader := s.controllers.leader(ctx)
	if leader == nil {
		return fmt.Errorf("no process has the lease")
	}
	if err := leader.cmd.Process.Kill(); err != nil {
		return err
	}
	status, err := machine()
	if err != nil {
		return err
	}
	late, err := newAgent(s.rig, s.agents+s.silent, status)
	if err != nil {
		return err
	}
	go late.run(ctx)
	ranged := func() bool { return late.ranged.Load() > 0 }
	took, err := until(ctx, "a node that joins has its ranges", 5*time.Minute, ranged)
	if err != nil {
		return err
	}
	p, err := s.rig.meter.since(ctx, "controller killed (SIGKILL)", s.agents, from)
	if err != nil {
		return err
	}
	s.fleet = append(s.fleet, late)
	s.add(p, fmt.Sprintf("a node that joined in this moment had its ranges after %.1f s (the lease is for 15 s)",
		took.Seconds()), s.controllers.memory(ctx))
	return nil
}

// away kills the API server for a while.
func (s *scenario) away(ctx context.Context) error {
	etcd, err := s.rig.meter.etcd(ctx)
	if err != nil {
		return err
	}
	s.rig.server.StopAPI()
	pause(ctx, s.outage)
	began := time.Now()
	if err := s.rig.server.StartAPI(ctx); err != nil {
		return err
	}
	up := time.Since(began)
	n := len(s.fleet)
	watched := func(resource string) bool { return s.rig.meter.watches(ctx, resource) >= n }
	_, err = until(ctx, "all nodes are told of their objects again", 10*time.Minute, func() bool {
		return watched(v1alpha1.Fabrics.Resource) && watched(v1alpha1.FabricNodes.Resource)
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.generation++
	if err := s.rig.addFabric(ctx, 1, 2044); err != nil {
		return err
	}
	changed, err := until(ctx, "all nodes work with a new Fabric", 10*time.Minute, func() bool {
		return s.fleet.reported(s.generation) == n
	})
	if err != nil {
		return err
	}
	p, err := s.rig.meter.since(ctx, fmt.Sprintf("API server away for %s", s.outage), n, &sample{at: began, etcd: etcd})
	if err != nil {
		return err
	}
	s.add(p, fmt.Sprintf("it was ready after %.1f s, all nodes watched again after %.1f s; a Fabric changed then "+
		"was in force on all nodes after %.1f s more", up.Seconds(), took.Seconds(), changed.Seconds()),
		s.controllers.memory(ctx))
	return nil
}
