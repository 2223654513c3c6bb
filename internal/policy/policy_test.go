package policy

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func netdev(edit func(*device.Netdev)) Device {
	n := &device.Netdev{
		Index:    4,
		Name:     "ens1f0",
		AltNames: []string{"enp59s0f0"},
		Address:  device.Address{Bus: "pci", Name: "0000:3b:00.0"},
	}
	if edit != nil {
		edit(n)
	}
	return Device{Address: n.Address, PCI: "0000:3b:00.0", Netdev: n, HCA: &device.HCA{Name: "mlx5_0"}}
}

func virtual(name, kind string) Device {
	return Device{Netdev: &device.Netdev{Index: 5, Name: name, Kind: kind}}
}

// with gives a device the uplink of an interface that sits on it, or its own.
func with(d Device, edit ...func(*device.Uplink)) Device {
	d.Uplink = &device.Uplink{Interfaces: []device.Carrier{{Name: d.Netdev.Name}, {Name: "bond0"}}}
	for _, e := range edit {
		e(d.Uplink)
	}
	return d
}

func route(dst string, table uint32) func(*device.Uplink) { return routeOn(0, dst, table) }

func routeOn(i int, dst string, table uint32) func(*device.Uplink) {
	return func(u *device.Uplink) {
		u.Interfaces[i].Routes = []device.Route{{Dst: netip.MustParsePrefix(dst), Table: table}}
	}
}

func address(s string) func(*device.Uplink) { return addressOn(0, s) }

func addressOn(i int, s string) func(*device.Uplink) {
	return func(u *device.Uplink) { u.Interfaces[i].Addrs = []device.Addr{{Prefix: netip.MustParsePrefix(s)}} }
}

func TestMove(t *testing.T) {
	enslaved := func(n *device.Netdev) { n.Master = 9 }
	loopback := func(n *device.Netdev) { n.Name, n.Flags = "lo", device.FlagLoopback }
	multipath := func(u *device.Uplink) {
		route("0.0.0.0/0", 254)(u)
		u.Interfaces[0].Routes[0].Multipath = true
	}
	tests := map[string]moveTest{
		"no policy":               {`{}`, netdev(nil), ""},
		"default route":           {`{}`, with(netdev(nil), route("0.0.0.0/0", 254)), "default route (default)"},
		"IPv6 default route":      {`{}`, with(netdev(nil), route("::/0", 254)), "default route"},
		"one of several defaults": {`{}`, with(netdev(nil), multipath), "default route"},
		"a rail's own table":      {`{}`, with(netdev(nil), route("0.0.0.0/0", 20004)), ""},
		"other route":             {`{}`, with(netdev(nil), route("10.0.0.0/8", 254)), ""},
		"default route allowed":   {`{"allowDefaultRoute":["ens1*"]}`, with(netdev(nil), route("0.0.0.0/0", 254)), ""},
		"another's default route": {
			`{"allowDefaultRoute":["ens2*"]}`,
			with(netdev(nil), route("0.0.0.0/0", 254)),
			"default route",
		},
		"node address": {
			`{"nodeAddresses":["10.1.0.5"]}`,
			with(netdev(nil), address("10.1.0.5/24")),
			"node's address 10.1.0.5",
		},
		"another address": {`{"nodeAddresses":["10.1.0.5"]}`, with(netdev(nil), address("10.1.0.6/24")), ""},
		"node address, IPv6": {
			`{"nodeAddresses":["2001:db8::5"]}`,
			with(netdev(nil), address("2001:db8:0::5/64")),
			"node's address",
		},
		"node address allowed": {
			`{"nodeAddresses":["10.1.0.5"],"allowNodeAddress":["0000:3b:00.0"]}`,
			with(netdev(nil), address("10.1.0.5/24")),
			"",
		},
		"enslaved":          {`{}`, netdev(enslaved), "master ifindex 9"},
		"enslaved, allowed": {`{"allowEnslaved":["pci/0000:3b:*"]}`, netdev(enslaved), ""},
		"loopback": {
			`{"devices":["lo"],"allowDefaultRoute":["*"],"allowNodeAddress":["*"],"allowEnslaved":["*"]}`,
			netdev(loopback),
			"loopback",
		},
		"listed by name":        {`{"devices":["ens1f0"]}`, netdev(nil), ""},
		"listed by altname":     {`{"devices":["enp59*"]}`, netdev(nil), ""},
		"listed by PCI address": {`{"devices":["0000:3b:00.?"]}`, netdev(nil), ""},
		"listed by RDMA device": {`{"devices":["mlx5_*"]}`, netdev(nil), ""},
		"not listed":            {`{"devices":["ens2*","mlx5_9"]}`, netdev(nil), "not among its devices"},
		"listed, a default":     {`{"devices":["ens1f0"]}`, with(netdev(nil), route("0.0.0.0/0", 254)), "default"},
		"star is no slash":      {`{"devices":["pci*"]}`, netdev(nil), "not among"},
		"RDMA device only": {
			`{"devices":["mlx5_1"]}`,
			Device{Address: device.Address{Bus: "pci", Name: "x"}, HCA: &device.HCA{Name: "mlx5_1"}},
			"",
		},
		"RDMA device not listed": {
			`{"devices":["mlx5_1"]}`,
			Device{Address: device.Address{Bus: "pci", Name: "x"}, HCA: &device.HCA{Name: "mlx5_2"}},
			"pci/x is not among",
		},
	}
	moves(t, tests)
}

