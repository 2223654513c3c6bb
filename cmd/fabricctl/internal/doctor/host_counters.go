package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// tells are the counters that are evidence when they are not zero, in the order in which they are shown: what
// perfquery, ethtool -S and mlxlink are asked for first.
var tells = []string{
	"symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", counters.CRCErrors,
	counters.SymbolErrors, counters.Discards, "local_link_integrity_errors", "excessive_buffer_overrun_errors",
	"port_xmit_discards", "port_rcv_remote_physical_errors", "VL15_dropped", "local_ack_timeout_err", "packet_seq_err",
	"out_of_sequence", "implied_nak_seq_err", "rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart",
	"rx_icrc_encapsulated", "out_of_buffer", "np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled",
	"port_xmit_wait",
}

// hostCounters judges the counters of the ports: by two looks what rises, and by one what can't have been well
// since the
// boot. The limits are those by which the agent judges.
func hostCounters(h *Host, _ topology.Fabrics) []Finding {
	if h.Look == nil || !slices.ContainsFunc(h.Look.Ports, func(p counters.Port) bool { return p.Values != nil }) {
		return nil
	}
	if h.Before == nil {
		return h.totals()
	}
	changes := counters.Changes(h.Before, h.Look)
	var out []Finding
	var flaps, wire, loss []Finding
	for i := range changes {
		c := &changes[i]
		if c.Lost > 0 {
			flaps = append(flaps, finding("host-flaps", Warn, fmt.Sprintf("%s: the link went down %d times within %s",
				h.portAt(c.Port), c.Lost, c.Took)))
			continue // a link in training has errors that say nothing of the trained one
		}
		for _, v := range health.WireLimits().Compare(c.Was, c.Now, c.Took) {
			wire = append(wire, h.rose("host-counters", c, &v))
		}
		wire = append(wire, h.stuck(c.Port)...)
		for _, v := range health.SymptomLimits(c.Took).Compare(c.Was, c.Now, c.Took) {
			loss = append(loss, h.rose("host-loss", c, &v))
		}
	}
	took := h.Look.Up - h.Before.Up
	out = append(out, pass(flaps, "host-flaps", fmt.Sprintf("no link went down within %s", took))...)
	out = append(out, pass(wire, "host-counters", fmt.Sprintf("%d ports, within %s: %s", len(changes), took,
		cmp.Or(rises(changes), "no error was counted")))...)
	return append(out, pass(loss, "host-loss", fmt.Sprintf("nothing was lost on the way within %s", took))...)
}

// rose is a finding of a counter that rose too fast.
func (h *Host) rose(id string, c *counters.Change, v *health.Verdict) Finding {
	f := finding(id, Warn, fmt.Sprintf("%s: %s rose by %d within %s, more than %d: %s", h.portAt(c.Port), v.Counter,
		c.Rise(v.Counter), c.Took, v.Limit, health.Why(v.Counter)))
	return h.mendCounter(f, c.HCA)
}

// mendCounter names the device in the cure.
func (h *Host) mendCounter(f Finding, hca string) Finding {
	if d := h.Node.HCA(hca); d != nil && d.PCI != "" {
		f.Cure = strings.ReplaceAll(f.Cure, "ADDRESS", quote.Shell(d.PCI))
	}
	return f
}

// stuck finds counters that have stopped at the most that they can count: two looks can't see them rise.
func (h *Host) stuck(p *counters.Port) (out []Finding) {
	for _, name := range health.WireLimits().Counters() {
		if v := p.Values[name]; counters.AtEnd(name, v) {
			f := finding("host-counters", Warn, fmt.Sprintf("%s: %s is at %d, the most that it can count: a rise "+
				"no longer shows", h.portAt(p), name, v))
			f.Cause = "the counter does not wrap: it has stopped, maybe long ago"
			f.Cure = "perfquery -r resets the counters of this node's port (-C HCA -P PORT); then fabricctl " +
				"doctor host --duration 1m"
			out = append(out, f)
		}
	}
	return out
}

