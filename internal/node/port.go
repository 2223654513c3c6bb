package node

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// EmptyPKey is an entry of the partition table that is not used.
const EmptyPKey = "0x0000"

// port reads one port. Formats: Documentation/ABI/stable/sysfs-class-infiniband of the kernel.
func (t tree) port(dir, number string) Port {
	n, _ := strconv.ParseUint(number, 10, 32)
	p := Port{Number: uint32(n), LinkLayer: device.LinkLayer(t.text(dir, "link_layer")), Prefix: t.prefix(dir)}
	p.RateGb, p.Rate = t.rate(dir)
	p.State = device.PortState(leading(t.text(dir, "state"))).String()
	p.Phys = device.PhysState(leading(t.text(dir, "phys_state"))).String()
	p.LID, p.SMLID = lid(t.text(dir, "lid")), lid(t.text(dir, "sm_lid"))
	p.gids(t, dir)
	used := 0
	for _, name := range numeric(t.names(path.Join(dir, "pkeys"))) { // an index counts empty entries, too
		p.PKeys = append(p.PKeys, t.text(dir, "pkeys", name))
		if k := p.PKeys[len(p.PKeys)-1]; k != "" && k != EmptyPKey {
			used = len(p.PKeys)
		}
	}
	p.PKeys = p.PKeys[:used:used]
	if used == 0 {
		p.PKeys = nil
	}
	return p
}

// qos reads what connections over a RoCE port are marked with: Documentation/ABI/testing/configfs-rdma_cm, where the
// device has a directory if a tool has made one, and the tc of NVIDIA's driver package, which the kernel's own driver
// has not.
func (p *Port) qos(t tree, hca, dir string) {
	if p.LinkLayer != device.Ethernet {
		return
	}
	number := strconv.FormatUint(uint64(p.Number), 10)
	tos := t.text("sys/kernel/config/rdma_cm", hca, "ports", number, "default_roce_tos")
	if n, err := strconv.ParseUint(tos, 10, 8); err == nil {
		p.TOS = new(int(n))
	}
	if n := device.ParseTrafficClass(t.text(dir, "tc", number, "traffic_class")); n >= 0 {
		p.TrafficClass = &n
	}
}

// gids reads the used entries of the GID table. Of an InfiniBand port entry 0 is the subnet prefix and the port GUID.
func (p *Port) gids(t tree, dir string) {
	for _, name := range numeric(t.names(path.Join(dir, "gids"))) {
		a, ok := gidOf(t.text(dir, "gids", name))
		if !ok {
			continue
		}
		index, _ := strconv.Atoi(name)
		b := a.As16()
		if p.LinkLayer == device.InfiniBand {
			p.add(GID{Index: index, GID: a.String()}, b)
			continue
		}
		if [8]byte(b[8:]) == [8]byte{} {
			continue
		}
		g := GID{
			Index:  index,
			GID:    a.String(),
			Type:   t.text(dir, "gid_attrs/types", name),
			Netdev: t.text(dir, "gid_attrs/ndevs", name),
		}
		p.GIDs = append(p.GIDs, g)
		p.Netdev = cmp.Or(p.Netdev, g.Netdev)
	}
	if p.Netdev == "" && p.LinkLayer != device.InfiniBand { // a port that is down has no GIDs, but knows its netdev
		p.Netdev = t.text(dir, "gid_attrs/ndevs/0")
	}
}

// gidOf reads an entry of a GID table, and reports whether the entry is used.
func gidOf(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a, err == nil && a != netip.IPv6Unspecified()
}

func (p *Port) add(g GID, b [16]byte) {
	if g.Index == 0 {
		p.GUID, _ = device.ParseGUID(hexOf(b[8:]))
	}
	if [8]byte(b[8:]) != [8]byte{} {
		p.GIDs = append(p.GIDs, g)
	}
}

func hexOf(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteByte("0123456789abcdef"[c>>4])
		s.WriteByte("0123456789abcdef"[c&15])
	}
	return s.String()
}

// leading is the number in "4: ACTIVE".
func leading(s string) uint8 {
	s, _, _ = strings.Cut(s, ":")
	n, _ := strconv.ParseUint(s, 10, 8)
	return uint8(n)
}

func lid(s string) uint16 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 16)
	return uint16(n)
}

// numeric sorts names by number: a directory is sorted as text.
func numeric(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		n, _ := strconv.Atoi(a)
		m, _ := strconv.Atoi(b)
		return cmp.Compare(n, m)
	})
	return names
}
