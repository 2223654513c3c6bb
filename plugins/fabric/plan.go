package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Plan is what a call would do. Nothing was changed, and no lock was taken: by the time of the call it may be
// different.
type Plan struct {
	Device   string      // bus address, or netdev/NAME; empty: none was found
	Refused  []string    // why ADD would be refused, with the code that it would end with; the first counts
	Warnings []string    // what is unusual
	Add      []plan.Step // as far as it can be known
	Del      []plan.Step
	IPAM     string     // type of the plugin whose addresses are not in Add; empty: none, or they are
	Ports    []PortPlan // of the interfaces that go along; not of PlanDel, where each has a plan of its own
	Tables   bool       // Add has routing tables, whose number is known only when the interface is in the pod
}

// PortPlan is the plan for the interface of another port of the RDMA device.
type PortPlan struct {
	Interface string // in the pod
	*Plan
}

// Plan returns what ADD with this configuration would do, and the DEL after it. It decides on the same facts as ADD.
// An error means that the facts could not be read: whatever ADD would refuse is in the plan.
func (p Plugin) Plan(stdin []byte, env netconf.Env) (*Plan, error) {
	env.Command = "ADD"
	out := &Plan{}
	cfg, err := netconf.Parse(stdin, env)
	if err != nil {
		return out, out.refuse(err)
	}
	c := p.withDefaults().newCall(cfg, env)
	defer c.close()
	c.planned = true
	if err := c.openHost(); err != nil {
		return nil, err
	}
	if err := c.openPodForAdd(); err != nil {
		return out, out.refuse(err)
	}
	ch := chooser{c}
	chosen, err := ch.choose(ch.allocatedToPod())
	if err != nil {
		return out, out.refuse(err)
	}
	c.cfg = chosen.cfg
	return out, out.attachment(c, &chosen)
}

// attachment plans one interface, and those of the RDMA device's other ports.
func (p *Plan) attachment(c *call, chosen *choice) error {
	d, err := c.decideUnlocked(chosen)
	if err != nil {
		return p.refuse(err)
	}
	p.Warnings = d.Warnings
	for _, r := range d.Refusals {
		if err := p.refuse(refused(r)); err != nil {
			return err
		}
	}
	if d.Attachment == nil {
		return nil
	}
	if err := p.steps(c, d, chosen); err != nil {
		if len(p.Refused) == 0 {
			return err
		}
		// The answer is there: a device that another pod has may have no steps to show.
		p.Warnings = append(p.Warnings, fmt.Sprintf("the steps are not known: %v", err))
	}
	for _, port := range d.OtherPorts {
		out := PortPlan{portName(c.key.IfName, port.Number), &Plan{}}
		p.Ports = append(p.Ports, out)
		m, err := ports{c}.of(port)
		if err == nil {
			err = out.attachment(m, &choice{cfg: m.cfg})
		}
		if err != nil {
			return out.refuse(err)
		}
	}
	return nil
}

// refuse notes why ADD would be refused. An error of the plan itself, not of what is planned, is returned.
func (p *Plan) refuse(err error) error {
	code, hint := classify(err)
	if code == types.ErrIOFailure || code == types.ErrInternal {
		return err
	}
	line := fmt.Sprintf("code %d: %s", code, strings.ReplaceAll(err.Error(), "\n", "; "))
	if hint != "" {
		line += "; " + hint
	}
	p.Refused = append(p.Refused, line)
	return nil
}

// steps adds what would be done.
func (p *Plan) steps(c *call, d *attach.Decision, ch *choice) error {
	p.Device = d.Device.DeviceKey
	var ips *plan.Addressing
	if c.cfg.Mode != netconf.ModeRDMA { // there the addresses are the earlier plugin's
		p.IPAM = c.cfg.IPAM.Type
		var err error
		if ips, err = predictAddresses(c); err != nil { // what the IPAM plugin would say
			code, _ := classify(err)
			p.Refused = append(p.Refused, fmt.Sprintf("code %d: %s", code, err))
			p.IPAM = ""
		}
	}
	if ips != nil {
		p.IPAM, p.Tables = "", c.cfg.SourceBased
	}
	noIPv6, err := c.noIPv6InPod()
	if err != nil {
		return err
	}
	p.Add = d.Steps(ips, noIPv6)
	p.Del = d.Return(p.Add, homeOf(c.newEntry(d, ch)))
	return nil
}

// predictAddresses returns the addresses that the IPAM plugin of a configuration would give now, and reserves none. It
// returns nil where that is not known here: whereabouts, dhcp and others decide by themselves.
func predictAddresses(c *call) (*plan.Addressing, error) {
	r, known, err := c.delegate().Predict()
	if err != nil || !known {
		return nil, err
	}
	return addressing(r), nil
}

// noIPv6InPod says whether IPv6 is off by default in the pod, as some runtimes have it for pods with IPv4 only.
func (s *session) noIPv6InPod() (off bool, err error) {
	err = s.pod.NS.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		off = strings.TrimSpace(string(b)) == "1"
		return err
	})
	return off, err
}

// PlanDel returns what DEL of an attachment would do now.
func (p Plugin) PlanDel(e *journal.Entry) (*Plan, error) {
	if err := e.Sound(); err != nil {
		return nil, fmt.Errorf("journal entry of %s: %w", e.Key, err)
	}
	c := p.withDefaults().newCall(&netconf.Config{}, netconf.Env{})
	defer c.close()
	if err := c.openHost(); err != nil {
		return nil, err
	}
	out := &Plan{Device: e.DeviceKey, IPAM: e.IPAM}
	if ours, err := (returner{c}).owns(e); err != nil || !ours {
		return out, err
	}
	pod, err := c.podOf(e)
	if err != nil {
		return nil, err
	}
	if e.Kind == journal.KindIPoIB {
		in, at := plan.Pod, pod
		if pod == nil {
			in, at = plan.Host, c.host
		}
		n, err := at.Child(childOf(e, pod == nil))
		if errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		w := plan.Where{Netdev: n, NetdevSide: in, PodGone: pod == nil}
		if err == nil && in == plan.Pod {
			w.Rules, err = pod.Link.Rules()
		}
		out.Del = plan.Preview(w, homeOf(e))
		return out, err
	}
	r, home := c.runner(pod), homeOf(e)
	w, err := r.Where(home)
	out.Del = plan.Preview(w, home)
	return out, err
}
