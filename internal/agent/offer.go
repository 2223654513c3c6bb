package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// offerReconciler decides with which units a new pod could be served. The others are unhealthy for kubelet, and a
// finding says why. A unit that a pod has stays as it is: kubelet counts it, and compares it when it starts.
type offerReconciler struct {
	networks *networkReconciler
	mode     func() (device.NetnsMode, error) // the node's RDMA mode
	ipam     ipamReconciler
	holders  holderReader
	metrics  *metrics.Metrics
	log      *slog.Logger

	// What the last look found. It counts when it is found twice: a pod that begins or ends is seen half-way.
	strangers map[string]string // device -> id of its user
	lost      map[string]int64  // fabric -> addresses that no attachment has
}

// unit is one unit that may be offered.
type unit struct {
	deviceplugin.Unit
	device *survey.Device
	held   bool   // a pod has it
	reason string // why no new pod can be served with it
}

func (r *offerReconciler) reconcile(ctx context.Context, v *view) {
	v.withheld = map[string]map[string]string{}
	h := r.holders.read(ctx)
	missing := r.ipam.reconcile(v, h.paths)
	useless := r.checkModes(v)
	strangers, lost := map[string]string{}, map[string]int64{}
	var unserved []metrics.Health
	for i := range v.fabrics {
		f := &v.fabrics[i]
		devices := v.assigned[f.Name]
		if len(devices) == 0 {
			continue
		}
		for j := range devices {
			devices[j].Unserved = ""
		}
		var why string
		switch {
		case missing[f.Name]:
			why = condition.IPAMMissing.Name
		case useless[f.Name]:
			why = condition.WrongRDMAMode.Name
		default:
			why = r.unconfigured(f, v)
		}
		units := r.units(f, v, h, strangers)
		for j := range units {
			if u := &units[j]; !u.held && u.reason == "" {
				u.reason = why
			}
		}
		if why == "" && f.NodeRanges != nil {
			r.ration(f, v, h.on[f.Name], units, lost)
		}
		v.withheld[f.Name] = mark(units)
		for j := range devices {
			if d := &devices[j]; d.Unserved != "" {
				unserved = append(unserved, metrics.Health{
					Device: d.ID(), HCA: d.HCA.Name, Fabric: f.Name, Problem: d.Unserved,
				})
			}
		}
	}
	r.strangers, r.lost = strangers, lost
	r.metrics.SetUnserved(unserved)
}

// unconfigured says why Multus finds no configuration of the network on this node; empty: it finds one.
func (r *offerReconciler) unconfigured(f *fabrics.Fabric, v *view) string {
	devices := v.assigned[f.Name]
	err := r.networks.failed[f.Name]
	switch {
	case !f.OfNode(): // the definition has it
		return ""
	case !network.Configurable(f, devices):
		err = errors.New("none of its devices here has an interface on the host, which the IPoIB children of mode " +
			"shared need as their parent: modprobe ib_ipoib")
	case err == nil:
		if f.NodeRanges != nil {
			if _, err := r.networks.ranges.own(f); err != nil {
				return condition.NoRange.Name // rangeReconciler has reported it
			}
		}
		_, err = r.networks.configOf(f, devices)
	}
	if err == nil {
		return ""
	}
	v.findings.Add(condition.NoConfiguration, condition.Fabric(f.Name),
		"fabric %s has no network configuration on this node: %v", f.Name, err)
	return condition.NoConfiguration.Name
}

// units are the units of a fabric with their holders. A unit that a stranger has is withheld.
func (r *offerReconciler) units(f *fabrics.Fabric, v *view, h *holders, strangers map[string]string) (out []unit) {
	devices := v.assigned[f.Name]
	attached := h.on[f.Name]
	for j := range devices {
		d := &devices[j]
		why := r.stranger(f, d, v, h, strangers)
		for _, u := range network.Units(f, devices[j:j+1]) {
			one := unit{Unit: u, device: d, reason: why}
			switch _, given := h.to(f, u.ID); {
			case why != "":
			case f.Attachment == v1alpha1.WholeDevice:
				if one.held = given || len(h.whole[d.Address.String()]) > 0; !one.held {
					one.reason = byHost(f, d, v)
				}
			case h.given != nil:
				one.held = given
			case attached > 0: // which of them only kubelet knows
				one.held = true
				attached--
			}
			out = append(out, one)
		}
	}
	return out
}

