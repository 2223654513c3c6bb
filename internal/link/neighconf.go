package link

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// Attributes of a neighbour table (include/uapi/linux/neighbour.h).
const (
	sizeofNdtMsg = 4
	ndtaParms    = 6
	ndtpaIfindex = 1
)

// neighbourConf are the parameters of a neighbour table that an administrator sets, with their sysctl and how many
// milliseconds its unit has; 0: it is a number (net/core/neighbour.c, neightbl_fill_parms and neigh_sysctl_template).
var neighbourConf = map[uint16]struct {
	sysctl string
	unit   uint64
}{
	4:  {"base_reachable_time_ms", 1},
	5:  {"retrans_time_ms", 1},
	6:  {"gc_stale_time", 1000},
	7:  {"delay_first_probe_time", 1000},
	9:  {"app_solicit", 0},
	10: {"ucast_solicit", 0},
	11: {"mcast_solicit", 0},
	12: {"anycast_delay", 10},
	13: {"proxy_delay", 10},
	14: {"proxy_qlen", 0},
	15: {"locktime", 10},
	16: {"unres_qlen_bytes", 0},
	17: {"mcast_resolicit", 0},
	19: {"interval_probe_time_ms", 1},
}

// NeighbourConf returns the sysctls of a netdev below net/ipv4/neigh and net/ipv6/neigh, by path below /proc/sys/net
// with % for the name. The kernel has only a dump for it, which is quicker than to read as many files.
func (c *Conn) NeighbourConf(index int) (map[string]string, error) {
	msgs, err := c.nl.Dump(unix.RTM_GETNEIGHTBL, make([]byte, sizeofNdtMsg))
	if err != nil {
		return nil, fmt.Errorf("list the settings of neighbour tables: %w", err)
	}
	out := map[string]string{}
	for _, b := range msgs {
		if len(b) < sizeofNdtMsg {
			continue
		}
		dir := "ipv4/neigh/%/"
		if b[0] == unix.AF_INET6 {
			dir = "ipv6/neigh/%/"
		} else if b[0] != unix.AF_INET {
			continue
		}
		for a := range nlmsg.Attrs(b[sizeofNdtMsg:]) {
			if a.Type == ndtaParms && ofNetdev(a.Value, index) {
				decodeNeighbourConf(out, dir, a.Value)
			}
		}
	}
	return out, nil
}

func ofNetdev(parms []byte, index int) bool {
	for a := range nlmsg.Attrs(parms) {
		if a.Type == ndtpaIfindex {
			return int(a.Uint32()) == index
		}
	}
	return false
}

func decodeNeighbourConf(out map[string]string, dir string, parms []byte) {
	for a := range nlmsg.Attrs(parms) {
		p, ok := neighbourConf[a.Type]
		switch {
		case !ok:
		case p.unit == 0:
			out[dir+p.sysctl] = strconv.FormatUint(uint64(a.Uint32()), 10)
		case len(a.Value) >= 8:
			out[dir+p.sysctl] = strconv.FormatUint(binary.NativeEndian.Uint64(a.Value)/p.unit, 10)
		}
	}
}
