package fabric

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Wish is a device that a ResourceClaim is to give to a pod, with the configuration of its network.
type Wish struct {
	Conf   []byte          // of the network, as Multus would pass it
	Device prepared.Device // its address, and the claim's settings
	PodUID string          // what is prepared for this pod does not stand against it
}

// Verdict answers a Wish: why an ADD would be refused now. If it has no error and no refusal, ADD could work.
type Verdict struct {
	// Err is set when the configuration with the claim's settings is wrong (with field, value and what is allowed), or
	// the device can't be looked at.
	Err error
	// Refusals are all reasons against it, the one that counts first. Those that are Passing are other pods: the device
	// is still in use, or given to somebody else.
	Refusals []*attach.Refusal
	Warnings []string
}

// First is the reason that counts, with what to do about it; nil if there is none.
func (v *Verdict) First() error {
	switch {
	case v.Err != nil:
		return v.Err
	case len(v.Refusals) == 0:
		return nil
	case v.Refusals[0].Hint == "":
		return refused(v.Refusals[0])
	}
	return fmt.Errorf("%w; %s", refused(v.Refusals[0]), v.Refusals[0].Hint)
}

// Judge answers each of some wishes, before their pod is started. It decides on the same facts as ADD, as far as they
// do not depend on the pod's network namespace, which is not there yet. It takes no lock and changes nothing: by the
// time of the ADD it may be different. An error means that the node can't be looked at.
func (p Plugin) Judge(wishes []Wish) ([]Verdict, error) {
	c := p.withDefaults().newCall(&netconf.Config{}, netconf.Env{Command: "STATUS"})
	defer c.close()
	if err := c.openHost(); err != nil {
		return nil, err
	}
	out := make([]Verdict, len(wishes))
	for i := range wishes {
		d, err := c.judge(&wishes[i])
		var f *failure
		switch {
		case errors.As(err, &f) && f.code == codeNoDevice:
			out[i].Refusals = []*attach.Refusal{{Reason: attach.NoDevice, Message: f.Error(), Hint: f.hint}}
		case err != nil:
			out[i].Err = fmt.Errorf("device %s: %w", wishes[i].Device.Address, err)
		default:
			out[i].Refusals, out[i].Warnings = d.Refusals, d.Warnings
		}
	}
	return out, nil
}

func (c *call) judge(w *Wish) (*attach.Decision, error) {
	of, err := netconf.Parse(w.Conf, c.env)
	if err != nil {
		return nil, err
	}
	one := *c // with the same connections
	if one.cfg, _, err = c.effective(of, &w.Device); err != nil {
		return nil, err
	}
	one.cfg.Pod.UID = w.PodUID
	return one.decideUnlocked()
}