type moveTest struct {
	policy string
	dev    Device
	refuse string // part of the reason; empty: allowed
}

func moves(t *testing.T, tests map[string]moveTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := parse("policy.json", []byte(tt.policy))
			if err != nil {
				t.Fatal(err)
			}
			err = p.Move(tt.dev)
			if tt.refuse == "" && err != nil ||
				tt.refuse != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refuse)) {
				t.Errorf("got %v, want %q", err, tt.refuse)
			}
		})
	}
}

func TestMoveVirtual(t *testing.T) {
	moves(t, map[string]moveTest{
		"virtual":             {`{}`, virtual("caliABC", "veth"), `caliABC is a virtual interface (veth)`},
		"virtual, no kind":    {`{}`, virtual("tap0", ""), `tap0 is a virtual interface: it has no bus address`},
		"virtual, listed":     {`{"devices":["cali*"]}`, virtual("caliABC", "veth"), `"allowVirtual"`},
		"virtual, allowed":    {`{"allowVirtual":true}`, virtual("caliABC", "veth"), ""},
		"virtual, by name":    {`{"allowVirtual":["dum*"]}`, virtual("dummy0", "dummy"), ""},
		"virtual, another":    {`{"allowVirtual":["dum*"]}`, virtual("caliABC", "veth"), "caliABC"},
		"virtual, not listed": {`{"devices":["ens*"],"allowVirtual":true}`, virtual("v0", "veth"), "not among"},
	})
}

