package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Run is one test of some devices.
type Run struct {
	Store    journal.Store
	Plugin   string // path of the plugin
	Devices  []*Device
	Patience time.Duration // that what the kernel does by itself may take; 0: a minute
	Done     func(Step)    // called after each step

	host   *host
	before State
	steps  []Step
	lost   bool // the host is not what it was, and can't be made so
	lock   net.Listener
}

// ErrBusy says that another selftest runs.
var ErrBusy = errors.New("another fabricctl selftest runs on this node")

// Begin keeps other runs away until Close. An abstract socket leaves nothing behind, whatever the process dies of.
func (r *Run) Begin() (err error) {
	if r.lock, err = net.Listen("unix", "@fabric-selftest"); err != nil {
		return ErrBusy
	}
	r.Patience = cmp.Or(r.Patience, time.Minute)
	if r.host, err = openHost(r.Store); err != nil {
		_ = r.lock.Close() // nothing has been done
	}
	return err
}

// Close ends the run.
func (r *Run) Close() {
	r.host.close()
	_ = r.lock.Close() // it ends with the process anyhow
}

// Leftovers returns what a run that was killed has left. It is called before anything is looked for on the host.
func (r *Run) Leftovers(ctx context.Context) (cleaned bool, err error) {
	entries, err := r.ours()
	if err != nil {
		return false, err
	}
	if len(entries) == 0 && len(pods()) == 0 {
		return false, nil
	}
	return true, r.recover(ctx)
}

// ours are the attachments of selftest.
func (r *Run) ours() (out []*journal.Entry, err error) {
	entries, err := r.Store.List()
	for _, e := range entries {
		if strings.HasPrefix(e.ContainerID, prefix) {
			out = append(out, e)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, journal.ErrCorrupt) { // damaged ones are not ours to judge
		err = nil
	}
	return out, err
}

// recover returns everything that selftest has attached, with the DEL of a runtime where the namespace is there, and as
// repair does where it is gone, and removes its namespaces. It goes on past errors.
func (r *Run) recover(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	entries, err := r.ours()
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, r.bringBack(ctx, e))
	}
	for _, p := range pods() {
		errs = append(errs, p.remove())
	}
	for _, d := range r.Devices {
		d.pod, d.prev = nil, nil
	}
	return errors.Join(errs...)
}

// bringBack returns one attachment. If a DEL can't, the kernel takes the device out of the namespace as that ends.
func (r *Run) bringBack(ctx context.Context, e *journal.Entry) error {
	if _, err := os.Stat(e.NetnsPath); err == nil && len(e.Conf) > 0 {
		c := call{verb: "DEL", container: e.ContainerID, netns: e.NetnsPath, conf: e.Conf}
		if out := c.do(ctx, r.Plugin); out.err == nil {
			return nil
		}
	}
	err := (&pod{path: filepath.Join(namespaces, e.ContainerID)}).remove()
	return errors.Join(err, r.repair(ctx, e))
}

