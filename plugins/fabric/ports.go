package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// The interfaces of an RDMA device's other ports are attachments of their own, each with an entry, a device and
// addresses: what moves, undoes and repairs one interface does so for them. The first one, which has the RDMA device,
// names them in its entry, and its ADD, CHECK and DEL are theirs too. Its lock is taken before theirs.

// ports are the attachments of the other ports, seen from the call for the first one.
type ports struct{ *call }

// portName is the interface in the pod of a port, where the one that has the RDMA device is called first.
func portName(first string, number uint32) string {
	return first + "p" + strconv.FormatUint(uint64(number), 10)
}

// of is the call for the interface of another port.
func (c ports) of(p attach.OtherPort) (*call, error) {
	env := c.env
	env.IfName = portName(c.key.IfName, p.Number)
	cfg, err := c.cfg.OtherPort(env, p.Address)
	if err != nil {
		return nil, err
	}
	return c.with(cfg, env), nil
}

// with is a call for another interface of the same pod.
func (c ports) with(cfg *netconf.Config, env netconf.Env) *call {
	return &call{
		session: c.session, cfg: cfg, env: env, key: journal.Key{ContainerID: env.ContainerID, IfName: env.IfName},
		first: c.call, claimed: c.claimed, asked: c.asked, planned: c.planned, doing: c.doing,
	}
}

// onPort says which port an error is about.
func onPort(p attach.OtherPort, err error) error {
	return fmt.Errorf("port %d (%s): %w", p.Number, p.Netdev, err)
}

// judge refuses what attach would be refused, before anything moves. It takes no lock.
func (c ports) judge(list []attach.OtherPort) error {
	for _, p := range list {
		if err := c.judgeOne(p); err != nil {
			return onPort(p, err)
		}
	}
	return nil
}

func (c ports) judgeOne(p attach.OtherPort) error {
	m, err := c.of(p)
	if err != nil {
		return err
	}
	d, err := m.decideUnlocked(&choice{cfg: m.cfg})
	if err == nil && len(d.Refusals) > 0 {
		err = refused(d.Refusals[0])
	}
	return err
}

// attach attaches the interfaces of the other ports after the first one, whose result is res. If it can't, all of
// them are returned, the first one too.
func (c ports) attach(
	list []attach.OtherPort, first *journal.Entry, res *result.Result,
) (*result.Result, error) {
	made := []*journal.Entry{first}
	for _, p := range list {
		m, err := c.of(p)
		var e *journal.Entry
		if err == nil {
			m.prior = res
			res, e, err = attachPort(m)
		}
		if err != nil {
			return nil, errors.Join(onPort(p, err), c.takeBack(made))
		}
		made = append(made, e)
	}
	if len(list) > 0 {
		first.Attached = true
		if err := c.store.Save(first); err != nil {
			return nil, errors.Join(err, c.takeBack(made))
		}
	}
	return res, nil
}

// attachPort is the ADD of one of them.
func attachPort(c *call) (*result.Result, *journal.Entry, error) {
	if err := c.hold(); err != nil {
		return nil, nil, err
	}
	defer func() { c.held.Unlock() }() // the first one's lock stays
	a := &adder{call: c, chosen: choice{cfg: c.cfg}}
	defer a.end()
	d, err := a.decide()
	if err != nil {
		return nil, nil, err
	}
	at := newAttachment(a, d)
	res, err := at.run()
	return res, at.entry, err
}

// takeBack returns what an ADD has attached, the last first. What is not this ADD's any more is left alone.
func (c ports) takeBack(made []*journal.Entry) error {
	if !c.held.Held() { // it was let go of while an IPAM plugin worked
		if err := c.hold(); err != nil {
			return err
		}
	}
	var errs []error
	for _, e := range slices.Backward(made) {
		errs = append(errs, c.delOne(e.Key, func(now *journal.Entry) bool { return now.Nonce == e.Nonce }))
	}
	return errors.Join(errs...)
}

// del returns the interfaces of other ports, the last first. Without the entry that names them, they are looked for.
func (c ports) del(first *journal.Entry) error {
	var names []string
	if first != nil {
		names = first.OtherPorts
	} else {
		for _, e := range c.store.Of(c.key.ContainerID) {
			names = append(names, e.IfName)
		}
	}
	var errs []error
	for _, name := range slices.Backward(names) {
		key := journal.Key{ContainerID: c.key.ContainerID, IfName: name}
		errs = append(errs, c.delOne(key, func(e *journal.Entry) bool { return e.Of == c.key.IfName }))
	}
	return errors.Join(errs...)
}

// delOne returns one attachment, if its entry is the one that is meant.
func (c ports) delOne(key journal.Key, is func(*journal.Entry) bool) error {
	if key != c.key {
		ctx, cancel := bounded(lockWait)
		defer cancel()
		lock, err := c.store.LockAttachment(ctx, key)
		if err != nil {
			return err
		}
		defer lock.Unlock()
	}
	e, err := c.store.Load(key)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !is(e) {
		return nil
	}
	if err == nil {
		err = ended(returner(c).giveBack(e, c.delegateOf(e)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key.IfName, err)
	}
	return nil
}

// check is CHECK of the interfaces of other ports.
func (c ports) check(first *journal.Entry) (problems []plan.Problem, err error) {
	for _, name := range first.OtherPorts {
		key := journal.Key{ContainerID: c.key.ContainerID, IfName: name}
		e, err := c.store.Load(key)
		if errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, plan.Problem{
				Field: "interface " + name, Want: "an attachment", Got: "none in the journal",
			})
			continue
		}
		if err != nil {
			return nil, err
		}
		env := c.env
		env.IfName = name
		cfg, err := netconf.Parse(e.Conf, env)
		if err != nil {
			return nil, err
		}
		cfg.PrevResult, cfg.CNIVersion = c.cfg.PrevResult, c.cfg.CNIVersion
		m := c.with(cfg, env)
		of, err := compare(m, e)
		if err == nil && len(of) == 0 {
			err = m.delegate().Check(context.Background())
		}
		if err != nil {
			return nil, err
		}
		for _, p := range of {
			p.Field = name + " " + p.Field
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// siblings reads which other netdevs the RDMA device carries: of the same function (a dual-port mlx4), or of others
// (mlx5, whose ports have a function each).
func (in *inspector) siblings() error {
	if in.c.cfg.Mode != netconf.ModeDevice || in.dev.Netdev == nil || in.dev.HCA == nil {
		return nil
	}
	ports, err := in.c.host.OtherPorts(in.dev)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.Netdev.Kind == inventory.Bond {
			in.facts.Bond = p.Netdev.Name
			continue
		}
		in.facts.OtherPorts = append(in.facts.OtherPorts, attach.OtherPort{
			Number: p.Number, Netdev: p.Netdev.Name, Address: p.Netdev.Address,
		})
	}
	if len(in.dev.HCA.Ports) < 2 {
		return nil
	}
	all, err := in.c.host.NetdevsAt(in.dev.Address)
	for _, n := range all {
		if n.Index != in.dev.Netdev.Index {
			in.facts.Siblings = append(in.facts.Siblings, n.Name)
		}
	}
	return err
}
