package fabric

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// PreflightRequest is a device that a ResourceClaim is to give to a pod, with the configuration of its network.
type PreflightRequest struct {
	Conf   []byte          // of the network, as Multus would pass it
	Device prepared.Device // its address, and the claim's settings
	PodUID string          // what is prepared for this pod does not stand against it
}

// PreflightResult says why an ADD would be refused now. If it has no error and no refusal, ADD could work.
type PreflightResult struct {
	// Err is set when the configuration with the claim's settings is wrong (with field, value and what is allowed), or
	// the device can't be looked at.
	Err error
	// Refusals are all reasons against it, the one that counts first. Those that are Passing are other pods: the device
	// is still in use, or given to another pod.
	Refusals []*attach.Refusal
	Warnings []string
}

// First is the reason that counts, with what to do about it; nil without one.
func (r *PreflightResult) First() error {
	switch {
	case r.Err != nil:
		return r.Err
	case len(r.Refusals) == 0:
		return nil
	case r.Refusals[0].Hint == "":
		return refused(r.Refusals[0])
	}
	return fmt.Errorf("%w; %s", refused(r.Refusals[0]), r.Refusals[0].Hint)
}

// Preflight answers each request, before its pod is started. It decides on the same facts as ADD, as far as they do not
// depend on the pod's network namespace, which is not there yet. It takes no lock and changes nothing: by the time of
// the ADD it may be different. An error means that the node can't be looked at.
func (p Plugin) Preflight(requests []PreflightRequest) ([]PreflightResult, error) {
	c := p.withDefaults().newCall(&netconf.Config{}, netconf.Env{Command: "STATUS"})
	defer c.close()
	if err := c.openHost(); err != nil {
		return nil, err
	}
	out := make([]PreflightResult, len(requests))
	for i := range requests {
		d, err := c.preflight(&requests[i])
		var f *failure
		switch {
		case errors.As(err, &f) && f.code == codeNoDevice:
			out[i].Refusals = []*attach.Refusal{{Reason: attach.NoDevice, Message: f.Error(), Hint: f.hint}}
		case err != nil:
			out[i].Err = fmt.Errorf("device %s: %w", requests[i].Device.Address, err)
		default:
			out[i].Refusals, out[i].Warnings = d.Refusals, d.Warnings
		}
	}
	return out, nil
}

func (c *call) preflight(r *PreflightRequest) (*attach.Decision, error) {
	of, err := netconf.Parse(r.Conf, c.env)
	if err != nil {
		return nil, err
	}
	one := *c // with the same connections
	if one.cfg, _, err = (chooser{c}).selectClaimed(of, &r.Device); err != nil {
		return nil, err
	}
	one.cfg.Pod.UID = r.PodUID
	return one.decideUnlocked(&choice{})
}
