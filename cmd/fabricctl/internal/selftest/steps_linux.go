package selftest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// step is what is done with each device.
type step struct {
	name string
	do   func(*Run, context.Context, *Device) result
}

// deviceSteps are the steps, what changes nothing first.
var deviceSteps = []step{
	{"wrong-config", (*Run).wrongConfig},
	{"attach", (*Run).attach},
	{"verbs", (*Run).verbs},
	{"check", (*Run).check},
	{"return", (*Run).giveBack},
	{"pod-death", (*Run).podDeath},
	{"repair", (*Run).afterDeath},
	{"kill", (*Run).kill},
}

// The code of the plugin for a wrong configuration.
const codeConfig = 7

// wrongConfig has the plugin refuse a configuration, with the name of the field.
func (r *Run) wrongConfig(ctx context.Context, d *Device) result {
	p, err := newPod("wrong")
	if err != nil {
		return failed(err)
	}
	out := d.call("ADD", p, d.wrongConf()).do(ctx, r.Plugin)
	if err := p.remove(); err != nil {
		return failed(err)
	}
	switch {
	case out.err == nil:
		return failed(errors.New("ADD took mtu 1"))
	case out.code != codeConfig || !strings.Contains(out.err.Error(), "mtu"):
		return failed(fmt.Errorf("the error must have code %d and name mtu: %w", codeConfig, out.err))
	}
	return r.same(ctx, "refused, nothing changed")
}

// call is a call for the device in a namespace.
func (d *Device) call(verb string, p *pod, c conf) call {
	return call{verb: verb, container: p.name, netns: p.path, conf: c}
}

// add attaches the device to a new namespace.
func (r *Run) add(ctx context.Context, d *Device, name string) error {
	p, err := newPod(name)
	if err != nil {
		return err
	}
	out := d.call("ADD", p, d.conf()).do(ctx, r.Plugin)
	if out.err != nil {
		return errors.Join(out.err, p.remove())
	}
	d.pod, d.prev = p, out.result
	if d.took == 0 || out.took < d.took {
		d.took = out.took
	}
	return nil
}

// attach attaches the device, and looks whether it is whole.
func (r *Run) attach(ctx context.Context, d *Device) result {
	if err := r.add(ctx, d, "pod"); err != nil {
		return failed(err)
	}
	wrong, err := r.inside(d)
	if err != nil {
		return failed(err)
	}
	if len(wrong) > 0 {
		return failed(errors.New(strings.Join(wrong, "; ")))
	}
	return passed(fmt.Sprintf("ADD took %.2f s", seconds(d.took)))
}

// inside looks at the device in its namespace, and says what is wrong with it.
func (r *Run) inside(d *Device) (wrong []string, err error) {
	ns, err := netns.Open(d.pod.path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		c, err := link.Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		wrong, err = d.interfaceIn(c)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.host.Link.ByName(d.Netdev); !errors.Is(err, fs.ErrNotExist) {
		wrong = append(wrong, "its interface is still on the host")
	}
	if d.HCA == "" {
		return wrong, nil
	}
	class := "class/infiniband/" + d.HCA
	err = ns.DoWithSys(func(sys fs.FS) error {
		_, err := fs.Stat(sys, class)
		return err
	})
	if err != nil {
		wrong = append(wrong, "its RDMA device is not in the namespace: "+err.Error())
	}
	if _, err := fs.Stat(r.host.Sys, class); r.host.exclusive() && err == nil {
		wrong = append(wrong, "its RDMA device is still on the host")
	}
	return wrong, nil
}

// interfaceIn says what is wrong with the interface in the namespace.
func (d *Device) interfaceIn(c *link.Conn) (wrong []string, err error) {
	n, err := c.ByName(ifName)
	if err != nil {
		return nil, err
	}
	addrs, err := c.Addrs(n.Index)
	if err != nil {
		return nil, err
	}
	var has []string
	for _, a := range addrs {
		has = append(has, a.Prefix.String())
	}
	for _, e := range []struct {
		bad  bool
		text string
	}{
		{n.Name != ifName, "the interface is called " + n.Name},
		{!slices.Contains(n.AltNames, d.Netdev), "its name on the host is no altname: " +
			strings.Join(n.AltNames, " ")},
		{n.MTU != d.mtu, fmt.Sprintf("its MTU is %d, and was %d", n.MTU, d.mtu)},
		{!n.Up(), "it is down"},
		{!slices.Contains(has, d.address), "it lacks its address, and has " + strings.Join(has, " ")},
	} {
		if e.bad {
			wrong = append(wrong, e.text)
		}
	}
	return wrong, nil
}

// verbs opens the device's file for verbs, as its pod would.
func (r *Run) verbs(_ context.Context, d *Device) result {
	switch {
	case d.pod == nil:
		return skipped("it is not attached")
	case d.HCA == "":
		return spared("it has no RDMA device")
	}
	chars, err := r.host.Chars(d.bus)
	if err != nil {
		return failed(err)
	}
	i := slices.IndexFunc(chars, func(s string) bool { return strings.HasPrefix(s, "uverbs") })
	if i < 0 {
		return skipped("it has no file for verbs: is the module ib_uverbs loaded?")
	}
	file := "/dev/infiniband/" + chars[i]
	if _, err := os.Stat(file); err != nil {
		return skipped(err.Error())
	}
	ns, err := netns.Open(d.pod.path)
	if err != nil {
		return failed(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s in the namespace: %w", file, err)
		}
		return unix.Close(fd)
	})
	if err != nil {
		return failed(err)
	}
	return passed(chars[i] + " opens in the namespace")
}

