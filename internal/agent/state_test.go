package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// newSettings returns what an agent with this state directory starts with.
func newSettings(t *testing.T, dir string) *settingsReconciler {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	saved, err := loadState(dir)
	if err != nil {
		t.Log(err)
	}
	return &settingsReconciler{
		file: filepath.Join(dir, "settings.yaml"), saved: saved, log: log, fabrics: saved.fabrics(),
		capacity: &capacityChecker{log: log, now: time.Now},
	}
}

// load writes the settings ("": removes them), and returns the condition that they lead to, as REASON MESSAGE.
func (r *settingsReconciler) load(t *testing.T, yaml string, devices ...survey.Device) string {
	t.Helper()
	if yaml == "" {
		if err := os.Remove(r.file); err != nil {
			t.Fatal(err)
		}
	} else if err := os.WriteFile(r.file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var conditions condition.Set
	r.reconcile(t.Context(), devices, &conditions)
	c, ok := conditions.Get(condition.SettingsAccepted, condition.Node)
	if !ok {
		return ""
	}
	return c.Reason + " " + c.Message
}

func (r *settingsReconciler) inForce() (out []string) {
	for i := range r.fabrics {
		out = append(out, r.fabrics[i].Name)
	}
	return out
}

// The settings in force outlive the agent, and a definition that is to be removed is remembered until it is gone.
func TestSavedState(t *testing.T) {
	dir := t.TempDir()
	r := newSettings(t, dir)
	const both = "fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /26}}, {name: b, namespace: team, " +
		"network: {mtu: 4092}}]"
	if text := r.load(t, both); text != "" {
		t.Fatal(text)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			r = newSettings(t, dir)
		}
		text := r.load(t, "fabrics: [{name: a, network: {mut: 4092}}]")
		if !strings.HasPrefix(text, "SettingsRefused ") || !strings.Contains(text, "mut") {
			t.Errorf("%q", text)
		}
		if got := r.inForce(); !slices.Equal(got, []string{"a", "b"}) || r.fabrics[0].NodeRanges.Bits != 26 {
			t.Errorf("after a restart: %v: %+v", restart, r.fabrics)
		}
	}
	r.load(t, "fabrics: [{name: a}]")
	r = newSettings(t, dir)
	if !slices.Equal(r.saved.Leaving, []string{"team/b"}) || !slices.Equal(r.inForce(), []string{"a"}) {
		t.Errorf("%+v", r.saved)
	}
	r.load(t, "fabrics: [{name: c}]")
	r.load(t, both)
	if !slices.Equal(r.saved.Leaving, []string{"default/c"}) {
		t.Errorf("a and b are back: %v", r.saved.Leaving)
	}
	if r.load(t, ""); !slices.Equal(r.saved.Leaving, []string{"default/c"}) || len(r.fabrics) != 0 {
		t.Errorf("a missing file removes no fabric: %v", r.saved.Leaving)
	}
	if err := os.WriteFile(r.saved.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = newSettings(t, dir); len(r.fabrics) != 0 {
		t.Errorf("%+v", r.fabrics)
	}
}

// The file that an earlier version of the agent wrote is read.
func TestSavedStateOfEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	// As eaf08fa wrote it.
	const text = `{"settings":{"fabrics":[{"name":"a","match":{"linkLayer":"","subnetPrefix":"","rateGb":200,` +
		`"devices":null},"mode":"exclusive","shares":0,"namespace":"default","network":{"mtu":4092},` +
		`"nodeRanges":null}]},` +
		`"leaving":["team/b"],"devices":{"0000:3b:00.0":"a"}}`
	if err := os.WriteFile(filepath.Join(dir, "agent.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newSettings(t, dir)
	if !slices.Equal(r.inForce(), []string{"a"}) || r.fabrics[0].Match.RateGb != 200 ||
		!slices.Equal(r.saved.Leaving, []string{"team/b"}) || r.saved.Devices["0000:3b:00.0"] != "a" {
		t.Errorf("%+v, %+v", r.fabrics, r.saved)
	}
}

func rails(state device.PortState, n int) (out []survey.Device) {
	for i := range n {
		out = append(out, survey.Device{ID: string(rune('a' + i)), RateGb: 200,
			HCA: device.HCA{Ports: []device.Port{{Number: 1, State: state, LinkLayer: device.InfiniBand}}}})
	}
	return out
}

// A range that is too small for this node's devices is refused.
func TestRangeTooSmall(t *testing.T) {
	r := newSettings(t, t.TempDir())
	const small = "fabrics: [{name: a, match: {rateGb: 200}, network: {ipam: {type: whereabouts, range: 10.0.0.0/29}}}]"
	text := r.load(t, small, rails(device.PortActive, 7)...)
	if !strings.Contains(text, "network.ipam.range 10.0.0.0/29 has 6 addresses to give") || len(r.fabrics) != 0 {
		t.Errorf("%q", text)
	}
	if text := r.load(t, small, rails(device.PortActive, 6)...); text != "" || len(r.fabrics) != 1 {
		t.Errorf("%q", text)
	}
}

// The fabric that a port was in when it was last up is known after a restart.
func TestDevicesRemembered(t *testing.T) {
	dir := t.TempDir()
	s := newSettings(t, dir).saved
	for fabric, devices := range map[string][]survey.Device{
		"fast": rails(device.PortActive, 2), "slow": rails(device.PortDown, 1),
	} {
		if err := s.setDevices(map[string][]survey.Device{fabric: devices}); err != nil {
			t.Fatal(err)
		}
	}
	s = newSettings(t, dir).saved
	if s.Devices["a"] != "fast" || s.Devices["b"] != "fast" {
		t.Errorf("%v", s.Devices)
	}
}

func TestCheckMode(t *testing.T) {
	here := map[string][]survey.Device{"f": rails(device.PortActive, 1)}
	for _, tt := range []struct {
		mode     settings.Mode
		rdma     any
		node     device.NetnsMode
		assigned map[string][]survey.Device
		usable   bool
		want     string
	}{
		{settings.Exclusive, "exclusive", device.NetnsShared, here, false, `"rdma" is "exclusive", but the system's`},
		{settings.Exclusive, nil, device.NetnsShared, here, true, "hands out whole devices"},
		{settings.Exclusive, "auto", device.NetnsShared, here, true, "hands out whole devices"},
		{settings.Exclusive, "shared", device.NetnsShared, here, true, ""},
		{settings.Exclusive, "shared", device.NetnsExclusive, here, false, "mode is exclusive"},
		{settings.Exclusive, "exclusive", device.NetnsExclusive, here, true, ""},
		{settings.Exclusive, "exclusive", device.NetnsShared, nil, true, ""},
		{settings.Shared, nil, device.NetnsShared, here, true, ""},
	} {
		f := settings.Fabric{Name: "f", Mode: tt.mode, Network: map[string]any{}}
		if tt.rdma != nil {
			f.Network["rdma"] = tt.rdma
		}
		usable, err := checkModeOf([]settings.Fabric{f}, tt.assigned, tt.node)
		if usable != tt.usable || (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, %v", tt, usable, err)
		}
	}
}
