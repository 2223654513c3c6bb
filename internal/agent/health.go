package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// settleLooks is for how many looks a port is not judged after its device has moved: an Ethernet link may train for
// half a minute.
const settleLooks = 3

// linkDowned is the port's own count of how often its link went down (IBTA, LinkDownedCounter).
const linkDowned = "link_downed"

// countersOf reads the counters of these names.
type countersOf func(d *survey.Device, names ...string) ([]survey.Counter, error)

// healthReconciler judges the devices of the fabrics, on the host and in pods.
type healthReconciler struct {
	judge    health.Judge
	counters countersOf // nil: they are not read
	saved    *savedState
	metrics  *metrics.Metrics
	log      *slog.Logger
	now      func() time.Time

	// parts counts in how many looks in a row a device was found degraded in one place.
	parts map[string]degraded
}

type degraded struct {
	place string
	looks int
}

// degradedLooks is how many looks in a row have to find a device degraded: as many as say nothing after a move, and
// one.
const degradedLooks = 4

// problems are the reasons of the problems that the judge finds.
var problems = map[health.Problem]condition.Reason{
	health.PortDown:     condition.PortDown,
	health.NotConnected: condition.NotConnected,
	health.Flapping:     condition.Flapping,
	health.CounterLimit: condition.CounterLimit,
}

// reconcile judges each device, and notes in it what is wrong.
func (r *healthReconciler) reconcile(v *view) {
	now := r.now()
	var judged []metrics.Health
	parts := map[string]degraded{}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		devices := v.assigned[f.Name]
		for j := range devices {
			d := &devices[j]
			verdict := r.judge.Look(now, d.ID(), r.sample(d, &f.Health), &f.Health)
			d.Problem = verdict.Problem
			if reason, ok := problems[d.Problem]; ok {
				v.findings.Add(reason, condition.Device(d.ID()), "fabric %s: %s", f.Name, explain(f, d, &verdict))
			}
			part := r.degraded(f, d, v, parts)
			judged = append(judged, metrics.Health{
				Device: d.ID(), HCA: d.HCA.Name, Fabric: f.Name, Problem: string(d.Problem),
				Degraded: part, Flaps: r.judge.Flaps(d.ID()),
			})
		}
	}
	r.parts = parts
	r.judge.Forget(now)
	r.saved.Health = r.judge.Save(now)
	r.metrics.SetHealth(judged)
}

// degraded says whether some ports of a device are down, where pods get all of them, and adds a finding for it.
func (r *healthReconciler) degraded(f *fabrics.Fabric, d *survey.Device, v *view, parts map[string]degraded) bool {
	down := d.Degraded()
	if !f.AllPorts || d.Moving() || len(down) == 0 {
		return false
	}
	part := degraded{place: place(d), looks: 1}
	if before := r.parts[d.ID()]; before.place == part.place {
		part.looks += before.looks
	}
	if parts[d.ID()] = part; part.looks < degradedLooks {
		return false
	}
	var names []string
	for _, p := range down {
		names = append(names, fmt.Sprintf("port %d is %s (%s)", p.Number, p.State, p.Phys))
	}
	v.findings.Add(condition.PortDegraded, condition.Device(d.ID()), "fabric %s: %s (%s): %s, and its other ports "+
		"carry traffic; check its cable, its transceiver and the port of the switch", f.Name,
		quote.Terminal(d.HCA.Name), d.ID(), strings.Join(names, ", "))
	return true
}

// sample is a look at a device.
func (r *healthReconciler) sample(d *survey.Device, l *health.Limits) health.Sample {
	s := health.Sample{Place: place(d), Moving: d.Moving(), Active: d.Active(), Was: r.saved.wasActive(d.ID())}
	if s.Moving || r.counters == nil {
		return s
	}
	list, err := r.counters(d, append(l.Counters(), linkDowned)...)
	if err != nil {
		r.log.Debug("cannot read the counters of a device", "device", d.ID, "error", err)
	}
	if len(list) == 0 {
		return s
	}
	s.Counters = counters.Sum(list)
	// A pod that sets its Ethernet interface down takes the link down too, and the port counts that.
	if n, ok := s.Counters[linkDowned]; ok && d.LinkLayer() == device.InfiniBand {
		s.Downs = &n
	}
	return s
}

// place is where a device is, and whether its interface is up: if one of these has changed, that may be why the port
// has.
func place(d *survey.Device) string {
	p := fmt.Sprintf("away %t", d.Away)
	if d.Holder != nil {
		p += " " + d.Holder.String() + " " + d.Holder.Nonce
	}
	if d.LinkLayer() == device.Ethernet {
		p += fmt.Sprintf(" %s up %t", d.Netdev, d.AdminUp)
	}
	return p
}

// explain says what is wrong with a device, who has it, and what to do.
func explain(f *fabrics.Fabric, d *survey.Device, v *health.Verdict) string {
	text := network.Reason(d)
	if what := v.String(); what != "" {
		text = fmt.Sprintf("%s (%s): %s", quote.Terminal(d.HCA.Name), d.ID(), what)
	}
	if d.Holder != nil {
		text += "; it is in " + podOf(d.Holder)
	}
	if v.Problem == health.NotConnected {
		return text + "; it has never been Active: if it has a cable, check that, its transceiver and the port of " +
			"the switch"
	}
	text += "; check its cable, its transceiver and the port of the switch"
	if f.Health.Withhold && v.Problem != health.PortDown {
		text += "; no new pod gets it"
	}
	return text
}

// podOf names a pod in Events and conditions, which are there once for it, whatever its container.
func podOf(e *journal.Entry) string {
	if pod := e.Pod(); pod != "" {
		return "pod " + quote.Terminal(pod)
	}
	return e.Key.Who()
}