// check has the plugin look at its own work.
func (r *Run) check(ctx context.Context, d *Device) result {
	if d.pod == nil {
		return skipped("it is not attached")
	}
	c := d.conf()
	c["prevResult"] = d.prev
	if out := d.call("CHECK", d.pod, c).do(ctx, r.Plugin); out.err != nil {
		return failed(out.err)
	}
	return passed("")
}

// giveBack returns the device as a runtime does.
func (r *Run) giveBack(ctx context.Context, d *Device) result {
	if d.pod == nil {
		return skipped("it is not attached")
	}
	p := d.pod
	out := d.call("DEL", p, d.conf()).do(ctx, r.Plugin)
	if out.err != nil {
		return failed(out.err)
	}
	d.pod, d.prev = nil, nil
	if err := p.remove(); err != nil {
		return failed(err)
	}
	return r.same(ctx, fmt.Sprintf("DEL took %.2f s; the host is what it was", seconds(out.took)))
}

// podDeath deletes the namespace under the device, then comes the runtime's DEL.
func (r *Run) podDeath(ctx context.Context, d *Device) result {
	return r.death(ctx, d, func(p *pod) (err error) {
		for range 3 { // the kernel may still be taking the namespace down: runtimes call again
			out := d.call("DEL", p, d.conf()).do(ctx, r.Plugin)
			if err = out.err; err == nil {
				return nil
			}
		}
		return err
	})
}

// afterDeath deletes the namespace under the device, and no DEL comes: repair returns it.
func (r *Run) afterDeath(ctx context.Context, d *Device) result {
	return r.death(ctx, d, func(*pod) error {
		entries, err := r.ours()
		errs := []error{err}
		for _, e := range entries { // none: the agent of the node was faster
			errs = append(errs, r.repair(ctx, e))
		}
		return errors.Join(errs...)
	})
}

func (r *Run) death(ctx context.Context, d *Device, after func(*pod) error) result {
	if d.bus.IsZero() {
		return spared("a virtual interface ends with its namespace")
	}
	if err := r.add(ctx, d, "dead"); err != nil {
		return failed(err)
	}
	p := d.pod
	d.pod, d.prev = nil, nil
	if err := p.remove(); err != nil {
		return failed(err)
	}
	if err := after(p); err != nil {
		return failed(err)
	}
	return r.same(ctx, "the host is what it was")
}

// kills is how often an ADD is killed.
const kills = 5

// kill kills the plugin at random moments of an ADD, one in each fifth of it.
func (r *Run) kill(ctx context.Context, d *Device) result {
	killed := 0
	for i := range kills {
		if ctx.Err() != nil {
			return skipped("interrupted")
		}
		p, err := newPod(fmt.Sprintf("killed-%d", i))
		if err != nil {
			return failed(err)
		}
		c := d.call("ADD", p, d.conf())
		part := max(d.took/kills, time.Millisecond)
		c.killAfter = time.Duration(i)*part + rand.N(part) + 1
		add := c.do(ctx, r.Plugin)
		switch {
		case add.killed:
			killed++
		case add.err != nil:
			return failed(add.err)
		default:
			d.took = min(d.took, add.took)
		}
		after := fmt.Sprintf("ADD killed after %s", c.killAfter.Round(time.Millisecond))
		if out := d.call("DEL", p, d.conf()).do(ctx, r.Plugin); out.err != nil {
			return failed(fmt.Errorf("%s: %w", after, out.err))
		}
		if err := p.remove(); err != nil {
			return failed(err)
		}
		if out := r.same(ctx, ""); out.status != Pass {
			out.text = after + ": " + out.text
			return out
		}
	}
	if killed == 0 {
		return skipped(fmt.Sprintf("ADD ended before the signal, %d times", kills))
	}
	return passed(fmt.Sprintf("killed in %d of %d ADDs; the host is what it was", killed, kills))
}
