package network_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func hca(pci, name, netdev string, state device.PortState) survey.Device {
	return survey.Device{
		Location: device.LocationOnPCI(pci),
		Netdev:   netdev,
		AdminUp:  true,
		NUMA:     1,
		RateGb:   200,
		Prefix:   device.DefaultSubnetPrefix,
		Files:    []string{"/dev/infiniband/uverbs0"},
		HCA: device.HCA{
			Name:  name,
			Ports: []device.Port{{Number: 1, State: state, Phys: device.PhysPolling, LinkLayer: device.InfiniBand}},
		},
	}
}

// The A100 nodes of a cluster with two fabrics: two cards, a port of each Up, and a bond that is the node's own.
func node() []survey.Device {
	up, down := hca(
		"0000:3b:00.0",
		"mlx5_0",
		"ibs108",
		device.PortActive,
	), hca(
		"0000:5e:00.0",
		"mlx5_3",
		"ibs110",
		device.PortDown,
	)
	slow := hca("0000:86:00.0", "mlx5_4", "ibs112", device.PortActive)
	slow.RateGb, slow.Driver = 100, "bnxt_en"
	bond := hca("0000:af:00.0", "mlx5_bond_0", "bond0", device.PortActive)
	bond.Refused = errors.New("carries the default route")
	bond.HCA.Ports[0].LinkLayer = device.Ethernet
	return []survey.Device{up, down, slow, bond}
}

func TestAssign(t *testing.T) {
	inPod := hca("0000:d8:00.0", "mlx5_5", "ibs114", device.PortActive)
	inPod.Holder, inPod.RateGb, inPod.Prefix = &journal.Entry{MoveRDMA: true}, 0, 0
	devices := append(node(), inPod)
	for name, tt := range map[string]struct {
		match fabrics.Match
		want  string
	}{
		"rate":    {fabrics.Match{RateGb: 200}, "mlx5_0 mlx5_3 mlx5_5"},
		"layer":   {fabrics.Match{LinkLayer: "InfiniBand"}, "mlx5_0 mlx5_3 mlx5_4 mlx5_5"},
		"refused": {fabrics.Match{LinkLayer: "Ethernet"}, ""},
		"driver":  {fabrics.Match{Driver: "bnxt_en"}, "mlx5_4"},
		"names":   {fabrics.Match{Devices: []string{"ibs1?0", "mlx5_4"}}, "mlx5_3 mlx5_4"},
		"address": {fabrics.Match{Devices: []string{"0000:5e:*"}}, "mlx5_3"},
		"both":    {fabrics.Match{Devices: []string{"ibs*"}, RateGb: 100}, "mlx5_4 mlx5_5"},
		"prefix":  {fabrics.Match{SubnetPrefix: device.DefaultSubnetPrefix + 1}, "mlx5_5"},
	} {
		got := network.Assign(
			[]fabrics.Fabric{
				{Name: "f", Match: tt.match},
				{Name: "rest", Match: fabrics.Match{Devices: []string{"*"}}},
			},
			devices,
			nil,
		)
		var names []string
		for _, d := range got["f"] {
			names = append(names, d.HCA.Name)
		}
		if s := strings.Join(names, " "); s != tt.want {
			t.Errorf("%s: %q, want %q", name, s, tt.want)
		}
		if len(got["f"])+len(got["rest"]) != 4 {
			t.Errorf("%s: %d devices are in a fabric", name, len(got["f"])+len(got["rest"]))
		}
	}
}

// A device that only a default route by router advertisement keeps on the host is a fabric's that ignores such routes.
func TestAssignByRA(t *testing.T) {
	ignores := fabrics.Fabric{Name: "ignores", Host: &v1alpha1.HostAddresses{IgnoreRADefaultRoute: true}}
	for name, tt := range map[string]struct {
		byRA bool
		want string
	}{"by RA": {true, "ignores"}, "by another route": {false, ""}} {
		d := hca("0000:3b:00.0", "mlx5_0", "ibs108", device.PortActive)
		d.Refused, d.ByRA = errors.New("carries the default route"), tt.byRA
		devices := []survey.Device{d}
		others := fabrics.Fabric{Name: "others", Host: &v1alpha1.HostAddresses{}}
		got := network.Assign([]fabrics.Fabric{others, ignores}, devices, nil)
		if len(got[tt.want]) != 1 && tt.want != "" || len(got["others"]) != 0 || tt.want == "" && len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		if (devices[0].Refused == nil) != tt.byRA {
			t.Errorf("%s: it is refused: %v", name, devices[0].Refused)
		}
	}
}

