package doctor

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// RankLog is what NCCL's own log says of the processes of one host; in a pod its host name is the name of the pod.
type RankLog struct {
	Host    string
	Version string
	Network []string // what it uses: IB, Socket, or the name of a plugin
	Devices []string // RDMA ports that it found, by their number there: mlx5_0:1
	Socket  []string // interfaces, if it uses TCP
	None    bool     // NET/IB : No device found
	Env     map[string]string
	Via     map[string]int // channels to other hosts, by network and number: IB/0
	Direct  int            // channels of Via with GPUDirect RDMA
	Nodes   int            // of the largest communicator; 0: not known
	virtual map[int]string // devices that NCCL has merged
	Warned  []string       // what NCCL or verbs complained about
}

// Bounds of what is kept of a log: a tenant has written it.
const (
	maxHosts   = 4096 // of one log
	maxLogLine = 64 << 10
	maxKept    = 64  // of each list
	maxValue   = 256 // bytes
)

// What NCCL prints, from 2.4 to 2.27. The part before it is from mpirun --tag-output, torchrun or a clock.
var (
	ncclHead  = regexp.MustCompile(`([A-Za-z0-9][\w.-]{0,252}):\d+:\d+ \[\w+\] (?:[\w./-]+:\d+ )?NCCL (INFO|WARN) (.*)`)
	ncclIs    = regexp.MustCompile(`NCCL version (\d[\w.+-]{0,63})`)
	ncclUsing = regexp.MustCompile(`^(?:Using network|Assigned NET plugin) ([\w .-]{1,64}?)(?: to comm)?$`)
	ncclFound = regexp.MustCompile(`\[(\d{1,3})\]\s?([\w.-]{1,64}):(\d{1,3})/(?:IB|RoCE)`)
	ncclTCP   = regexp.MustCompile(`\[\d{1,3}\]([\w.@-]{1,64}):`)
	ncclMade  = regexp.MustCompile(`Made virtual device \[(\d{1,3})\] name=([\w.+-]{1,200})`)
	ncclVia   = regexp.MustCompile(`\[(?:send|receive)\] via NET/([\w-]{1,32})/(\d{1,3})(?:\([^)]{0,16}\))?(/GDRDMA)?`)
	ncclEnv   = regexp.MustCompile(`^(NCCL_[A-Z0-9_]{1,48}) set (?:by environment )?to (.*?)\.?$`)
	ncclNodes = regexp.MustCompile(`\bnNodes (\d{1,6})\b`)
	complains = regexp.MustCompile(`(?i)couldn't |ibv_\w+ failed|caught signal|segmentation fault|vendor err`)
)

// ReadLog reads a log. Lines longer than most are cut. What is not of NCCL is passed over.
func ReadLog(r io.Reader) (out []*RankLog, err error) {
	by := map[string]*RankLog{}
	version := ""
	in := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case bytes.Contains(line, []byte("NCCL")):
			if m := ncclIs.FindSubmatch(line); m != nil {
				version = string(m[1])
			}
			if m := ncclHead.FindSubmatch(bytes.TrimRight(line, "\r\n ")); m != nil {
				if l := hostLog(by, &out, string(m[1])); l != nil {
					l.take(string(m[2]) == "WARN", string(m[3]))
				}
			}
		case complains.Match(line) && len(line) < maxLogLine:
			if l := hostLog(by, &out, ""); l != nil {
				l.warn(string(line))
			}
		}
		for err == bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is; the rest of a line is not read
			_, err = in.ReadSlice('\n')
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return out, err
		}
	}
	for _, l := range out {
		if l.Version == "" && l.Host != "" {
			l.Version = version // one process prints it for all
		}
	}
	return out, nil
}

// hostLog is what is known of a host. Those of a log are bounded.
func hostLog(by map[string]*RankLog, out *[]*RankLog, name string) *RankLog {
	l := by[name]
	if l == nil && len(by) < maxHosts {
		l = &RankLog{Host: name, Env: map[string]string{}, Via: map[string]int{}, virtual: map[int]string{}}
		by[name] = l
		*out = append(*out, l)
	}
	return l
}

func keep(list []string, s string) []string {
	if len(s) > maxValue {
		s = s[:maxValue]
	}
	if len(list) < maxKept && !slices.Contains(list, s) {
		list = append(list, s)
	}
	return list
}

func (l *RankLog) warn(s string) { l.Warned = keep(l.Warned, strings.TrimSpace(s)) }

