package guest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/bpf"
	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/internal/link"
)

// keptAttrs are the numbers of a link that a move keeps.
var keptAttrs = map[uint16]string{
	unix.IFLA_LINKMODE: "mode", unix.IFLA_GSO_MAX_SIZE: "gso_max_size", unix.IFLA_GSO_MAX_SEGS: "gso_max_segs",
	unix.IFLA_GRO_MAX_SIZE: "gro_max_size", unix.IFLA_GSO_IPV4_MAX_SIZE: "gso_ipv4_max_size",
	unix.IFLA_GRO_IPV4_MAX_SIZE: "gro_ipv4_max_size",
}

// parseKept reads what a pod can leave on a link, as far as rtnetlink reports it with the link.
func parseKept(l *Link, a attrMap) error {
	l.Kept = make(map[string]string)
	for kind, name := range keptAttrs {
		switch v := a[kind]; len(v) {
		case 1:
			l.Kept[name] = fmt.Sprint(v[0])
		case 4:
			l.Kept[name] = fmt.Sprint(binary.NativeEndian.Uint32(v))
		}
	}
	xdp, err := parseAttrs(a[unix.IFLA_XDP])
	if id := u32(xdp, unix.IFLA_XDP_PROG_ID); id != 0 {
		l.Kept["xdp"] = fmt.Sprint(id)
	}
	return err
}

// queueFiles are the settings of NAPI and of the queues.
var queueFiles = []string{
	"gro_flush_timeout", "napi_defer_hard_irqs", "threaded",
	"queues/*/rps_cpus", "queues/*/rps_flow_cnt", "queues/*/xps_cpus",
}

// Attributes of neighbour tables, from linux/neighbour.h.
const (
	ndtaParms          = 6
	ndtpaIfindex       = 1
	ndtpaRefcnt        = 2 // counts entries
	ndtpaReachableTime = 3 // is a random number around the base
	sizeofNdtMsg       = 4
)

// ndtMsg is the header of a message about neighbour tables: the family, and padding.
type ndtMsg [sizeofNdtMsg]byte

func (m ndtMsg) Len() int          { return len(m) }
func (m ndtMsg) Serialize() []byte { return m[:] }

// takeNeighbourSettings adds what /proc/sys/net/*/neigh has of each link: 34 files, which take a tenth of a second in
// emulation.
func takeNeighbourSettings(links map[string]Link, names map[int]string) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		header := func() nl.NetlinkRequestData { return ndtMsg{family} }
		messages, err := dumpRaw(unix.RTM_GETNEIGHTBL, unix.RTM_NEWNEIGHTBL, header)
		if err != nil {
			return fmt.Errorf("neighbour tables: %w", err)
		}
		for _, m := range messages {
			a, err := parseAttrs(m[min(len(m), sizeofNdtMsg):])
			if err != nil {
				return fmt.Errorf("neighbour tables: %w", err)
			}
			parms, err := parseAttrs(a[ndtaParms])
			if err != nil {
				return fmt.Errorf("neighbour tables: %w", err)
			}
			l, ok := links[names[int(u32(parms, ndtpaIfindex))]]
			if !ok { // the defaults of the namespace
				continue
			}
			l.Kept[fmt.Sprintf("neigh%d", family)] = describe(parms, map[uint16]field{
				ndtpaIfindex: {}, ndtpaRefcnt: {}, ndtpaReachableTime: {},
			})
		}
	}
	return nil
}

// takeKept completes the links by what has to be asked for in other ways.
func takeKept(links map[string]Link, names map[int]string) error {
	for index, name := range names {
		l := links[name]
		programs, err := bpf.Programs(index)
		if err != nil {
			return err
		}
		for _, p := range programs {
			l.Kept[string(p.Hook)] = p.String()
		}
		f, err := ethtool.Features(name)
		if err != nil {
			return fmt.Errorf("features of %s: %w", name, err)
		}
		if f != nil {
			l.Kept["features"] = fmt.Sprintf("%x of %x", f.Wanted, f.Can)
		}
		for _, pattern := range queueFiles {
			files, _ := filepath.Glob(filepath.Join("/sys/class/net", name, pattern))
			for _, file := range files {
				keepFile(&l, file)
			}
		}
		links[name] = l
	}
	return takeNeighbourSettings(links, names)
}

// keepFile leaves out what can't be read: XPS of a netdev with one queue, RPS where the kernel has none.
func keepFile(l *Link, file string) {
	if b, err := os.ReadFile(file); err == nil {
		l.Kept[file] = strings.TrimSpace(string(b))
	}
}

// takeTables describes what the kernel has not made itself: neighbours that are permanent or answered for, nexthop
// objects, qdiscs, and their filters.
func takeTables(names map[int]string) ([]string, error) {
	var out []string
	c, err := link.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for index, name := range names {
		neighbours, err := c.Neighbours(index)
		if err != nil {
			return nil, err
		}
		for _, n := range neighbours {
			out = append(out, name+" neighbour "+n.String())
		}
		nexthops, err := c.Nexthops(index)
		if err != nil {
			return nil, err
		}
		for _, n := range nexthops {
			out = append(out, name+" nexthop "+n.String())
		}
	}
	qdiscs, err := takeQdiscs(names)
	out = append(out, qdiscs...)
	slices.Sort(out)
	return out, err
}

// takeQdiscs lists what is queued by and how, but what the kernel has chosen by itself: that is there from the first
// time that a link is up.
func takeQdiscs(names map[int]string) ([]string, error) {
	var out []string
	messages, err := dumpRaw(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, func() nl.NetlinkRequestData { return &nl.TcMsg{} })
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		h := nl.DeserializeTcMsg(m)
		if h.Handle == 0 {
			continue
		}
		a, err := parseAttrs(m[h.Len():])
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%s qdisc %s %x parent %x options %x",
			names[int(h.Ifindex)], text(a, unix.TCA_KIND), h.Handle, h.Parent, a[unix.TCA_OPTIONS]))
	}
	return out, nil
}
