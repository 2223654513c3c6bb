package validate

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// surveyed are the devices of a recorded machine as the agent has them, read from sysfs with its own functions. What
// sysfs does not tell, states as numbers and the word of the policy, is that of the picture.
func surveyed(t *testing.T, m *machines.Machine, n *node.Node) (out []survey.Device) {
	t.Helper()
	sys, err := fs.Sub(m.FS, "sys")
	if err != nil {
		t.Fatal(err)
	}
	r := &inventory.Reader{Sys: sys}
	states := map[string]topology.Port{}
	for _, p := range n.Ports() {
		states[p.HCA] = p
	}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		a, err := r.HCAAddress(h.Name)
		if err != nil {
			t.Fatal(err)
		}
		p := &h.Ports[0]
		d := survey.Device{Location: device.Location{Address: a, PCI: r.PCIOf(a)}, AdminUp: true}
		d.Refused, d.Slot = n.KeptOnHost(h), node.Slot(sys, d.PCI)
		d.RateGb, d.Prefix = node.PortRate(sys, h.Name, 1), node.PortPrefix(sys, h.Name, 1)
		d.HCA = device.HCA{Name: h.Name, Ports: []device.Port{{
			Number: 1, State: states[h.Name].State, Phys: states[h.Name].Phys, LinkLayer: p.LinkLayer, LID: p.LID,
			SMLID: p.SMLID,
		}}}
		nets, err := fs.ReadDir(sys, path.Join("class/infiniband", h.Name, "device/net"))
		if err == nil && len(nets) > 0 {
			d.Netdev = nets[0].Name()
			if b, err := fs.ReadFile(sys, path.Join("class/net", d.Netdev, "flags")); err == nil {
				flags, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 32)
				d.AdminUp = err == nil && uint32(flags)&device.FlagUp != 0
			}
		}
		out = append(out, d)
	}
	return out
}

// answer is what one of those who judge the devices of a node says.
type answer struct {
	Rails  []string          // ids in rail order, without those that are kept
	Fabric map[string]string // by id, as discovered
	Why    map[string]string // by id, why a device is in no fabric: kept, down
}

func why(kept, carries bool) string {
	switch {
	case kept:
		return "kept"
	case !carries:
		return "down"
	}
	return ""
}

// everything is a Fabric that matches each device.
func everything() fabrics.Fabric {
	match := fabrics.Match{Devices: []string{"*", "*/*"}}
	return fabrics.Fabric{Name: "f", Attachment: v1alpha1.WholeDevice, Match: match}
}

func ofAgent(devices []survey.Device) answer {
	a := answer{Fabric: map[string]string{}, Why: map[string]string{}}
	network.Discover(devices, nil)
	for i := range devices {
		d := &devices[i]
		if a.Fabric[d.ID()] = d.Fabric; d.Fabric == "" {
			a.Why[d.ID()] = why(d.Refused != nil, d.Active())
		}
	}
	f := everything()
	assigned := network.Assign([]fabrics.Fabric{f}, devices, nil)["f"]
	for _, u := range network.Units(&f, assigned) {
		a.Rails = append(a.Rails, u.ID)
	}
	return a
}

func ofValidate(n *node.Node) answer {
	a := answer{Fabric: map[string]string{}, Why: map[string]string{}}
	list := candidates(n)
	for i := range list {
		d := &list[i]
		if a.Fabric[d.ID()] = d.Discovered; d.Discovered == "" {
			a.Why[d.ID()] = why(d.Refused != nil, d.Active)
		}
	}
	for _, d := range fabrics.Assign([]fabrics.Fabric{everything()}, list, nil)["f"] {
		a.Rails = append(a.Rails, d.ID())
	}
	return a
}

// ofDiscover is also what doctor has: both ask the picture of the node.
func ofDiscover(n *node.Node) answer {
	a := answer{Fabric: map[string]string{}, Why: map[string]string{}}
	f := n.Fabrics()
	for i := range f.Fabrics {
		for _, p := range f.Fabrics[i].On(n.Name) {
			a.Fabric[p.Address.ID()] = f.Fabrics[i].Name
		}
	}
	for i := range f.Left {
		p := &f.Left[i].Port
		a.Fabric[p.Address.ID()] = ""
		a.Why[p.Address.ID()] = why(p.Kept != "", p.State == device.PortActive)
	}
	for i := range n.HCAs {
		if h := &n.HCAs[i]; n.KeptOnHost(h) == nil {
			a.Rails = append(a.Rails, h.Location().ID())
		}
	}
	return a
}

