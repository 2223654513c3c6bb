package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// after is this version: the agents and the controller as they are.
type after struct {
	*options
	rig         *rig
	fleet       fleet
	controllers *controllers
	process     *exec.Cmd // a whole agent
	generation  int64     // of all Fabrics together
	out         *report
}

// run goes through the phases.
func (a *after) run(ctx context.Context) error {
	var err error
	if a.rig, err = newRig(ctx, a.agents+a.silent+2); err != nil {
		return err
	}
	defer a.rig.stop() //nolint:errcheck // a directory in /tmp
	if err := errors.Join(a.rig.install(ctx), a.rig.addFabrics(ctx)); err != nil {
		return err
	}
	a.generation = nFabrics
	for _, phase := range []func(context.Context) error{a.bringUp, a.atRest, a.change, a.takeOver, a.away} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	a.controllers.stop()
	_, peak := memory(a.process.Process.Pid)
	fmt.Printf("\nPeaks: whole agent %d MiB; controllers %d MiB; %s.\n", peak, a.controllers.peak, a.rig.memory())
	_ = a.process.Process.Kill()
	_ = a.process.Wait() // killed
	return nil
}

func (a *after) bringUp(ctx context.Context) error {
	from, err := a.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	if a.controllers, err = startControllers(a.rig, a.bin, a.port); err != nil {
		return err
	}
	began := time.Now()
	others, err := newSilent(a.rig, a.agents, a.agents+a.silent)
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
	if a.fleet, err = startFleet(ctx, a.rig, a.agents, a.rate); err != nil {
		return err
	}
	_, err = until(ctx, "all nodes have their ranges", 20*time.Minute, func() bool {
		waits, all := a.fleet.waits()
		a.progress("%d of %d nodes have their ranges", len(waits), a.agents)
		return all
	})
	if err != nil {
		return err
	}
	if err := others.await(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	_, err = until(ctx, "all nodes have reported all that they have", 20*time.Minute, func() bool {
		return a.fleet.reported(a.generation) == a.agents
	})
	if err != nil {
		return err
	}
	waits, _ := a.fleet.waits()
	p, err := a.rig.meter.since(ctx, "bring-up", a.agents+a.silent, from)
	if err != nil {
		return err
	}
	a.out.add(p, fmt.Sprintf("all nodes had their ranges after %.0f s, started %d a second; a node waited %.1f s "+
		"(median), %.1f s (longest). %s", took.Seconds(), a.rate, waits[len(waits)/2].Seconds(),
		waits[len(waits)-1].Seconds(), a.rig.memory()),
		a.controllers.memory(ctx))
	return nil
}

// settle waits until the counts in the status of the Fabrics stand.
func (a *after) settle(ctx context.Context) error {
	quiet := 0
	var last float64
	_, err := until(ctx, "the cluster is at rest", 20*time.Minute, func() bool {
		pause(ctx, 10*time.Second)
		s, err := a.rig.meter.read(ctx)
		if err != nil {
			return false
		}
		n := s.rows[call{"PATCH", "fabrics/status"}].requests + s.rows[call{"PATCH", "fabricnodes/status"}].requests
		if quiet++; n != last {
			quiet, last = 0, n
		}
		return quiet > 2+a.agents/500
	})
	return err
}

func (a *after) atRest(ctx context.Context) (err error) {
	if a.process, err = startProcess(a.rig, a.bin, name(a.agents+a.silent+1)); err != nil {
		return err
	}
	if err := a.settle(ctx); err != nil {
		return err
	}
	from, err := a.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	pause(ctx, a.steady)
	p, err := a.rig.meter.since(ctx, "at rest", a.agents, from)
	if err != nil {
		return err
	}
	now, _ := memory(selfPID)
	agent, _ := memory(a.process.Process.Pid)
	a.out.add(p, fmt.Sprintf("%.4f requests a second and node. The memory of one whole agent, without devices: %d "+
		"MiB; of this process, with the links of all agents: %d "+
		"MiB", p.requests()/p.seconds/float64(a.agents), agent, now),
		a.controllers.memory(ctx))
	return nil
}

// change gives one Fabric another MTU.
func (a *after) change(ctx context.Context) error {
	from, err := a.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	a.generation++
	if err := a.rig.addFabric(ctx, 0, 2044); err != nil {
		return err
	}
	took, err := until(ctx, "all nodes work with the new Fabric", 10*time.Minute, func() bool {
		return a.fleet.reported(a.generation) == a.agents
	})
	if err != nil {
		return err
	}
	p, err := a.rig.meter.since(ctx, "one Fabric changed", a.agents, from)
	if err != nil {
		return err
	}
	a.out.add(p, fmt.Sprintf("every node worked with it and had reported so after %.1f s", took.Seconds()),
		a.controllers.memory(ctx))
	return nil
}

// takeOver kills the leader while a node joins.
func (a *after) takeOver(ctx context.Context) error {
	if err := a.settle(ctx); err != nil {
		return err
	}
	from, err := a.rig.meter.read(ctx)
	if err != nil {
		return err
	}
	leader := a.controllers.leader(ctx)
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
	late, err := newAgent(a.rig, a.agents+a.silent, status)
	if err != nil {
		return err
	}
	go late.run(ctx)
	ranged := func() bool { return late.ranged.Load() > 0 }
	took, err := until(ctx, "a node that joins has its ranges", 5*time.Minute, ranged)
	if err != nil {
		return err
	}
	p, err := a.rig.meter.since(ctx, "controller killed (SIGKILL)", a.agents, from)
	if err != nil {
		return err
	}
	a.fleet = append(a.fleet, late)
	a.out.add(p, fmt.Sprintf("a node that joined in this moment had its ranges after %.1f s (the lease is for 15 s)",
		took.Seconds()), a.controllers.memory(ctx))
	return nil
}

// away kills the API server for a while.
func (a *after) away(ctx context.Context) error {
	etcd, err := a.rig.meter.etcd(ctx)
	if err != nil {
		return err
	}
	a.rig.server.StopAPI()
	pause(ctx, a.outage)
	began := time.Now()
	if err := a.rig.server.StartAPI(ctx); err != nil {
		return err
	}
	up := time.Since(began)
	n := len(a.fleet)
	watched := func(resource string) bool { return a.rig.meter.watches(ctx, resource) >= n }
	_, err = until(ctx, "all nodes are told of their objects again", 10*time.Minute, func() bool {
		return watched(v1alpha1.Fabrics.Resource) && watched(v1alpha1.FabricNodes.Resource)
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	a.generation++
	if err := a.rig.addFabric(ctx, 1, 2044); err != nil {
		return err
	}
	changed, err := until(ctx, "all nodes work with a new Fabric", 10*time.Minute, func() bool {
		return a.fleet.reported(a.generation) == n
	})
	if err != nil {
		return err
	}
	p, err := a.rig.meter.since(ctx, fmt.Sprintf("API server away for %s", a.outage), n, &sample{at: began, etcd: etcd})
	if err != nil {
		return err
	}
	a.out.add(p, fmt.Sprintf("it was ready after %.1f s, all nodes watched again after %.1f s; a Fabric changed then "+
		"was in force on all nodes after %.1f s more", up.Seconds(), took.Seconds(), changed.Seconds()),
		a.controllers.memory(ctx))
	return nil
}
