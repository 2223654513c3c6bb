package measure

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Link layers, as sysfs spells them.
const (
	infiniband = "InfiniBand"
	ethernet   = "Ethernet"
)

// port is one port of an RDMA device, as sysfs of the end shows it.
type port struct {
	hca         string
	number      int
	own         bool   // of the function that the interface is on
	verbs       bool   // its character device is there
	slot        string // path of its function below /sys/devices, for the nearest GPU
	layer       string
	state, phys string
	rateGb      float64
	gids        []gid
	pkeys       map[int]string // by index
}

// gid is a used entry of a GID table.
type gid struct {
	index  int
	addr   netip.Addr
	netdev string // RoCE: the interface, by the name that it has in its own network namespace
	kind   string // RoCE v2
}

// script prints the partition of an interface and the ports of the RDMA devices that it can be on: those of its
// function, or all where it has none (IPoIB children, macvlans). $1 is the interface; empty: all ports. Reading by the
// shell itself costs no process per entry.
const script = `n="/sys/class/net/$1"
get() { v=; { read -r v <"$1"; } 2>/dev/null; }
get "$n/pkey"; echo "partition $v"
list=$(ls -d "$n"/device/infiniband/* 2>/dev/null)
[ -z "$list" ] || own=1
[ -n "$list" ] || [ -e "$n/device" ] || list=$(ls -d /sys/class/infiniband/* 2>/dev/null)
for d in $list; do for p in "/sys/class/infiniband/${d##*/}"/ports/*; do
	[ -d "$p" ] || continue
	echo "port ${d##*/} ${p##*/} $own"
	for u in /sys/class/infiniband_verbs/uverbs*; do
		get "$u/ibdev"; [ "$v" != "${d##*/}" ] || [ ! -e "/dev/infiniband/${u##*/}" ] || echo "verbs yes"
	done
	echo "slot $(cd "/sys/class/infiniband/${d##*/}/device" 2>/dev/null && pwd -P)"
	for f in link_layer state phys_state rate; do get "$p/$f"; echo "$f $v"; done
	for g in "$p"/gids/*; do
		get "$g"; i=${g##*/}
		case $v in *:0000:0000:0000:0000|'') continue;; esac
		a=$v; get "$p/gid_attrs/ndevs/$i"; d=$v; get "$p/gid_attrs/types/$i"
		echo "gid $i $a ${d:--} $v"
	done
	for k in "$p"/pkeys/*; do get "$k"; case $v in 0x0000|'') ;; *) echo "pkey ${k##*/} $v";; esac; done
done; done`

// parse reads what script prints.
func parse(text string) (pkey string, ports []port) {
	p := &port{} // what comes before the first port is not counted
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		f := strings.Fields(rest)
		if len(f) == 0 {
			continue
		}
		_, word, _ := strings.Cut(rest, ": ") // 4: ACTIVE
		switch key {
		case "partition":
			pkey = f[0]
		case "port":
			if len(f) < 2 || len(ports) == maxPorts {
				p = &port{}
				continue
			}
			n, _ := strconv.Atoi(f[1])
			ports = append(ports, port{hca: f[0], number: n, own: len(f) > 2, pkeys: map[int]string{}})
			p = &ports[len(ports)-1]
		case "link_layer":
			p.layer = f[0]
		case "state":
			p.state = word
		case "phys_state":
			p.phys = word
		case "rate":
			p.rateGb = finite(f[0], maxRateGb)
		case "verbs":
			p.verbs = true
		case "slot":
			p.slot = f[0]
		case "gid":
			p.add(f)
		case "pkey":
			if i, err := strconv.Atoi(f[0]); err == nil && len(f) > 1 && p.pkeys != nil {
				p.pkeys[i] = f[1]
			}
		}
	}
	return pkey, ports
}

// maxRateGb is more than any port has.
const maxRateGb = 1e5

// finite reads a number between 0 and most, and is 0 for everything else: JSON has neither NaN nor infinity.
func finite(s string, most float64) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= most) {
		return 0
	}
	return v
}

// maxPorts bounds the ports, and maxRails the rails, of one end.
const (
	maxPorts = 512
	maxRails = 64
)

// add takes one entry of the GID table: index, GID, interface, type.
func (p *port) add(f []string) {
	if len(f) < 3 {
		return
	}
	i, err := strconv.Atoi(f[0])
	a, aerr := netip.ParseAddr(f[1])
	if err == nil && aerr == nil {
		p.gids = append(p.gids, gid{i, a, f[2], strings.Join(f[3:], " ")})
	}
}

// isOf says whether a GID is the RoCE v2 one of a rail's address. In shared mode other network namespaces have
// interfaces of the same name on other ports.
func (g *gid) isOf(r *rail) bool {
	return strings.HasSuffix(g.kind, "v2") && g.addr.Unmap() == r.addr.Addr() && (g.netdev == r.name || g.netdev == "-")
}

// isOn says whether a rail is on a port: an IPoIB interface has the port's GUID at the end of its address, an Ethernet
// one gives the port a GID with its name and its address.
func (r *rail) isOn(p port) bool {
	hw, err := net.ParseMAC(r.hwaddr)
	isIPoIB := err == nil && len(hw) == 20
	switch {
	case isIPoIB != (p.layer == infiniband):
		return false
	case isIPoIB:
		return slices.ContainsFunc(p.gids, func(g gid) bool {
			b := g.addr.As16()
			return bytes.Equal(hw[12:], b[8:])
		})
	case slices.ContainsFunc(p.gids, func(g gid) bool { return g.isOf(r) }):
		return true
	}
	// It has no GID for the address, which match reports.
	return p.own && slices.ContainsFunc(p.gids, func(g gid) bool { return g.netdev == r.name })
}

// partition is a PKey without the membership bit: full and limited members of one partition may talk.
func partition(pkey string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(pkey, "0x"), 16, 16)
	if err != nil {
		return 0x7fff // the default one
	}
	return n & 0x7fff
}

// pkeyIndex is where the port has the partition, as a full member if it is one; -1: nowhere.
func (p *port) pkeyIndex(pkey string) int {
	best := -1
	for i, k := range p.pkeys {
		if partition(k) != partition(pkey) {
			continue
		}
		if best < 0 || full(k) {
			best = i
		}
	}
	return best
}

// full tells whether a PKey, 0x8001, is that of a full member.
func full(pkey string) bool { return len(pkey) == len("0x8001") && pkey[2] >= '8' }

// limited tells whether the rail's port is in the rail's partition as a limited member only.
func (r *rail) limited() bool {
	i := r.port.pkeyIndex(r.pkey)
	return i >= 0 && !full(r.port.pkeys[i])
}