// A port that went down has another rate, or none, and belongs where it was.
func TestAssignDown(t *testing.T) {
	list := []fabrics.Fabric{
		{Name: "slow", Match: fabrics.Match{RateGb: 10}},
		{Name: "fast", Match: fabrics.Match{RateGb: 200, LinkLayer: "InfiniBand"}},
		{Name: "ib-400g", Match: fabrics.Match{Discovered: "ib-400g", LinkLayer: "InfiniBand"}},
	}
	for name, tt := range map[string]struct {
		state  device.PortState
		before string
		want   string
	}{
		"it was fast":              {device.PortDown, "fast", "fast"},
		"it was discovered":        {device.PortInit, "ib-400g", "ib-400g"},
		"nobody has seen it up":    {device.PortDown, "", "slow"},
		"its fabric is gone":       {device.PortDown, "other", "slow"},
		"it is up, and really new": {device.PortActive, "fast", "slow"},
	} {
		d := hca("0000:3b:00.0", "mlx5_0", "ibs108", tt.state)
		d.RateGb, d.Prefix = 10, 0
		if got := network.Assign(
			list,
			[]survey.Device{d},
			map[string]string{d.ID(): tt.before},
		); len(got) != 1 ||
			len(got[tt.want]) != 1 {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
	eth := hca("0000:3b:00.0", "mlx5_0", "ens1", device.PortDown)
	eth.HCA.Ports[0].LinkLayer, eth.RateGb = device.Ethernet, 40
	if got := network.Assign(list, []survey.Device{eth}, map[string]string{eth.ID(): "fast"}); len(got) != 0 {
		t.Errorf("its card was replaced: %v", got)
	}
}

func TestUnits(t *testing.T) {
	f := fabrics.Fabric{Name: "f", Attachment: v1alpha1.WholeDevice}
	devices := node()[:2]
	devices[0].Slot, devices[0].Path = "0000:3b:00.0", []string{"pci0000:3a", "0000:3b:00.0"}
	units := network.Units(&f, devices)
	if units[0].Slot != "0000:3b:00.0" || !slices.Equal(units[0].Path, devices[0].Path) {
		t.Errorf("%+v is not where its device is", units[0])
	}
	if len(units) != 2 || units[0].ID != "0000:3b:00.0" || !units[0].Healthy || units[1].Healthy ||
		units[0].NUMA != 1 ||
		units[0].RDMA != "mlx5_0" {
		t.Errorf("%+v", units)
	}
	f.Attachment, f.Shares = v1alpha1.IPoIBChild, 3
	var ids []string
	for _, u := range network.Units(&f, node()[:2]) {
		ids = append(ids, u.ID)
	}
	want := []string{
		"0000:3b:00.0-share-0",
		"0000:3b:00.0-share-1",
		"0000:3b:00.0-share-2",
		"0000:5e:00.0-share-0",
		"0000:5e:00.0-share-1",
		"0000:5e:00.0-share-2",
	}
	if !slices.Equal(ids, want) {
		t.Errorf("%v", ids)
	}
}

// An idle RoCE device has its port down with its netdev, and comes up in the pod.
func TestIdleEthernetIsHealthy(t *testing.T) {
	d := hca("0000:3b:00.2", "mlx5_2", "ens1v0", device.PortDown)
	d.HCA.Ports[0].LinkLayer, d.AdminUp = device.Ethernet, false
	if !d.Active() {
		t.Error("its netdev is down, so its port proves nothing")
	}
	if d.AdminUp = true; d.Active() {
		t.Error("its netdev is up, its port is not")
	}
}

func TestMaster(t *testing.T) {
	master := network.Master(append([]survey.Device{node()[1]}, node()...))
	if master != "ibs108" {
		t.Errorf("master %q: the first device's port is down", master)
	}
}

// A rail is a place among the devices that fit everything else, also of those whose port is down.
func TestRails(t *testing.T) {
	rail := func(n int) *int { return &n }
	list := []fabrics.Fabric{
		{Name: "slow", Match: fabrics.Match{RateGb: 100, Rail: rail(0)}},
		{Name: "r0", Match: fabrics.Match{LinkLayer: device.InfiniBand, RateGb: 200, Rail: rail(0)}},
		{Name: "r1", Match: fabrics.Match{LinkLayer: device.InfiniBand, RateGb: 200, Rail: rail(1)}},
		{Name: "r2", Match: fabrics.Match{LinkLayer: device.InfiniBand, RateGb: 200, Rail: rail(2)}},
	}
	last := hca("0000:d8:00.0", "mlx5_9", "ibs120", device.PortActive)
	devices := append([]survey.Device{last}, node()...)
	down := 0.0
	for _, rate := range []float64{200, down} { // of mlx5_3, whose port is down
		devices[2].RateGb = rate
		got := network.Assign(list, devices, map[string]string{devices[2].ID(): "r1"})
		for fabric, want := range map[string]string{"slow": "mlx5_4", "r0": "mlx5_0", "r1": "mlx5_3", "r2": "mlx5_9"} {
			if len(got[fabric]) != 1 || got[fabric][0].HCA.Name != want {
				t.Errorf("%s: %+v, want %s", fabric, got[fabric], want)
			}
		}
	}
}

func TestWriteFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	write := func(configs map[string][]byte, want bool, files ...string) {
		t.Helper()
		changed, err := network.WriteFiles(dir, configs, func(name string) bool { return name == "kept" })
		if err != nil || changed != want {
			t.Errorf("changed %v, %v", changed, err)
		}
		var got []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, files) {
			t.Errorf("%v, want %v", got, files)
		}
	}
	write(nil, false)
	write(map[string][]byte{"a": []byte("1"), "b": []byte("2")}, true, "fabric-agent-a.conf", "fabric-agent-b.conf")
	if err := os.WriteFile(filepath.Join(dir, "user.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(
		map[string][]byte{"a": []byte("1"), "b": []byte("2")},
		false,
		"fabric-agent-a.conf",
		"fabric-agent-b.conf",
		"user.conf",
	)
	write(map[string][]byte{"b": []byte("3")}, true, "fabric-agent-b.conf", "user.conf")
	write(
		map[string][]byte{"b": []byte("3"), "kept": []byte("4")},
		true,
		"fabric-agent-b.conf",
		"fabric-agent-kept.conf",
		"user.conf",
	)
	write(nil, true, "fabric-agent-kept.conf", "user.conf")
}

// Two fabrics by rate; a port that goes down stays in its own.
func TestDiscover(t *testing.T) {
	devices := node()
	found := network.Discover(devices, nil)
	if len(found) != 2 || devices[0].Fabric != "ib-200g" || devices[1].Fabric != "" || devices[2].Fabric != "ib-100g" ||
		devices[3].Fabric != "" {
		t.Errorf("%+v: %+v", found, devices)
	}
	list := []fabrics.Fabric{{Name: "ib-200g", Match: fabrics.Match{Discovered: "ib-200g"}}}
	assigned := network.Assign(list, devices, nil)
	if len(assigned["ib-200g"]) != 1 {
		t.Errorf("%+v", assigned)
	}
	for i, want := range []string{"", `a Fabric with match: {discovered: ib-100g}`} {
		if got := network.Unused(&found[i], assigned); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", found[i].Name, got)
		}
	}
	before := map[string]string{devices[0].ID(): "ib-200g"}
	devices = node()
	devices[0].HCA.Ports[0].State = device.PortDown
	network.Discover(devices, before)
	if devices[0].Fabric != "ib-200g" {
		t.Errorf("its port is down: %+v", devices[0])
	}
}
