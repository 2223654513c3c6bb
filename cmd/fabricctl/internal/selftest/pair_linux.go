package selftest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// iterations of each program of perftest: it is to show that traffic flows, not how fast.
const iterations = 100

// traffic gives the first two devices to two namespaces, and measures between them as verify does.
func (r *Run) traffic(ctx context.Context) result {
	if len(r.Devices) < 2 {
		return spared("it takes two devices: --devices A,B")
	}
	a, b := r.Devices[0], r.Devices[1]
	switch {
	case ctx.Err() != nil:
		return skipped("interrupted")
	case a.lost != "":
		return skipped(a.lost)
	}
	for _, d := range []*Device{a, b} {
		if err := r.host.carries(d); err != nil {
			return skipped(err.Error())
		}
	}
	out := r.between(ctx, a, b)
	if ctx.Err() != nil {
		out = skipped("interrupted")
	}
	if err := r.recover(ctx); err != nil {
		return failed(err)
	}
	if back := r.same(context.WithoutCancel(ctx), ""); back.status != Pass {
		return back
	}
	return out
}

// carries returns an error if the port can't carry traffic. An Ethernet port comes up with its interface.
func (h *host) carries(d *Device) error {
	if d.layer != device.InfiniBand {
		return nil
	}
	hca, err := h.HCANamed(d.HCA)
	if err == nil {
		err = h.RDMA.Ports(hca)
	}
	if err == nil && hca.Ports[0].State != device.PortActive { // Find has seen a port
		err = fmt.Errorf("the port of %s is not Active: %s", d.HCA, hca.Ports[0].State)
	}
	return err
}

func (r *Run) between(ctx context.Context, a, b *Device) result {
	var ends []*measure.End
	for i, d := range []*Device{a, b} {
		if err := r.add(ctx, d, fmt.Sprintf("end-%d", i)); err != nil {
			return failed(err)
		}
		e, err := measure.Netns(d.pod.path)
		if err != nil {
			return failed(err)
		}
		defer e.Close()
		ends = append(ends, e)
	}
	if _, err := exec.LookPath("ping"); err != nil {
		return skipped("ping is not installed (package iputils-ping)")
	}
	o := measure.Options{Ping: measure.Must, RPing: measure.IfCan, Iterations: iterations}
	if _, err := exec.LookPath("ib_write_bw"); err == nil {
		o.Bandwidth = measure.IfCan
	}
	list, notes, err := measure.All(ctx, ends, o)
	if err != nil {
		return failed(err)
	}
	return judge(list, notes, a.layer == device.InfiniBand && b.layer == device.InfiniBand)
}

// judge says what a measurement shows. Two Ethernet ports need not be in one network, and InfiniBand ports mostly are.
func judge(list []perftest.Result, notes []string, together bool) result {
	var said []string
	pinged := len(list) > 0
	for i := range list {
		l := &list[i]
		pinged = pinged && l.Ping == "reachable"
		for _, w := range []string{"ping " + l.Ping, "rping " + l.RPing, l.Text} {
			if strings.Contains(w, " ") && !strings.HasSuffix(w, " ") {
				said = append(said, w)
			}
		}
	}
	text := strings.Join(append(said, notes...), "; ")
	switch worst := perftest.Worst(list); {
	case worst == perftest.Failed && !pinged && !together:
		return skipped("no traffic, which two ports of different networks can't have: " + text)
	case worst == perftest.Failed:
		return failed(errors.New(text))
	case !pinged:
		return skipped(text)
	}
	return passed(text) // perftest may have no figure: it says why
}
