package fabric

import (
	"context"
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/attach"
)

// status is the verb STATUS: it says whether an ADD of this network could be served, as far as that does not depend on
// the pod. A device that another pod has is no reason against it: that is how devices are meant to be used, and the
// runtime would stop starting pods on the node as soon as each of its devices is in use.
func status(c *call) error {
	c.doing = "be ready for network " + c.cfg.Name
	if err := c.openHost(); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	if err := c.store.Writable(); err != nil {
		return &failure{code: codeLimited, err: err, hint: "devices in pods can't be returned in order until it is"}
	}
	if _, err := c.policy(); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	d, err := c.decideUnlocked(&choice{})
	if err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	for _, r := range d.Refusals {
		if !r.Passing {
			return &failure{code: codeNotReady, err: errors.New(r.Message), hint: r.Hint}
		}
	}
	if err := c.delegate().Status(context.Background()); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	return nil
}

// decideUnlocked decides on what is there now, without a lock: for read-only callers. STATUS has no pod.
func (c *call) decideUnlocked(ch *choice) (*attach.Decision, error) {
	g, err := c.gather(ch)
	if err != nil {
		return nil, err
	}
	if err := g.find(); err != nil {
		return nil, err
	}
	if err := g.inspect(); err != nil {
		return nil, err
	}
	if err := g.guid(); err != nil {
		return nil, err
	}
	return attach.Decide(g.facts), nil
}