// stranger adds a finding for a device whose holder was not given it.
func (r *offerReconciler) stranger(
	f *fabrics.Fabric, d *survey.Device, v *view, h *holders, strangers map[string]string,
) string {
	u, sure := h.stranger(f, d)
	if u == nil {
		return ""
	}
	strangers[d.ID()] = u.id
	if !sure && r.strangers[d.ID()] != u.id {
		return ""
	}
	v.findings.Add(condition.InUseElsewhere, condition.Device(d.ID()), "fabric %s: %s (%s) is not free, and no pod "+
		"of the fabric can have it: %s; it is on offer again when that pod has ended", f.Name,
		quote.Terminal(d.HCA.Name), d.ID(), u)
	return condition.InUseElsewhere.Name
}

// byHost adds a finding for a device that something on the host uses: the move into a pod would cut its connections.
// A pod in the host's network namespace that was given the device is no such thing.
func byHost(f *fabrics.Fabric, d *survey.Device, v *view) string {
	if len(d.Users) == 0 {
		return ""
	}
	v.findings.Add(condition.InUseByHost, condition.Device(d.ID()), "fabric %s: RDMA device %s (%s) is in use by "+
		"the host, and no pod can have it: %s; it is on offer again when that has ended, or when allowHostUse in the "+
		"node policy has it", f.Name, quote.Terminal(d.HCA.Name), d.ID(), strings.Join(d.Users, ", "))
	return condition.InUseByHost.Name
}

// ration withholds the units for which the node's own ranges have no address left. Which ones these are does not depend
// on pods that come and go: an attachment that has a unit has an address too.
func (r *offerReconciler) ration(
	f *fabrics.Fabric, v *view, attached int, units []unit, lost map[string]int64,
) {
	own, err := r.networks.ranges.own(f)
	if err != nil {
		return // which is a finding
	}
	capacity := int64(math.MaxInt64)
	for i, p := range own { // an interface has an address of each
		capacity = min(capacity, int64(f.NodeRanges.Ranges[i].Capacity(p)))
	}
	held, free := int64(0), int64(0)
	for i := range units {
		switch need := interfaces(f, units[i].device); {
		case units[i].held:
			held += need
		case units[i].reason == "" && units[i].Healthy:
			free += need
		}
	}
	lost[f.Name] = max(0, v.given[f.Name]-int64(attached))
	gone := min(lost[f.Name], r.lost[f.Name])
	spare := max(0, capacity-gone-held)
	if free <= spare {
		return
	}
	v.findings.Add(condition.NoAddressLeft, condition.Fabric(f.Name), "fabric %s: the node's range %s has %d "+
		"addresses to give, %d of them to attachments that are not known any more, and %d devices or shares are on "+
		"offer: those without an address are withheld; choose a shorter perNodePrefixLength for a new "+
		"Fabric, or fewer shares",
		f.Name, own[0], capacity, gone, len(units))
	for i := range units {
		u := &units[i]
		switch need := interfaces(f, u.device); {
		case u.held || u.reason != "" || !u.Healthy:
		case spare >= need:
			spare -= need
		default:
			u.reason = condition.NoAddressLeft.Name
		}
	}
}

// interfaces is how many a pod gets with a device, each of which needs an address.
func interfaces(f *fabrics.Fabric, d *survey.Device) int64 {
	if !f.AllPorts {
		return 1
	}
	return int64(max(1, len(d.HCA.Ports)))
}

// mark notes in each device why no new pod can be served with it, and returns the units that are withheld, with the
// reason. A device of which some share can be given is well.
func mark(units []unit) map[string]string {
	out := map[string]string{}
	served := map[*survey.Device]bool{}
	for i := range units {
		u := &units[i]
		if u.reason != "" {
			out[u.ID] = u.reason
		} else if !u.held {
			served[u.device] = true
		}
	}
	for i := range units {
		if u := &units[i]; u.reason != "" && !served[u.device] {
			u.device.Unserved = cmp.Or(u.device.Unserved, u.reason)
		}
	}
	return out
}
