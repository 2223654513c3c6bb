package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// values are counters that differ from those of a sound port.
type values map[string]uint64

const day = 24 * 3600

// looked is an H20 node with these counters, so long after its boot, by way of a recording.
func looked(t *testing.T, seconds float64, differ values) *Host {
	t.Helper()
	m := machines.H20().Counters(differ)
	m.Uptime(seconds)
	return recorded(t, m)[1]
}

func counted(h *Host) string { return text(hostCounters(h, topology.Fabrics{})) }

// One look: totals are evidence, unless they can't have been well since the boot.
func TestTotals(t *testing.T) {
	for name, c := range map[string]struct {
		up     float64
		differ values
		want   string
	}{
		"sound":               {30 * day, nil, ""},
		"errors of long ago":  {30 * day, values{"mlx5_3 counters/symbol_error": 65535}, ""},
		"just booted":         {600, values{"mlx5_3 counters/symbol_error": 65535}, ""},
		"uptime is not known": {0, values{"mlx5_3 counters/symbol_error": 65535}, ""},
		"all the time": {2 * 3600, values{"mlx5_3 counters/symbol_error": 60000},
			"WARN host-counters mlx5_3:1 (0000:4b:00.0): symbol_error is 60000 since the boot 2 hours ago, or since " +
				"they were reset: 500 a minute, and 10 are too many: bits that the error correction could not mend; " +
				"on a sound link hours pass without one\n"},
		"flaps": {3600, values{"mlx5_3 counters/link_downed": 20},
			"WARN host-flaps mlx5_3:1 (0000:4b:00.0): the link went down 20 times since the boot 60 minutes ago, or " +
				"since they were reset\n"},
		"some flaps": {day, values{"mlx5_3 counters/link_downed": 20}, ""},
	} {
		if d := cmp.Diff(c.want, counted(looked(t, c.up, c.differ))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	list := hostCounters(looked(t, 30*day, values{"mlx5_3 counters/symbol_error": 17}), topology.Fabrics{})
	if len(list) != 1 || !strings.Contains(list[0].Evidence, "mlx5_3:1 symbol_error 17, link_downed 1, "+
		"local_ack_timeout_err 3; ") || !strings.Contains(list[0].Evidence, "since the boot 30 days ago") {
		t.Errorf("%+v", list)
	}
	if list := hostCounters(host(t, machines.H20()), topology.Fabrics{}); len(list) > 0 {
		t.Errorf("without counters: %+v", list)
	}
}

// Two looks, both from recordings: what rose between them counts, and nothing else.
func TestRates(t *testing.T) {
	const sound = "mlx5_3 counters/symbol_error"
	why := health.Why
	for name, c := range map[string]struct {
		before, now values
		took        float64
		want        string
	}{
		"nothing rose":       {nil, nil, 10, ""},
		"errors of long ago": {values{sound: 5000}, values{sound: 5000}, 10, ""},
		"a few":              {values{sound: 5000}, values{sound: 5009}, 10, ""},
		"too many": {values{sound: 5000}, values{sound: 5120}, 10, "WARN host-counters AT: " +
			"symbol_error rose by 120 within 10s, more than 10: " + why("symbol_error") + "\n"},
		"too many in a minute": {values{sound: 5000}, values{sound: 5030}, 120, "WARN host-counters AT: " +
			"symbol_error rose by 30 within 2m0s, more than 10: " + why("symbol_error") + "\n"},
		"not in ten":    {values{sound: 5000}, values{sound: 5030}, 600, ""},
		"reset between": {values{sound: 5000}, values{sound: 4000}, 10, ""},
		"at its end": {values{sound: 65535}, values{sound: 65535}, 10, "WARN host-counters AT: " +
			"symbol_error is at 65535, the most that it can count: a rise no longer shows\n"},
		"a flap, and training": {values{"mlx5_3 counters/link_downed": 1}, values{"mlx5_3 " +
			"counters/link_downed": 3, sound: 900}, 10, "WARN host-flaps AT: the link went down 2 times within 10s\n"},
		"congestion control": {nil, values{"mlx5_3 hw_counters/rp_cnp_handled": 5000, "mlx5_3 " +
			"counters/port_xmit_wait": 1 << 30}, 10, ""},
		"retransmissions": {nil, values{"mlx5_3 hw_counters/local_ack_timeout_err": 53}, 10, "WARN " +
			"host-loss AT: local_ack_timeout_err rose by 50 within 10s, more than 10: " +
			why("local_ack_timeout_err") + "\n"},
		"a job that has ended": {nil, values{"mlx5_3 hw_counters/local_ack_timeout_err": 10}, 10, ""},
		"the worst comes first": {nil, values{sound: 11, "mlx5_3 counters/link_error_recovery": 60}, 10, "WARN " +
			"host-counters AT: link_error_recovery rose by 60 within 10s, more than 5: " +
			why("link_error_recovery") + "\nWARN host-counters AT: symbol_error rose by 11 within 10s, more " +
			"than 10: " + why("symbol_error") + "\n"},
	} {
		h := looked(t, 1000+c.took, c.now)
		h.Before = looked(t, 1000, c.before).Look
		want := strings.ReplaceAll(c.want, "AT", "mlx5_3:1 (0000:4b:00.0)")
		if d := cmp.Diff(want, counted(h)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if ids := len(hostCounters(h, topology.Fabrics{})); ids < 3 {
			t.Errorf("%s: %d findings, want one at least of flaps, counters and loss", name, ids)
		}
	}
}

// A card that was replaced, and a carrier that an Ethernet interface has lost.
func TestLooksApart(t *testing.T) {
	h := looked(t, 1010, values{"mlx5_3 counters/symbol_error": 900})
	h.Before = looked(t, 1000, nil).Look
	h.Before.Port("mlx5_3", 1).Place = "another card"
	if got := counted(h); got != "" {
		t.Errorf("another card: %s", got)
	}
	downs := func(n int) *Host {
		m := machines.RoCE().Counters(nil)
		m.Uptime(1000 + float64(n))
		m.NetFile("xgbe3", "carrier_down_count", fmt.Sprint(n))
		return recorded(t, m)[1]
	}
	h = downs(6)
	h.Before = downs(4).Look
	if got := counted(h); got != "WARN host-flaps mlx5_3:1 (0000:43:00.0): the link went down 2 times within 2s\n" {
		t.Errorf("carrier: %s", got)
	}
}

// Ethernet ports of mlx5 have their errors of the wire in the interface.
func TestInterfaceErrors(t *testing.T) {
	crc := func(seconds float64, n int) *Host {
		m := machines.RoCE()
		m.Uptime(seconds)
		m.NetFile("xgbe3", "statistics/rx_crc_errors", fmt.Sprint(n))
		return recorded(t, m)[1]
	}
	h := crc(1010, 9000)
	h.Before = crc(1000, 5000).Look
	const want = "WARN host-counters mlx5_3:1 (0000:43:00.0): rx_crc_errors rose by 4000 within 10s, more than 600: "
	if got := counted(h); got != want+health.Why("rx_crc_errors")+"\n" {
		t.Error(got)
	}
}

// What sysfs does not tell is in a file of the recording: statistics of interfaces, and devices that are in pods.
func TestLiveCounters(t *testing.T) {
	look := func(seconds float64, symbols, downs uint64, pod string, errors uint64) *Host {
		m := machines.RoCE()
		m.Uptime(seconds)
		b, err := json.Marshal(counters.Live{
			Interfaces: map[string]map[string]uint64{"xgbe3": {counters.SymbolErrors: symbols,
				"link_down_events_phy": downs}},
			Ports: []counters.Port{
				{HCA: "mlx5_4", Number: 9, Place: pod, Values: values{"symbol_error": errors}},
				{HCA: "mlx5_4", Number: 1, Place: pod, Values: values{"symbol_error": 1 << 40}}, // it is on the host
				{HCA: "elsewhere", Number: 1, Values: values{"symbol_error": errors}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.File(counters.LiveFile, string(b))
		return recorded(t, m)[1]
	}
	before := look(1000, 10, 2, "ml/a", 0).Look
	for name, c := range map[string]struct {
		now  *Host
		want string
	}{
		"sound": {look(1010, 10, 2, "ml/a", 0), ""},
		"symbols": {look(1010, 5010, 2, "ml/a", 0), "host-counters mlx5_3:1 (0000:43:00.0): rx_symbol_err_phy " +
			"rose by 5000"},
		"flaps":     {look(1010, 5010, 3, "ml/a", 0), "host-flaps mlx5_3:1 (0000:43:00.0): the link went down 1 times"},
		"in a pod":  {look(1010, 10, 2, "ml/a", 99), "host-counters mlx5_4:9 (0000:63:00.0): symbol_error rose by 99"},
		"other pod": {look(1010, 10, 2, "ml/b", 99), ""},
	} {
		c.now.Before = before
		got := counted(c.now)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The agent judges by the same numbers: a counter that doctor calls bad is one that the agent would report.
func TestOneJudgement(t *testing.T) {
	l := health.WireLimits()
	for _, d := range health.Defaults {
		if l.PerMinute[d.Counter] != d.PerMinute || health.Why(d.Counter) != d.Why {
			t.Errorf("%+v", d)
		}
		if !slices.Contains(tells, d.Counter) {
			t.Errorf("%s is judged and not shown", d.Counter)
		}
	}
	for _, d := range slices.Concat(health.Interface, health.Symptoms) {
		if !slices.Contains(tells, d.Counter) {
			t.Errorf("%+v", d)
		}
	}
	// A device that moved, or one with nothing at all.
	if c := counters.Changes(&counters.Look{}, &counters.Look{Ports: []counters.Port{{HCA: "a"}}}); len(c) > 0 {
		t.Errorf("%+v", c)
	}
}

func TestHostFirmware(t *testing.T) {
	m := machines.H20()
	h := host(t, m)
	list := hostFirmware(h, topology.Fabrics{})
	if len(list) != 1 || list[0].Status != OK {
		t.Errorf("%+v", list)
	}
	m.HCAFile("mlx5_7", "fw_ver", "28.36.1010")
	const want = "WARN host-firmware ConnectX-7 MT_0000000223: 28.39.1002 on mlx5_0, mlx5_3, mlx5_4; 28.36.1010 " +
		"on mlx5_7\n"
	h = host(t, m)
	if d := cmp.Diff(want, text(hostFirmware(h, topology.Fabrics{}))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m.HCAFile("mlx5_7", "board_id", "MT_0000000999") // another kind of card has its own
	h = host(t, m)
	if got := text(hostFirmware(h, topology.Fabrics{})); got != "" {
		t.Error(got)
	}
}
