package counters

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Look is what the counters of a node's ports were at one moment.
type Look struct {
	Up    time.Duration // since the boot; 0: not known
	Ports []Port
}

// Port is one port in a look.
type Port struct {
	HCA    string            `json:"hca"` // on the host
	Number uint32            `json:"port"`
	Place  string            `json:"place"` // of the hardware, and who has it: elsewhere it is another port
	Values map[string]uint64 `json:"values"`
	// Downs is how often the carrier of its interface was lost since that exists; nil: not known.
	Downs *uint64 `json:"downs,omitempty"`
}

// Name is the port as NCCL writes it.
func (p *Port) Name() string { return p.HCA + ":" + strconv.FormatUint(uint64(p.Number), 10) }

// Port returns a port of the look, or nil.
func (l *Look) Port(hca string, number uint32) *Port {
	for i := range l.Ports {
		if l.Ports[i].HCA == hca && l.Ports[i].Number == number {
			return &l.Ports[i]
		}
	}
	return nil
}

// Read looks at the ports of the physical functions that the host's sysfs has; a VF does not show the counters of its
// port. root is the root of the machine's file system, or a recording of it.
func Read(root fs.FS, n *node.Node) *Look {
	l := &Look{Up: uptime(root)}
	defer func() { l.Add(recordedLive(root), n) }()
	for i := range n.HCAs {
		h := &n.HCAs[i]
		dir := node.Real(root, path.Join("sys/class/infiniband", h.Name))
		if dir == "" || h.Kind != "PF" {
			continue
		}
		for j := range h.Ports {
			p := &h.Ports[j]
			number := strconv.FormatUint(uint64(p.Number), 10)
			seen := Port{HCA: h.Name, Number: p.Number, Place: h.PCI + " " + h.NodeGUID.String()}
			seen.Values = Sum(In(root, path.Join(dir, "ports", number), p.Number))
			seen.netdev(root, p)
			l.Ports = append(l.Ports, seen)
		}
	}
	return l
}

// CRCErrors are the packets that arrived broken, as an Ethernet interface counts them: mlx5 takes them from the port,
// where ethtool -S calls them rx_crc_errors_phy.
const CRCErrors = "rx_crc_errors"

// netdev adds what the port's interface counts (Documentation/ABI/testing/sysfs-class-net, -statistics).
func (p *Port) netdev(root fs.FS, at *node.Port) {
	if at.Netdev == "" {
		return
	}
	dir := node.Real(root, path.Join("sys/class/net", at.Netdev))
	if dir == "" {
		return
	}
	if v, ok := number(root, path.Join(dir, "carrier_down_count")); ok {
		p.Downs = &v
	}
	if v, ok := number(root, path.Join(dir, "statistics", CRCErrors)); ok && at.LinkLayer == device.Ethernet {
		if p.Values == nil {
			p.Values = map[string]uint64{}
		}
		p.Values[CRCErrors] = v
	}
}

// uptime is the first number of /proc/uptime.
func uptime(root fs.FS) time.Duration {
	b, err := fs.ReadFile(root, "proc/uptime")
	if err != nil {
		return 0
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	s, err := strconv.ParseFloat(word, 64)
	if err != nil || !(s > 0 && s < 1e9) { // nor not a number
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// Change is what one port's counters did between two looks.
type Change struct {
	*Port
	Took time.Duration
	Was  map[string]uint64 // as they were; one that is smaller now has been reset, and is missing in both
	Now  map[string]uint64
	Lost uint64   // how often the link went down meanwhile, as the port or its interface has counted it
	Set  []string // counters that were reset meanwhile
}

// Changes compares two looks, port by port. A port that is another one by now, or was not there, has none.
func Changes(before, now *Look) (out []Change) {
	for i := range now.Ports {
		p := &now.Ports[i]
		was := before.Port(p.HCA, p.Number)
		if was == nil || was.Place != p.Place {
			continue
		}
		c := Change{Port: p, Took: now.Up - before.Up, Was: map[string]uint64{}, Now: map[string]uint64{}}
		for name, v := range p.Values {
			old, ok := was.Values[name]
			switch {
			case !ok:
			case v < old:
				c.Set = append(c.Set, name)
			default:
				c.Was[name], c.Now[name] = old, v
			}
		}
		c.Lost = max(c.Rise("link_downed"), c.Rise(linkDowns))
		if was.Downs != nil && p.Downs != nil && *p.Downs > *was.Downs {
			c.Lost = max(c.Lost, *p.Downs-*was.Downs)
		}
		out = append(out, c)
	}
	return out
}

// Rise is how much a counter rose.
func (c *Change) Rise(name string) uint64 { return c.Now[name] - c.Was[name] }

// perWord is how many bits a word of port_xmit_data has.
const perWord = 32

// Gbps is how much was sent and received, in Gb/s. ok is false if the port does not count it, or was reset.
func (c *Change) Gbps() (in, out float64, ok bool) {
	_, sent := c.Now["port_xmit_data"]
	_, received := c.Now["port_rcv_data"]
	if !sent || !received || c.Took <= 0 {
		return 0, 0, false
	}
	rate := func(name string) float64 { return float64(c.Rise(name)) * perWord / c.Took.Seconds() / 1e9 }
	return rate("port_rcv_data"), rate("port_xmit_data"), true
}
