package machines

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Pod is what a process in a container sees of a machine: a tree with its sysfs, its /dev, and proc/self of the
// process.
type Pod struct {
	*Machine
	Rails []string // HCAs that it was given
	Env   []string
}

// podShape says what a pod of a machine has.
type podShape struct {
	kind       string   // the last part of its name
	shared     bool     // the RDMA mode of the node
	given      []string // HCAs that it was given; nil: all rails
	faces      []string // HCAs whose interface is in the pod
	privileged bool     // it has every character device
	env        []string
	spoil      func(m *Machine, rails []string)
}

// rails are the HCAs of each machine that carry the traffic of GPUs.
var rails = map[string][]string{
	"h20":   {"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7"},
	"v100":  {"mlx5_0", "mlx5_1"},
	"a100":  {"mlx5_0"},
	"roce":  {"mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5"},
	"gb200": {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"},
	"gb300": {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"},
}

// Pods returns pods of every machine with RDMA, in both RDMA modes: in order, and with what goes wrong in them.
func Pods() (out []*Pod) {
	for _, name := range []string{"h20", "v100", "a100", "roce", "gb200"} {
		for _, s := range shapes(name) {
			out = append(out, podOf(Named(name), &s))
		}
	}
	return out
}

// PodNamed returns one of Pods, or nil.
func PodNamed(name string) *Pod {
	machine, kind, _ := strings.Cut(name, "-")
	for _, s := range shapes(machine) {
		if s.kind == kind {
			return podOf(Named(machine), &s)
		}
	}
	return nil
}

func shapes(machine string) []podShape {
	all := rails[machine]
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	return []podShape{
		{kind: "exclusive", faces: all},
		{kind: "exclusive-bare"},
		{kind: "exclusive-one", given: all[:1], faces: all[:1]},
		{kind: "shared", shared: true, faces: all},
		{kind: "shared-bare", shared: true},
		{kind: "shared-one", shared: true, given: all[:1], faces: all[:1]},
		{kind: "shared-privileged", shared: true, privileged: true},
		{kind: "shared-privileged-faces", shared: true, privileged: true, faces: all},
		{kind: "shared-privileged-one", shared: true, privileged: true, given: all[:1], faces: all[:1]},
		{kind: "shared-privileged-named", shared: true, privileged: true, given: all[:1],
			env: []string{"PCIDEVICE_NVIDIA_COM_HOSTDEV=" + named(machine)[all[0]]}},
		{kind: "exclusive-no-address", faces: all, spoil: func(m *Machine, _ []string) { m.NoAddress(last) }},
		{kind: "shared-no-address", shared: true, faces: all,
			spoil: func(m *Machine, _ []string) { m.NoAddress(last) }},
		{kind: "exclusive-down", faces: all, spoil: func(m *Machine, _ []string) { m.Down(last) }},
		{kind: "shared-down", shared: true, spoil: func(m *Machine, _ []string) { m.Down(last) }},
		{kind: "exclusive-slow", faces: all, spoil: func(m *Machine, _ []string) { m.Slow(last) }},
		{kind: "shared-privileged-slow", shared: true, privileged: true,
			spoil: func(m *Machine, _ []string) { m.Slow(last) }},
	}
}

// named are the PCI addresses of a machine's HCAs.
func named(machine string) map[string]string {
	out := map[string]string{}
	for hca, face := range Named(machine).hcas {
		out[hca] = path.Base(face.way)
	}
	return out
}

// podOf takes out of a machine's tree what a pod does not see, and adds the files of the container.
func podOf(m *Machine, s *podShape) *Pod {
	all := rails[m.Name]
	given := s.given
	if given == nil {
		given = all
	}
	if s.spoil != nil {
		s.spoil(m, given)
	}
	m.Live.RDMAMode, m.Live.RDMANetdevs = "exclusive", map[string]string{}
	if s.shared {
		m.Live.RDMAMode = "shared"
	}
	keep := []string{"eth0"}
	for i, hca := range m.order {
		here := s.shared || slices.Contains(given, hca)
		if !here {
			delete(m.FS, "sys/class/infiniband/"+hca)
			continue
		}
		u := fmt.Sprint("uverbs", i)
		m.File("sys/class/infiniband_verbs/"+u+"/ibdev", hca)
		if s.privileged || slices.Contains(given, hca) {
			m.File("dev/infiniband/"+u, "")
		}
		m.Live.RDMANetdevs[hca+":1"] = ""
		if face := m.hcas[hca]; slices.Contains(s.faces, hca) {
			keep = append(keep, face.netdev)
			if face.layer == "Ethernet" {
				m.Live.RDMANetdevs[hca+":1"] = face.netdev
			}
		}
	}
	m.onlyNetdevs(keep)
	m.process(s.env)
	m.Name += "-" + s.kind
	m.Live.Host = m.Name
	m.Done()
	return &Pod{Machine: m, Rails: given, Env: s.env}
}

// onlyNetdevs takes out all interfaces but some, and adds that of the cluster's network.
func (m *Machine) onlyNetdevs(keep []string) {
	for name := range m.FS {
		if netdev, ok := strings.CutPrefix(name, "sys/class/net/"); ok && !slices.Contains(keep, netdev) {
			delete(m.FS, name)
		}
	}
	for name := range m.Live.Netdevs {
		if !slices.Contains(keep, name) {
			delete(m.Live.Netdevs, name)
		}
	}
	for _, name := range []string{"eth0", "lo"} {
		dir := "sys/devices/virtual/net/" + name
		m.Link("sys/class/net/"+name, dir)
		m.File(dir+"/type", map[string]string{"eth0": "1", "lo": "772"}[name])
		m.File(dir+"/mtu", "1500")
	}
	m.Live.Netdevs["eth0"] = node.LiveNetdev{Addrs: []netip.Prefix{netip.MustParsePrefix("10.244.1.7/24")},
		Default: true}
}

// process adds what /proc tells of a process with unlimited locked memory.
func (m *Machine) process(env []string) {
	m.File("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"+
		"Max locked memory         unlimited            unlimited            bytes")
	m.File("proc/self/status", "Name:\tsleep\nCapEff:\t00000000a80425fb")
	m.SetEnv(env...)
}

// SetEnv sets the environment of the process in the container.
func (m *Machine) SetEnv(env ...string) {
	m.File("proc/self/environ", strings.Join(append([]string{"PATH=/usr/bin:/bin"}, env...), "\x00"))
}

// portDir is the directory of an HCA's only port.
func (m *Machine) portDir(hca string) string {
	return "sys/devices/" + m.hcas[hca].way + "/infiniband/" + hca + "/ports/1"
}

// NoAddress takes the IP addresses from the interface of an HCA, and their GIDs with them.
func (m *Machine) NoAddress(hca string) {
	h := m.hcas[hca]
	m.Live.Netdevs[h.netdev] = node.LiveNetdev{}
	if h.layer != "Ethernet" {
		return
	}
	for i := 2; i < 2+2*len(h.addrs); i++ {
		for _, dir := range []string{"gids", "gid_attrs/types", "gid_attrs/ndevs"} {
			delete(m.FS, fmt.Sprintf("%s/%s/%d", m.portDir(hca), dir, i))
		}
	}
}

// Down takes the link of an HCA away.
func (m *Machine) Down(hca string) {
	m.File(m.portDir(hca)+"/state", down)
	m.File(m.portDir(hca)+"/phys_state", poll)
}

// Slow lets the link of an HCA train with half of its lanes.
func (m *Machine) Slow(hca string) {
	rate := m.hcas[hca].rate
	slow, ok := map[string]string{
		"400 Gb/sec (4X NDR)": "200 Gb/sec (2X NDR)",
		"200 Gb/sec (4X HDR)": "100 Gb/sec (2X HDR)",
		"200 Gb/sec (2X NDR)": "100 Gb/sec (1X NDR)",
		"100 Gb/sec (4X EDR)": "50 Gb/sec (2X EDR)",
	}[rate]
	if !ok {
		panic("no slower rate than " + cmp.Or(rate, "none of "+hca))
	}
	m.File(m.portDir(hca)+"/rate", slow)
}
