package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// resource is one resource of a device plugin in a NicClusterPolicy or NicNodePolicy, with what selects its devices.
type resource struct {
	name    string // with its prefix
	shared  bool   // of the RDMA shared device plugin
	most    int64  // pods on one device, of the shared one
	vendors []string
	ids     []string
	drivers []string
	links   []string
	devices []string          // PCI addresses and interface names
	virtual []string          // what selects virtual functions
	other   []string          // selectors that are not known
	policy  string            // kind and name
	nodes   map[string]string // nodeSelector of a NicNodePolicy
}

// Device plugins of a policy: the field of the policy, the list in its configuration, the usual prefix.
var plugins = []struct {
	field, list, prefix string
	shared              bool
}{
	{"sriovDevicePlugin", "resourceList", "nvidia.com", false},
	{"rdmaSharedDevicePlugin", "configList", "rdma", true},
}

// resources reads the configurations of the device plugins of a policy.
func resources(o *Object) (out []resource, err error) {
	var nodes map[string]string
	selector, _ := o.Spec["nodeSelector"].(map[string]any)
	for k, v := range selector {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s: spec.nodeSelector: must have strings", o)
		}
		if nodes == nil {
			nodes = map[string]string{}
		}
		nodes[k] = text
	}
	for _, p := range plugins {
		section, _ := o.Spec[p.field].(map[string]any)
		text, _ := section["config"].(string)
		if strings.TrimSpace(text) == "" {
			continue
		}
		cfg, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: spec.%s.config: %w", o, p.field, err)
		}
		list, _ := cfg[p.list].([]any)
		for i, e := range list {
			m, ok := e.(map[string]any)
			name, _ := m["resourceName"].(string)
			if !ok || name == "" {
				return nil, fmt.Errorf("%s: spec.%s.config: %s[%d]: want a resourceName", o, p.field, p.list, i)
			}
			prefix, _ := m["resourcePrefix"].(string)
			if prefix == "" {
				prefix = p.prefix
			}
			r := resource{name: prefix + "/" + name, shared: p.shared, policy: o.String(), nodes: nodes}
			if n, ok := m["rdmaHcaMax"].(float64); ok {
				r.most = int64(n)
			}
			r.selectors(m["selectors"])
			r.devices = append(r.devices, texts(m["devices"])...) // of old versions of the shared plugin
			out = append(out, r)
		}
	}
	return out, nil
}

