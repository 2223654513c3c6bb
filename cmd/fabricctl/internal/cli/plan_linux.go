package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// commands are the steps, one per line, with every name as one word of a shell.
func commandsOf(steps []plan.Step) []string {
	return strings.Split(strings.TrimSuffix(plan.Print(steps), "\n"), "\n")
}

// planAdd is what ADD would do, and the DEL after it: for the interface, and for those of other ports that go along.
func (a *app) planAdd(conf []byte, env netconf.Env) ([]planned, error) {
	if env.IfName == "" {
		env.IfName = "net1"
	}
	p, err := fabric.Plugin{StateDir: a.stateDir}.Plan(conf, env)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	out := []planned{plannedAdd(p, env.IfName, env)}
	for _, port := range p.Ports {
		out = append(out, plannedAdd(port.Plan, port.Interface, env))
	}
	return out, nil
}

func plannedAdd(p *fabric.Plan, ifName string, env netconf.Env) planned {
	out := planned{
		Verb: "ADD", Interface: ifName, Netns: env.Netns, Device: p.Device,
		Refused: p.Refused, Warnings: p.Warnings, IPAM: p.IPAM, Tables: p.Tables,
	}
	if len(p.Add) > 0 {
		out.Add = commandsOf(p.Add)
	}
	if len(p.Del) > 0 {
		out.Del = commandsOf(p.Del)
	}
	return out
}

// planDel is what DEL would do for the attachments that a network namespace has.
func (a *app) planDel(ns, ifName string) (out []planned, err error) {
	id, err := netns.IDOf(ns)
	if err != nil {
		return nil, fmt.Errorf("plan: --netns: %w", err)
	}
	list, err := a.attachments()
	for _, l := range list {
		if l.entry.Netns != id || ifName != "" && l.IfName != ifName && l.entry.Of != ifName {
			continue
		}
		p, derr := fabric.Plugin{StateDir: a.stateDir}.PlanDel(l.entry)
		if derr != nil {
			return out, errors.Join(err, fmt.Errorf("plan %s: %w", l.IfName, derr))
		}
		one := planned{
			Verb: "DEL", Interface: l.IfName, Of: l.who(), Netns: ns, Device: strings.TrimPrefix(p.Device, "netdev/"),
			IPAM: p.IPAM,
		}
		if len(p.Del) > 0 {
			one.Del = commandsOf(p.Del)
		}
		out = append(out, one)
	}
	return out, err
}
