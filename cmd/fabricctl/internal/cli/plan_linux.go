package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// asCommands are the steps, one per line, with every name as one word of a shell.
func asCommands(steps []plan.Step) quote.Raw {
	return quote.Raw(quote.Document([]byte(plan.Print(steps))))
}

func (a *app) planAdd(conf []byte, env netconf.Env) error {
	if env.IfName == "" {
		env.IfName = "net1"
	}
	p, err := fabric.Plugin{StateDir: a.stateDir}.Plan(conf, env)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if p.Device != "" {
		a.stdout.Printf("# device %s; POD is %s\n", p.Device, env.Netns)
	}
	a.stdout.Println("# ADD")
	for _, r := range p.Refused {
		a.stdout.Printf("# refused: %s\n", r)
	}
	for _, w := range p.Warnings {
		a.stdout.Printf("# warning: %s\n", w)
	}
	a.stdout.Printf("%s", asCommands(p.Add))
	if p.IPAM != "" {
		a.stdout.Printf("# then the addresses and routes that the IPAM plugin %s gives\n", p.IPAM)
	}
	if p.Tables {
		a.stdout.Println("# tables are numbered 20000 + the index that the interface has in the pod")
	}
	if len(p.Del) > 0 {
		a.stdout.Printf("# DEL\n%s", asCommands(p.Del))
	}
	if len(p.Refused) > 0 {
		return errFinding
	}
	return nil
}

func (a *app) planDel(ns, ifName string) error {
	id, err := netns.IDOf(ns)
	if err != nil {
		return fmt.Errorf("plan: --netns: %w", err)
	}
	list, err := a.attachments()
	found := false
	for _, l := range list {
		if l.entry.Netns != id || ifName != "" && l.IfName != ifName {
			continue
		}
		found = true
		p, derr := fabric.Plugin{StateDir: a.stateDir}.PlanDel(l.entry)
		if derr != nil {
			return errors.Join(err, fmt.Errorf("plan %s: %w", l.IfName, derr))
		}
		a.stdout.Printf("# DEL %s of %s: device %s; POD is %s\n%s",
			l.IfName, l.who(), strings.TrimPrefix(p.Device, "netdev/"), ns, asCommands(p.Del))
		if p.IPAM != "" {
			a.stdout.Printf("# the IPAM plugin %s gets its DEL\n", p.IPAM)
		}
	}
	if !found && err == nil {
		const none = "# no attachment has its interface in %s; for a plan of ADD name a configuration (-f)\n"
		a.stdout.Printf(none, ns)
	}
	return err
}