// Agent, DRA, plugin, validate, discover and doctor agree on each recorded machine: on ids, on the order of rails,
// on fabrics, and on why a device is in none.
func TestOneTruth(t *testing.T) {
	all := append(machines.All(), machines.Sites()...)
	for _, m := range append(all, machines.VFs(), machines.SFs()) {
		t.Run(m.Name, func(t *testing.T) {
			n, err := node.Open(m.FS, journal.Store{})
			if err != nil {
				t.Fatal(err)
			}
			devices := surveyed(t, m, n)
			agent := ofAgent(devices)
			for name, got := range map[string]answer{"validate": ofValidate(n), "discover": ofDiscover(n)} {
				if diff := cmp.Diff(agent, got); diff != "" {
					t.Errorf("-agent +%s:\n%s", name, diff)
				}
			}
			var items []offer.Item
			var given attach.AllocatedDevices
			for i := range devices {
				if d := &devices[i]; d.Refused == nil {
					items = append(items, offer.Item{Location: d.Location, Fabric: "f"})
					given.Devices = append(given.Devices, attach.AllocatedDevice{Location: d.Location, ID: d.ID()})
				}
			}
			slices.Reverse(items)
			slices.Reverse(given.Devices)
			offer.Rails(items, nil)
			given.Sort()
			var claims, pods []string
			for i := range items {
				claims, pods = append(claims, items[i].ID()), append(pods, given.Devices[i].ID)
			}
			if diff := cmp.Diff(agent.Rails, claims); diff != "" {
				t.Errorf("-agent +DRA:\n%s", diff)
			}
			if diff := cmp.Diff(agent.Rails, pods); diff != "" {
				t.Errorf("-agent +networks of a pod:\n%s", diff)
			}
			oneRailEach(t, n, devices, agent.Rails)
			doctors(t, n, agent)
		})
	}
}

// oneRailEach compares match.rail of the agent and of validate.
func oneRailEach(t *testing.T, n *node.Node, devices []survey.Device, rails []string) {
	t.Helper()
	for rail, want := range rails[:min(len(rails), 16)] {
		f := everything()
		f.Match.Rail = &rail
		agent := network.Assign([]fabrics.Fabric{f}, devices, nil)["f"]
		check := fabrics.Assign([]fabrics.Fabric{f}, candidates(n), nil)["f"]
		if len(agent) != 1 || len(check) != 1 || agent[0].ID() != want || check[0].ID() != want {
			t.Errorf("rail %d: agent has %d, validate has %d devices; want %s", rail, len(agent), len(check), want)
		}
	}
}

// doctors asks doctor which ports are down: those that the agent does not offer, and idle ones.
func doctors(t *testing.T, n *node.Node, agent answer) {
	t.Helper()
	var text strings.Builder
	for _, f := range doctor.CheckHost(&doctor.Host{Node: n}) {
		if f.ID == "host-port-state" {
			text.WriteString(f.Evidence + "\n")
		}
	}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		down := strings.Contains(text.String(), h.PortName(&h.Ports[0])+" ")
		id := h.Location().ID()
		if idle := n.CarriesTraffic(&h.Ports[0]) && !h.Ports[0].Active(); down != (agent.Why[id] == "down" || idle) {
			t.Errorf("%s: doctor says down %t, the agent %q", id, down, agent.Why[id])
		}
	}
}

// What the agent says of its node's policy counts, and not what its picture looks like.
func TestKeptByPolicy(t *testing.T) {
	nodes, err := machines.Nodes("h20")
	if err != nil {
		t.Fatal(err)
	}
	n := nodes[0]
	for name, c := range map[string]struct {
		kept map[string]string
		want string // HCAs that are kept
	}{
		"not judged":     {nil, "mlx5_bond_0"},
		"all allowed":    {map[string]string{}, ""},
		"another device": {map[string]string{"mlx5_3": "refused"}, "mlx5_3"},
	} {
		n.Kept = c.kept
		var got []string
		for _, d := range candidates(n) {
			if d.Refused != nil {
				got = append(got, d.HCA)
			}
		}
		inFabric := false
		for _, f := range n.Fabrics().Fabrics {
			for _, p := range f.On(n.Name) {
				inFabric = inFabric || c.want != "" && p.HCA == c.want
			}
		}
		if strings.Join(got, " ") != c.want || inFabric {
			t.Errorf("%s: kept %v, want %s; in a fabric: %t", name, got, c.want, inFabric)
		}
	}
	n.Kept = map[string]string{}
	node.Keep(n.Kept, "mlx5_0", errors.New("net\x1b[1m is not among [\"a\\*\"]"))
	if err := generate.Valid(n); err != nil {
		t.Errorf("what the agent writes is refused: %v", err)
	}
}
