package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func newLooker(t *testing.T, dir string) *looker {
	t.Helper()
	l := &looker{
		o:   &Options{StateDir: dir, Settings: filepath.Join(dir, "settings.yaml")},
		log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		now: time.Now,
	}
	l.recall()
	return l
}

func (l *looker) load(t *testing.T, yaml string, devices ...survey.Device) string {
	t.Helper()
	if yaml == "" {
		if err := os.Remove(l.o.Settings); err != nil {
			t.Fatal(err)
		}
	} else if err := os.WriteFile(l.o.Settings, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	l.settings(t.Context(), devices, said)
	return said["settings"]
}

func (l *looker) inForce() (out []string) {
	for i := range l.good {
		out = append(out, l.good[i].Name)
	}
	return out
}

// The settings in force outlive the agent, and what leaves them is remembered until it is gone.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	l := newLooker(t, dir)
	const both = "fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /26}}, {name: b, namespace: team, " +
		"network: {mtu: 4092}}]"
	if said := l.load(t, both); said != "" {
		t.Fatal(said)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			l = newLooker(t, dir)
		}
		if said := l.load(
			t,
			"fabrics: [{name: a, network: {mut: 4092}}]",
		); !strings.Contains(said, "SettingsRefused") ||
			!strings.Contains(said, "mut") {
			t.Errorf("%q", said)
		}
		if got := l.inForce(); !slices.Equal(got, []string{"a", "b"}) || l.good[0].NodeRanges.Bits != 26 {
			t.Errorf("after a restart: %v: %+v", restart, l.good)
		}
	}
	l.load(t, "fabrics: [{name: a}]")
	l = newLooker(t, dir)
	if !slices.Equal(l.memory.Leaving, []string{"team/b"}) || !slices.Equal(l.inForce(), []string{"a"}) {
		t.Errorf("%+v", l.memory)
	}
	l.load(t, "fabrics: [{name: c}]")
	l.load(t, both)
	if !slices.Equal(l.memory.Leaving, []string{"default/c"}) {
		t.Errorf("a and b are back: %v", l.memory.Leaving)
	}
	if l.load(t, ""); !slices.Equal(l.memory.Leaving, []string{"default/c"}) || len(l.good) != 0 {
		t.Errorf("no file does not say that fabrics have left: %v", l.memory.Leaving)
	}
	if err := os.WriteFile(l.memoryFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l = newLooker(t, dir); len(l.good) != 0 {
		t.Errorf("%+v", l.good)
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
	l := newLooker(t, t.TempDir())
	const small = "fabrics: [{name: a, match: {rateGb: 200}, network: {ipam: {type: whereabouts, range: 10.0.0.0/29}}}]"
	if said := l.load(
		t,
		small,
		rails(
			device.PortActive,
			7,
		)...); !strings.Contains(said, "network.ipam.range 10.0.0.0/29 has 6 addresses to give") ||
		len(l.good) != 0 {
		t.Errorf("%q", said)
	}
	if said := l.load(t, small, rails(device.PortActive, 6)...); said != "" || len(l.good) != 1 {
		t.Errorf("%q", said)
	}
}

// The file of a network that a pod of this node is on stays when its fabric has left; one with nodeRanges stays while
// nobody knows better, and goes when its part is another node's.
func TestFilesStay(t *testing.T) {
	l := newLooker(t, t.TempDir())
	l.o.ConfDir = filepath.Join(l.o.StateDir, "net.d")
	attachment := filepath.Join(l.o.StateDir, "attachments/a@net1")
	if err := os.MkdirAll(filepath.Dir(attachment), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		attachment,
		[]byte(`{"version":1,"containerID":"a","ifName":"net1","kind":"ipoib","network":"used"}`),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	l.load(t, "fabrics: [{name: parted, nodeRanges: {range: 10.0.0.0/16, perNode: /26}}, {name: shared, mode: shared}]")
	files := func(want ...string) {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(l.o.ConfDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "fabric-agent-"), ".conf"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	b := []byte("{}")
	l.write(map[string][]byte{"used": b, "unused": b, "parted": b, "shared": b})
	files("parted", "shared", "unused", "used")
	l.write(nil)
	files("parted", "used")
	l.parts = map[string]part{"parted": {lost: true}}
	l.write(nil)
	files("used")
	if err := os.Remove(attachment); err != nil {
		t.Fatal(err)
	}
	l.write(nil)
	files()
}

// Where a port was when it was last up is known after a restart.
func TestDevicesRemembered(t *testing.T) {
	dir := t.TempDir()
	l := newLooker(t, dir)
	l.remember(map[string][]survey.Device{"fast": rails(device.PortActive, 2)})
	l.remember(map[string][]survey.Device{"slow": rails(device.PortDown, 1)})
	l = newLooker(t, dir)
	if l.memory.Devices["a"] != "fast" || l.memory.Devices["b"] != "fast" {
		t.Errorf("%v", l.memory.Devices)
	}
}

func TestMisfit(t *testing.T) {
	here := map[string][]survey.Device{"f": rails(device.PortActive, 1)}
	for _, tt := range []struct {
		mode     settings.Mode
		rdma     any
		node     device.NetnsMode
		assigned map[string][]survey.Device
		serious  bool
		want     string
	}{
		{settings.Exclusive, "exclusive", device.NetnsShared, here, true, "wants RDMA devices moved"},
		{settings.Exclusive, nil, device.NetnsShared, here, false, "hands out whole devices"},
		{settings.Exclusive, "auto", device.NetnsShared, here, false, "hands out whole devices"},
		{settings.Exclusive, "shared", device.NetnsShared, here, false, ""},
		{settings.Exclusive, "shared", device.NetnsExclusive, here, true, "is exclusive"},
		{settings.Exclusive, "exclusive", device.NetnsExclusive, here, false, ""},
		{settings.Exclusive, "exclusive", device.NetnsShared, nil, false, ""},
		{settings.Shared, nil, device.NetnsShared, here, false, ""},
	} {
		f := settings.Fabric{Name: "f", Mode: tt.mode, Network: map[string]any{}}
		if tt.rdma != nil {
			f.Network["rdma"] = tt.rdma
		}
		serious, err := misfit([]settings.Fabric{f}, tt.assigned, tt.node)
		if serious != tt.serious || (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, %v", tt, serious, err)
		}
	}
}
