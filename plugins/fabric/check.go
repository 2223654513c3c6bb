package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// check is the verb CHECK: it compares what is there with the journal and the prevResult, and lists every difference.
func check(c *call) error {
	c.doing = fmt.Sprintf("confirm %s of %s", c.key.IfName, c.who())
	if err := c.openHost(); err != nil {
		return err
	}
	if err := c.openPod(); err != nil {
		return err
	}
	e, err := c.store.Load(c.key)
	if errors.Is(err, fs.ErrNotExist) {
		if c.cfg.Mode == "rdma" {
			return nil // shared mode: nothing was moved, nothing is recorded
		}
		return &failure{code: codeNoDevice, err: errors.New("the journal has no such attachment"), hint: "call ADD"}
	}
	if err != nil {
		return err
	}
	if e.Chained && c.cfg.Mode == netconf.ModeRDMA {
		return nil // the plugin before this one in the chain has it, and its own CHECK
	}
	if e.FromClaim != nil { // the claim may be gone by now
		cfg, err := c.cfg.Select(c.env, e.FromClaim.Conf)
		if err != nil {
			return err
		}
		c.cfg = cfg
	}
	problems, err := compare(c, e)
	if err != nil {
		return err
	}
	others, err := ports{c}.check(e)
	if err != nil {
		return err
	}
	problems = append(problems, others...)
	if len(problems) > 0 {
		var lines []string
		for _, p := range problems {
			lines = append(lines, p.String())
		}
		return &failure{code: codeKernel, err: errors.New(strings.Join(lines, "; "))}
	}
	if e.Kind == journal.KindRDMA {
		return nil
	}
	return c.delegate().Check(context.Background())
}

// compare reads what the pod has, and returns its differences from what the attachment should be.
func compare(c *call, e *journal.Entry) ([]plan.Problem, error) {
	now := plan.Now{NetnsOK: e.Netns == c.pod.NS.ID, IfName: c.key.IfName}
	n, err := c.pod.Link.ByName(c.key.IfName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if n != nil {
		if err := c.pod.Snapshot(n); err != nil {
			return nil, err
		}
		if now.Rules, err = c.pod.Link.Rules(); err != nil {
			return nil, err
		}
		now.Netdev = n
	}
	if e.MoveRDMA {
		was := e.HCA
		if t := attachedHCA(e); t != nil {
			was = t
		}
		h, err := c.pod.HCA(was)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		now.HCA = h
	}
	want := plan.Want{Kind: string(e.Kind), Address: e.Address, Netdev: e.Netdev, RDMAName: e.RDMAName, MTU: c.cfg.MTU}
	if e.MoveRDMA {
		want.HCA = e.HCA
	}
	if e.Child != nil {
		want.PKey = e.Child.PKey
	}
	if c.cfg.PrevResult != nil && e.Kind != journal.KindRDMA {
		prev, err := c.prevResult()
		if err != nil {
			return nil, err
		}
		if x, ok := prev.Expect(c.key.IfName, c.env.Netns); ok {
			want.IP = addressing(&result.Result{Addresses: x.Addresses, Routes: x.Routes})
			want.MAC = x.Interface.MAC
			if x.Interface.MTU != 0 {
				want.MTU = x.Interface.MTU
			}
		}
	}
	if c.cfg.HostAddresses && e.Netdev != nil {
		want.IP = &plan.HostAddressing(c.cfg, e.Netdev, nil, nil).Addressing
	}
	return plan.Check(c.cfg.SourceBased, want, now), nil
}