// take takes a message of NCCL.
func (l *RankLog) take(warning bool, text string) {
	if warning {
		l.warn("NCCL WARN " + text)
		return
	}
	switch {
	case strings.HasPrefix(text, "NET/IB : Using"):
		for _, m := range ncclFound.FindAllStringSubmatch(text, maxKept) {
			l.found(m[1], m[2]+":"+m[3])
		}
	case strings.HasPrefix(text, "NET/IB : No device found"):
		l.None = true
	case strings.HasPrefix(text, "NET/Socket : Using"):
		for _, m := range ncclTCP.FindAllStringSubmatch(text, maxKept) {
			l.Socket = keep(l.Socket, m[1])
		}
	case strings.Contains(text, " via NET/"):
		if m := ncclVia.FindStringSubmatch(text); m != nil && (len(l.Via) < maxKept || l.Via[m[1]+"/"+m[2]] > 0) {
			l.Via[m[1]+"/"+m[2]]++
			if m[3] != "" {
				l.Direct++
			}
		}
	}
	if m := ncclUsing.FindStringSubmatch(text); m != nil {
		l.Network = keep(l.Network, m[1])
	}
	if m := ncclMade.FindStringSubmatch(text); m != nil && len(l.virtual) < maxKept {
		i, _ := strconv.Atoi(m[1]) // three digits
		l.virtual[i] = m[2]
	}
	if m := ncclEnv.FindStringSubmatch(text); m != nil && len(l.Env) < maxKept && len(m[2]) <= maxValue {
		l.Env[m[1]] = strings.Trim(m[2], `"`)
	}
	if m := ncclNodes.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		l.Nodes = max(l.Nodes, n)
	}
}

// found puts a port at its number: each process lists all of them.
func (l *RankLog) found(number, port string) {
	i, _ := strconv.Atoi(number) // three digits
	if i >= maxKept {
		return
	}
	for len(l.Devices) <= i {
		l.Devices = append(l.Devices, "")
	}
	l.Devices[i] = port
}

// merge adds what another log says of the same host.
func (l *RankLog) merge(o *RankLog) {
	if o.Version != "" {
		l.Version = o.Version
	}
	for _, n := range o.Network {
		l.Network = keep(l.Network, n)
	}
	for i, d := range o.Devices {
		if d != "" {
			l.found(strconv.Itoa(i), d)
		}
	}
	for _, s := range o.Socket {
		l.Socket = keep(l.Socket, s)
	}
	for _, w := range o.Warned {
		l.warn(w)
	}
	for k, v := range o.Env {
		l.Env[k] = v
	}
	for k, n := range o.Via {
		l.Via[k] += n
	}
	for i, n := range o.virtual {
		l.virtual[i] = n
	}
	l.None, l.Direct, l.Nodes = l.None || o.None, l.Direct+o.Direct, max(l.Nodes, o.Nodes)
}

// spoken reports whether NCCL has said anything of its network.
func (l *RankLog) spoken() bool {
	return len(l.Network)+len(l.Devices)+len(l.Socket)+len(l.Via) > 0 || l.None
}

// tcp reports whether it uses TCP between hosts, by what it says.
func (l *RankLog) tcp() bool {
	for k := range l.Via {
		if strings.HasPrefix(k, "Socket/") {
			return true
		}
	}
	return slices.Contains(l.Network, "Socket")
}

// network is what it uses, in a word.
func (l *RankLog) network() string {
	switch {
	case l.tcp():
		return "Socket"
	case len(l.Network) > 0:
		return l.Network[0]
	}
	for k := range l.Via {
		name, _, _ := strings.Cut(k, "/")
		return name
	}
	switch {
	case slices.ContainsFunc(l.Devices, func(d string) bool { return d != "" }):
		return "IB"
	case len(l.Socket) > 0:
		return "Socket"
	}
	return ""
}

// used are the ports that channels go over; without any channel those that were found.
func (l *RankLog) used() (out []string) {
	for k := range l.Via {
		name, number, _ := strings.Cut(k, "/")
		i, err := strconv.Atoi(number)
		if err != nil || name == "Socket" {
			continue
		}
		switch {
		case l.virtual[i] != "":
			for n := range strings.SplitSeq(l.virtual[i], "+") {
				out = append(out, l.port(n))
			}
		case i < len(l.Devices) && l.Devices[i] != "":
			out = append(out, l.Devices[i])
		}
	}
	if len(out) == 0 && !l.tcp() {
		out = slices.DeleteFunc(slices.Clone(l.Devices), func(d string) bool { return d == "" })
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// port is the port of a device by the device's name.
func (l *RankLog) port(name string) string {
	for _, d := range l.Devices {
		if h, _, _ := strings.Cut(d, ":"); h == name || d == name {
			return d
		}
	}
	return name
}