// A device that is used but stays may carry what it likes; the list holds for it as well.
func TestUse(t *testing.T) {
	p, err := parse("policy.json", []byte(`{"devices":["ens1f0"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Use(with(netdev(nil), route("0.0.0.0/0", 254))); err != nil {
		t.Error(err)
	}
	if err := p.Use(netdev(func(n *device.Netdev) { n.Name = "ens2f0" })); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// What the owner meant to forbid does not become allowed by a typing error.
func TestParseFailsClosed(t *testing.T) {
	for name, in := range map[string]string{
		"empty":             ``,
		"null":              `null`,
		"not JSON":          `devices: []`,
		"unknown key":       `{"device":["ens1f0"]}`,
		"wrong type":        `{"devices":"ens1f0"}`,
		"bad pattern":       `{"devices":["[ens"]}`,
		"bad pattern later": `{"devices":["ens1f0"],"allowEnslaved":["a","\\"]}`,
		"bad address":       `{"nodeAddresses":["10.1.0"]}`,
		"rebind, a list":    `{"rebindBetweenTenants":["0000:*"]}`,
		"list":              `[]`,
		"relative path":     `{"devicePluginDir":"kubelet/device-plugins"}`,
		"cut off":           `{"devices":["ens1f0"]`,
		"virtual, a name":   `{"allowVirtual":"v0"}`,
		"virtual, a number": `{"allowVirtual":1}`,
		"virtual, pattern":  `{"allowVirtual":["[v"]}`,
		"host use, pattern": `{"allowHostUse":["[v"]}`,
		"more after it":     `{"devices":["ens1f0"]}{"devices":[]}`,
		"brace too many":    `{"devices":["ens1f0"]}}`,
	} {
		if p, err := parse("policy.json", []byte(in)); err == nil || !strings.Contains(err.Error(), "policy.json") {
			t.Errorf("%s: policy %+v, error %v", name, p, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if p, err := Load(filepath.Join(dir, "missing.json"), ""); err != nil || p.Move(netdev(nil)) != nil {
		t.Errorf("no file: %v, %v", p, err)
	}
	if p, err := Load(dir, ""); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v, %v", p, err)
	}
	file := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(file, []byte(`{"devices":["mlx5_7"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(file, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Move(netdev(nil)); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// A VF is bound again between tenants, and reset meanwhile, unless the owner says that it is not.
func TestBetweenTenants(t *testing.T) {
	for in, want := range map[string][2]bool{
		`{}`:                             {true, true},
		`{"rebindBetweenTenants":true}`:  {true, true},
		`{"rebindBetweenTenants":false}`: {false, true},
		`{"resetBetweenTenants":false}`:  {true, false},
	} {
		p, err := parse("policy.json", []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{p.Rebinds(), p.Resets()}; got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
	if p := Default(""); !p.Rebinds() || !p.Resets() {
		t.Error("without a file it is neither bound nor reset")
	}
}

func TestLogFile(t *testing.T) {
	tests := []struct {
		dirs []string
		file string
		dir  string // empty: refused
	}{
		{nil, "/var/log/fabric-cni/rail.log", "/var/log/fabric-cni"},
		{nil, "/var/log/fabric-cni/a/b.log", "/var/log/fabric-cni"},
		{nil, "/var/log/fabric.log", ""},
		{nil, "/run/nologin", ""},
		{nil, "/tmp/a/b.log", ""},
		{nil, "/etc/passwd", ""},
		{nil, "/var/log/fabric-cni/../../etc/passwd", ""},
		{nil, "/var/log/fabric-cnis/fabric.log", ""},
		{nil, "/var/log/fabric-cni", ""},
		{nil, "/var//log/fabric-cni/x", ""},
		{[]string{"/srv/log/"}, "/srv/log/x", "/srv/log"},
		{[]string{"/srv/log"}, "/var/log/fabric-cni/x", ""},
		{[]string{"/"}, "/anywhere", "/"},
	}
	for _, tt := range tests {
		dir, err := (&Policy{LogDirs: tt.dirs}).LogFile(tt.file)
		if dir != tt.dir || (err == nil) != (tt.dir != "") || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s with %v: %q, %v", tt.file, tt.dirs, dir, err)
		}
	}
}

// "allowVirtual" is true for all, or a list.
func TestPatterns(t *testing.T) {
	for in, want := range map[string][]string{
		`{}`: nil, `{"allowVirtual":false}`: nil, `{"allowVirtual":null}`: nil, `{"allowVirtual":[]}`: {},
		`{"allowVirtual":true}`: {"*"}, `{"allowVirtual":["v0","dum*"]}`: {"v0", "dum*"},
	} {
		p, err := parse("policy.json", []byte(in))
		if err != nil || !slices.Equal(p.AllowVirtual, want) {
			t.Errorf("%s: %v, %v", in, p, err)
		}
	}
}
