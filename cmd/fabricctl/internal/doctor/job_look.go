package doctor

import (
	"bufio"
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Look is a shell script that prints what a container has of RDMA: devices, two values of each counter with the time
// between them in $1 seconds, and its memory. It needs a POSIX shell, its builtins, and sleep.
const Look = `r() { v=; [ -r "$1" ] && read -r v <"$1"; }
c() {
	r /proc/uptime
	echo "T ${v%% *}"
	for d in /sys/class/infiniband/*/ports/*; do
		h=${d#/sys/class/infiniband/}
		r "$d/counters/port_xmit_data"; x=$v
		r "$d/counters/port_rcv_data"
		[ -n "$x" ] && echo "C ${h%%/*} ${d##*/} $x $v"
	done
}
for u in /sys/class/infiniband_verbs/uverbs*; do
	r "$u/ibdev"
	[ -e "/dev/infiniband/${u##*/}" ] && echo "U $v"
done
for d in /sys/class/infiniband/*/ports/*; do
	h=${d#/sys/class/infiniband/}
	r "$d/state"; s=$v
	r "$d/link_layer"; l=$v
	r "$d/gids/0"; g=$v
	r "$d/gid_attrs/ndevs/0"
	[ -n "$s" ] && echo "P ${h%%/*} ${d##*/} ${s#*: } $l $g $v"
done
for n in /sys/class/net/*; do
	r "$n/address"
	echo "N ${n##*/} $v"
done
m=/sys/fs/cgroup
if [ -r $m/memory.max ]; then
	r $m/memory.max; x=$v
	r $m/memory.current
	echo "M 2 $x $v"
elif [ -r $m/memory/memory.limit_in_bytes ]; then
	m=$m/memory
	r $m/memory.limit_in_bytes; x=$v
	r $m/memory.usage_in_bytes
	echo "M 1 $x $v"
fi
for f in $m/memory.stat $m/memory.events $m/memory.oom_control; do
	[ -r $f ] && while read -r k v; do case $k in shmem|unevictable|oom_kill) echo "K $k $v";; esac; done <$f
done
i=0
for f in /proc/[0-9]*/status; do
	i=$((i+1))
	[ $i -gt 256 ] && break
	[ -r "$f" ] && while read -r k v x; do case $k in VmPin:) [ "$v" != 0 ] && echo "V $v";; esac; done <"$f"
done 2>/dev/null
c
sleep "$1"
c
exit 0
`

// Seen is what a container has, as Look prints it.
type Seen struct {
	Ports    []SeenPort
	Seconds  float64 // between the two looks
	Cgroup   int     // version of the memory controller; 0: not known
	Limit    int64   // bytes; -1: none
	Used     int64   // bytes
	Shm      int64   // bytes of Used in tmpfs
	Pinned   int64   // bytes that its processes have registered with RDMA devices
	OOMKills int64
}

// SeenPort is a port that a container sees.
type SeenPort struct {
	Name     string // mlx5_0:1
	State    string
	Ethernet bool
	Given    bool // it can be opened, and has an interface here if any port has
	Send     uint64
	Receive  uint64 // bytes between the two looks
	Counted  bool
	first    [2]uint64
	guid     string
	netdev   string
	uverbs   bool
}

// Bounds of what a container may say.
const (
	maxSeenPorts = 1024
	maxSeen      = 1 << 20 // bytes
)

// MaxSeen is how many bytes of the output of Look count.
const MaxSeen = maxSeen

// ReadLook reads what Look has printed. Lines of another form are passed over.
func ReadLook(text []byte) *Seen {
	s := &Seen{Limit: -1}
	open, names, addresses := map[string]bool{}, map[string]bool{}, []string{}
	var clocks []float64
	in := bufio.NewScanner(bytes.NewReader(text[:min(len(text), maxSeen)]))
	for in.Scan() {
		w := strings.Fields(in.Text())
		if len(w) < 2 {
			continue
		}
		switch {
		case w[0] == "T":
			if t, err := strconv.ParseFloat(w[1], 64); err == nil && len(clocks) < 2 {
				clocks = append(clocks, t)
			}
		case w[0] == "U" && len(open) < maxSeenPorts:
			open[w[1]] = true
		case w[0] == "N" && len(names) < maxSeenPorts:
			names[w[1]] = true
			if len(w) > 2 {
				addresses = append(addresses, strings.ReplaceAll(w[2], ":", ""))
			}
		case w[0] == "P" && len(w) >= 5 && len(s.Ports) < maxSeenPorts:
			s.port(w)
		case w[0] == "C" && len(w) >= 5:
			s.count(w, len(clocks))
		default:
			s.memory(w)
		}
	}
	if len(clocks) == 2 && clocks[1] > clocks[0] {
		s.Seconds = clocks[1] - clocks[0]
	}
	s.given(open, names, addresses)
	return s
}

func (s *Seen) port(w []string) {
	p := SeenPort{Name: w[1] + ":" + w[2], State: w[3], Ethernet: w[4] == "Ethernet"}
	if len(w) > 5 {
		if !strings.Contains(w[5], ":") { // no GID
			p.netdev = w[5]
		}
		if i := strings.LastIndex(w[5], ":"); i >= 0 && len(w[5]) >= 19 {
			p.guid = strings.ReplaceAll(w[5][len(w[5])-19:], ":", "")
		}
	}
	if len(w) > 6 {
		p.netdev = w[6]
	}
	s.Ports = append(s.Ports, p)
}

// count takes a pair of counters; clocks tells which look it is of. The counters are in words of 4 bytes.
func (s *Seen) count(w []string, clocks int) {
	i := slices.IndexFunc(s.Ports, func(p SeenPort) bool { return p.Name == w[1]+":"+w[2] })
	send, err := strconv.ParseUint(w[3], 10, 64)
	receive, err2 := strconv.ParseUint(w[4], 10, 64)
	if i < 0 || err != nil || err2 != nil {
		return
	}
	p := &s.Ports[i]
	switch {
	case clocks == 1:
		p.first, p.Counted = [2]uint64{send, receive}, false
	case clocks == 2 && send >= p.first[0] && receive >= p.first[1]: // else they were reset
		const word = 4
		p.Send, p.Receive, p.Counted = (send-p.first[0])*word, (receive-p.first[1])*word, true
	}
}

func (s *Seen) memory(w []string) {
	n := func(i int) int64 {
		if i >= len(w) {
			return -1
		}
		v, err := strconv.ParseInt(w[i], 10, 64)
		if err != nil || v < 0 || v >= 1<<62 { // version 1 writes a number near 1<<63 for no limit
			return -1
		}
		return v
	}
	switch {
	case w[0] == "M" && len(w) >= 4 && (w[1] == "1" || w[1] == "2"):
		s.Cgroup = int(w[1][0] - '0')
		s.Limit, s.Used = n(2), max(0, n(3))
	case w[0] == "K" && len(w) >= 3 && w[1] == "shmem":
		s.Shm = max(0, n(2))
	case w[0] == "K" && len(w) >= 3 && w[1] == "oom_kill":
		s.OOMKills = max(0, n(2))
	case w[0] == "V":
		if v := n(1); v > 0 && v < 1<<50 {
			s.Pinned = min(s.Pinned+v<<10, 1<<60)
		}
	}
}

// given marks the ports that are the pod's: those that it can open, and where ports have interfaces here, as in mode
// shared those that were given to it have, these only.
func (s *Seen) given(open, names map[string]bool, addresses []string) {
	here := func(p *SeenPort) bool {
		return p.netdev != "" && names[p.netdev] || p.guid != "" && slices.ContainsFunc(addresses, func(a string) bool {
			return len(a) == 40 && strings.HasSuffix(a, p.guid) // of IPoIB: 20 bytes, the last 8 are the port's GUID
		})
	}
	with := map[bool]bool{} // by link layer
	for i := range s.Ports {
		p := &s.Ports[i]
		hca, _, _ := strings.Cut(p.Name, ":")
		p.uverbs = open[hca] || len(open) == 0
		with[p.Ethernet] = with[p.Ethernet] || p.uverbs && here(p)
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Given = p.uverbs && (here(p) || !with[p.Ethernet]) && !strings.Contains(p.Name, "bond")
	}
	if !slices.ContainsFunc(s.Ports, func(p SeenPort) bool { return p.Given }) { // nothing but a bond
		for i := range s.Ports {
			s.Ports[i].Given = s.Ports[i].uverbs
		}
	}
}