// totals judges what one look sees.
func (h *Host) totals() []Finding {
	since, flaps := h.since(), []Finding{}
	var wire []Finding
	var seen []string
	for i := range h.Look.Ports {
		p := &h.Look.Ports[i]
		for _, v := range health.WireLimits().CompareTotals(p.Values, h.Look.Up) {
			f := finding("host-counters", Warn, fmt.Sprintf("%s: %s is %d %s: %d a minute, and %d are too many: %s",
				h.portAt(p), v.Counter, p.Values[v.Counter], since, v.Rate, v.Limit, health.Why(v.Counter)))
			wire = append(wire, h.mendCounter(f, p.HCA))
		}
		if health.FlapsTotals(p.Values["link_downed"], h.Look.Up) {
			flaps = append(flaps, finding("host-flaps", Warn, fmt.Sprintf("%s: the link went down %d times %s",
				h.portAt(p), p.Values["link_downed"], since)))
		}
		if text := notable(p.Values); text != "" {
			seen = append(seen, p.Name()+" "+text)
		}
	}
	return append(flaps, pass(wire, "host-counters", cmp.Or(several(seen), "no errors")+" "+since+
		"; fabricctl doctor host --duration 1m says what rises now")...)
}

// since says what totals are counted from, as far as anybody knows.
func (h *Host) since() string {
	if h.Look.Up == 0 {
		return "since the boot, or since they were reset"
	}
	return "since the boot " + ago(h.Look.Up.Hours()) + " ago, or since they were reset"
}

// ago is a time in words: 12 days, 3 hours, 40 minutes.
func ago(hours float64) string {
	switch {
	case hours >= 48:
		return fmt.Sprintf("%.0f days", hours/24)
	case hours >= 2:
		return fmt.Sprintf("%.0f hours", hours)
	}
	return fmt.Sprintf("%.0f minutes", hours*60)
}

// portAt is a port of a look and where its hardware is.
func (h *Host) portAt(p *counters.Port) string {
	if d := h.Node.HCA(p.HCA); d != nil && d.PCI != "" {
		return p.Name() + " (" + d.PCI + ")"
	}
	return p.Name()
}

// notable are the errors that a port has counted.
func notable(values map[string]uint64) string {
	var out []string
	for _, name := range tells {
		if v := values[name]; v > 0 && name != "port_xmit_wait" {
			out = append(out, fmt.Sprintf("%s %d", name, v))
		}
	}
	return strings.Join(out, ", ")
}

// rises are the counters that rose, with those that mean nothing bad by themselves.
func rises(changes []counters.Change) string {
	var seen []string
	for i := range changes {
		c := &changes[i]
		var out []string
		for _, name := range tells {
			if n := c.Rise(name); n > 0 {
				out = append(out, fmt.Sprintf("%s +%d", name, n))
			}
		}
		if len(c.Set) > 0 {
			out = append(out, fmt.Sprintf("%d counters were reset", len(c.Set)))
		}
		if len(out) > 0 {
			seen = append(seen, c.Name()+" "+strings.Join(out, ", "))
		}
	}
	return several(seen)
}

// several joins what is said of ports, of many the first ones.
func several(parts []string) string {
	const most = 8
	if len(parts) > most {
		return fmt.Sprintf("%s; and %d more ports", strings.Join(parts[:most], "; "), len(parts)-most)
	}
	return strings.Join(parts, "; ")
}

// hostFirmware finds cards of one board (PSID) with different firmware: the same traffic then behaves differently.
func hostFirmware(h *Host, _ topology.Fabrics) (out []Finding) {
	boards, order := map[string]map[string][]string{}, []string{}
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if d.Kind != "PF" || d.Firmware == "" || d.ID == "" {
			continue
		}
		board := cmp.Or(d.Model, d.ID)
		if d.Board != "" {
			board += " " + d.Board
		}
		if boards[board] == nil {
			boards[board] = map[string][]string{}
			order = append(order, board)
		}
		boards[board][d.Firmware] = append(boards[board][d.Firmware], d.Name)
	}
	for _, b := range order {
		if len(boards[b]) > 1 {
			out = append(out, finding("host-firmware", Warn, b+": "+spread(boards[b], 20)))
		}
	}
	if len(order) == 0 {
		return nil
	}
	return pass(out, "host-firmware", "one version on all cards of a kind")
}