// selectors reads the selectors of a resource; the SR-IOV network device plugin takes a list of them as well.
func (r *resource) selectors(v any) {
	if list, ok := v.([]any); ok {
		if len(list) > 1 {
			r.other = append(r.other, "a list of selectors")
		}
		if len(list) > 0 {
			v = list[0]
		}
	}
	m, _ := v.(map[string]any)
	for k, v := range m {
		switch k {
		case "vendors":
			r.vendors = texts(v)
		case "devices", "deviceIDs":
			r.ids = texts(v)
		case "drivers":
			r.drivers = texts(v)
		case "linkTypes":
			r.links = texts(v)
		case "pciAddresses", "ifNames":
			r.devices = append(r.devices, texts(v)...)
		case "pfNames":
			for _, n := range texts(v) {
				if strings.Contains(n, "#") {
					r.virtual = append(r.virtual, n)
				} else {
					r.devices = append(r.devices, n)
				}
			}
		case "rootDevices":
			r.virtual = append(r.virtual, texts(v)...)
		case "isRdma", "needVhostNet":
		default:
			r.other = append(r.other, k)
		}
	}
	slices.Sort(r.devices)
	slices.Sort(r.other)
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// layer is the link layer of the resource's devices, empty if it is not told.
func (r *resource) layer() device.LinkLayer {
	if len(r.links) != 1 {
		return ""
	}
	switch strings.ToLower(r.links[0]) {
	case "infiniband", "ib":
		return device.InfiniBand
	case "ether", "ethernet":
		return device.Ethernet
	}
	return ""
}

// selects reports whether the device plugin offers an HCA.
func (r *resource) selects(h *node.HCA) bool {
	vendor, id, _ := strings.Cut(h.ID, ":")
	in := func(list []string, values ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
	}
	names := []string{h.PCI}
	var layers []device.LinkLayer
	for _, p := range h.Ports {
		names, layers = append(names, p.Netdev), append(layers, p.LinkLayer)
	}
	return in(r.vendors, vendor) && in(r.ids, id) && in(r.drivers, h.Driver) && in(r.devices, names...) &&
		(r.layer() == "" || slices.Contains(layers, r.layer()))
}

// match is a Fabric's match for the resource. Without nodes it has what the selectors say themselves; with nodes the
// addresses of what they select there, because a Fabric does not select by vendor, device ID or driver.
func (r *resource) match(s *spec, nodes []*node.Node) (m v1alpha1.Match) {
	m.LinkLayer = string(r.layer())
	for _, o := range r.other {
		s.doubt("selector %s of the resource %s is not known here: compare the devices yourself", o, r.name)
	}
	if len(r.virtual) > 0 {
		s.doubt("the resource %s is of virtual functions (%s), and a Fabric's devices are whole ports: use --to nad "+
			"and keep the device plugin", r.name, strings.Join(r.virtual, ", "))
	}
	if len(nodes) == 0 {
		m.Devices = r.devices
		const how = "give recordings of the nodes (fabricctl discover --record), and the match is worked out"
		switch by := r.byCard(); {
		case m.LinkLayer == "" && len(r.devices) == 0:
			s.doubt("match is a placeholder, because a Fabric does not select by %s: %s", cmp.Or(by, "isRdma"), how)
		case len(r.devices) == 0 && by != "":
			s.doubt("the resource %s selects by %s too, which a Fabric does not: it may take more ports than the "+
				"resource had; %s", r.name, by, how)
		}
		return m
	}
	var in, out []topology.Port
	rates := map[float64]bool{}
	for _, n := range nodes {
		for _, p := range n.Ports() {
			h := n.HCA(p.HCA)
			if h == nil || p.Kind != "PF" || p.Bond != "" || p.Primary || !r.selects(h) {
				out = append(out, p)
				continue
			}
			in = append(in, p)
			if p.State == device.PortActive {
				rates[p.RateGb] = true
			}
		}
	}
	for _, p := range in {
		m.Devices = append(m.Devices, p.PCI)
		if m.LinkLayer == "" {
			m.LinkLayer = string(p.LinkLayer)
		}
	}
	slices.Sort(m.Devices)
	m.Devices = slices.Compact(m.Devices)
	r.compare(s, &m, in, out, rates)
	return m
}

// compare says where a match by address is not what the selectors have selected.
func (r *resource) compare(s *spec, m *v1alpha1.Match, in, out []topology.Port, rates map[float64]bool) {
	const most = 64 // patterns of a Fabric
	switch {
	case len(in) == 0:
		s.doubt("the resource %s selects no port of these nodes", r.name)
	case len(m.Devices) > most:
		s.doubt("the ports of the resource %s are at %d addresses; a Fabric has %d at most: write patterns",
			r.name, len(m.Devices), most)
		m.Devices = nil
	}
	if slices.ContainsFunc(in, func(p topology.Port) bool { return p.LinkLayer != in[0].LinkLayer }) {
		m.LinkLayer = ""
		s.doubt("the resource %s has ports of InfiniBand and of Ethernet: write a Fabric for each", r.name)
	}
	if len(rates) > 1 {
		s.doubt("the resource %s has ports with different rates: a Fabric for each would be better (rateGb)", r.name)
	}
	for _, p := range out {
		if p.Kind == "PF" && p.Bond == "" && !p.Primary && slices.Contains(m.Devices, p.PCI) &&
			(m.LinkLayer == "" || string(p.LinkLayer) == m.LinkLayer) {
			s.doubt("the match also fits %s %s, which the resource %s did not have", p.Node, p.Name(), r.name)
		}
	}
}

// byCard names the selectors that a Fabric does not have.
func (r *resource) byCard() string {
	var out []string
	if len(r.ids) > 0 {
		out = append(out, "device ID")
	}
	if len(r.drivers) > 0 {
		out = append(out, "driver")
	}
	if len(out) == 0 && len(r.vendors) > 0 && r.layer() == "" {
		out = append(out, "vendor")
	}
	return strings.Join(out, " and ")
}