// repair does what fabricctl repair does. The kernel takes down one namespace after the other, at times for longer than
// a DEL waits: it is called again.
func (r *Run) repair(ctx context.Context, e *journal.Entry) error {
	err := errors.New("it was not called")
	for range 3 {
		ctx, cancel := context.WithTimeout(ctx, longCall)
		if err = repair.Del(ctx, r.Plugin, e); err == nil {
			err = repair.Kept(r.Store, e)
		}
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("return %s: %w", e.ContainerID, err)
}

// result is how a step ended.
type result struct {
	status Status
	text   string
	diff   []string
	missed bool
}

func passed(text string) result { return result{status: Pass, text: text} }
func failed(err error) result   { return result{status: Fail, text: err.Error()} }

// skipped is a step that could not be done, and left a gap.
func skipped(why string) result { return result{status: Skip, text: why, missed: true} }

// spared is a step that need not be done here.
func spared(why string) result { return result{status: Skip, text: why} }

// note takes down a step.
func (r *Run) note(device, name string, begun time.Time, out result) {
	s := Step{Device: device, Name: name, Result: out.status, Seconds: seconds(time.Since(begun)), Text: out.text,
		Diff: out.diff, Missed: out.missed}
	r.steps = append(r.steps, s)
	if r.Done != nil {
		r.Done(s)
	}
}

// same waits until the host is what it was before.
func (r *Run) same(ctx context.Context, good string) result { return r.sameSoon(ctx, good, r.Patience) }

func (r *Run) sameSoon(ctx context.Context, good string, patience time.Duration) result {
	diff, err := r.host.differs(ctx, r.before, patience)
	switch {
	case err != nil && len(diff) == 0:
		return failed(err)
	case len(diff) > 0:
		return result{status: Fail, text: fmt.Sprintf("the host is not what it was, after %s", r.Patience), diff: diff}
	}
	return passed(good)
}

// All does all steps, and fills in what the report says of them. It returns an error if nothing was done.
func (r *Run) All(ctx context.Context, report *Report) error {
	begun := time.Now()
	for _, d := range r.Devices {
		r.host.tested = append(r.host.tested, d.Netdev, d.HCA)
	}
	var err error
	if r.before, err = r.host.settled(ctx, r.Patience); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	r.note("", "snapshot", begun, passed(fmt.Sprintf("%d values", len(r.before))))
	for _, d := range r.Devices {
		r.device(ctx, d)
	}
	begun = time.Now()
	r.note("", "traffic", begun, r.traffic(ctx))
	begun = time.Now()
	last, patience := context.WithoutCancel(ctx), r.Patience
	if r.lost {
		patience = 0 // it has been waited for
	}
	err = r.recover(last)
	out := r.sameSoon(last, "what it was before the first step", patience)
	if err != nil {
		out.status, out.text = Fail, err.Error()
	}
	r.note("", "host", begun, out)
	report.Restored = out.status == Pass
	if !report.Restored {
		report.Left = r.byHand()
	}
	report.Steps = r.steps
	return nil
}

// byHand says what to do where selftest could not.
func (r *Run) byHand() []string {
	out := []string{"fabricctl list shows what of " + prefix + "... is still attached, and fabricctl doctor host " +
		"what is wrong"}
	entries, _ := r.ours() // without the journal repair says why
	if len(entries) > 0 {
		out = append(out, "fabricctl repair --plugin "+r.Plugin)
	}
	for _, p := range pods() {
		out = append(out, "ip netns delete "+p.name)
	}
	return append(out, "the lines with - of the step host are what the host had: ip and rdma set them again, or a "+
		"reboot")
}

// device tests one device.
func (r *Run) device(ctx context.Context, d *Device) {
	for _, s := range deviceSteps {
		begun := time.Now()
		switch {
		case ctx.Err() != nil:
			r.note(d.Name, s.name, begun, skipped("interrupted"))
			continue
		case d.lost != "":
			r.note(d.Name, s.name, begun, skipped(d.lost))
			continue
		}
		out := s.do(r, ctx, d)
		stopped := ctx.Err() != nil && out.status == Fail
		if stopped {
			out = skipped("interrupted")
		}
		r.note(d.Name, s.name, begun, out)
		if out.status != Fail && !stopped {
			continue
		}
		patience := r.Patience
		if len(out.diff) > 0 && d.pod == nil {
			patience = 0 // it has been waited for
		}
		err := r.recover(ctx)
		if back := r.sameSoon(context.WithoutCancel(ctx), "", patience); back.status != Pass || err != nil {
			r.lose("the host is not what it was since step " + s.name + " of " + d.Name)
		}
	}
	_ = r.recover(ctx) // the last step says what it could not
}

// lose gives up on all devices.
func (r *Run) lose(why string) {
	r.lost = true
	for _, d := range r.Devices {
		d.lost = why
	}
}
