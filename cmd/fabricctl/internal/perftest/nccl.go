package perftest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// NCCL is the result of all_reduce_perf.
type NCCL struct {
	Ranks     int     `json:"ranks,omitempty"`
	BusGB     float64 `json:"busGB,omitempty"`     // GB/s, 10^9 bytes: the best row's bus bandwidth
	Bytes     float64 `json:"bytes,omitempty"`     // of that row
	AverageGB float64 `json:"averageGB,omitempty"` // over all sizes, as nccl-tests says
	Network   string  `json:"network,omitempty"`   // IB, Socket or both, as NCCL says
	Verdict   Verdict `json:"verdict"`
	Text      string  `json:"text"`
}

var (
	ncclNet     = regexp.MustCompile(`NCCL INFO NET/(IB|Socket|OFI|UCX)\b`)
	ncclUsing   = regexp.MustCompile(`NCCL INFO Using network (\w+)`)
	ncclWrong   = regexp.MustCompile(`#\s*Out of bounds values\s*:\s*(\d+)`)
	ncclAverage = regexp.MustCompile(`#\s*Avg bus bandwidth\s*:\s*([0-9.]+)`)
	ncclRank    = regexp.MustCompile(`^#\s+Rank\s+\d+\s`)
	ncclWarn    = regexp.MustCompile(`NCCL WARN (.*)`)
)

// maxBus is more GB/s than anything has.
const maxBus = 1e6

// ParseNCCL reads the log of all_reduce_perf that ran with NCCL_DEBUG=INFO, and judges it: least are the GB/s of bus
// bandwidth that are wanted; 0: any. A log that shows TCP has failed, whatever its figures.
func ParseNCCL(log string, least float64) *NCCL {
	n := &NCCL{Verdict: Failed}
	nets := map[string]bool{}
	wrong, warning := 0, ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if m := ncclNet.FindStringSubmatch(line); m != nil {
			nets[m[1]] = true
		}
		if m := ncclUsing.FindStringSubmatch(line); m != nil {
			nets[m[1]] = true
		}
		if m := ncclWrong.FindStringSubmatch(line); m != nil {
			wrong, _ = strconv.Atoi(m[1])
		}
		if m := ncclAverage.FindStringSubmatch(line); m != nil {
			n.AverageGB = bounded(m[1])
		}
		if m := ncclWarn.FindStringSubmatch(line); m != nil && warning == "" {
			warning = m[1]
		}
		if ncclRank.MatchString(line) {
			n.Ranks++
		}
		n.row(strings.Fields(line))
	}
	n.network(nets)
	n.judge(least, wrong, warning, log)
	return n
}

func bounded(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= maxBus) {
		return 0
	}
	return v
}

// row reads a row of the table: size, count, type, redop, root, then time, algbw, busbw, #wrong out of place, and the
// same in place.
func (n *NCCL) row(f []string) {
	if len(f) < 9 || f[2] != "float" && f[2] != "half" && f[2] != "bfloat16" {
		return
	}
	size, err := strconv.ParseUint(f[0], 10, 63)
	if err != nil {
		return
	}
	busbw := []string{f[7]}
	if len(f) >= 13 {
		busbw = append(busbw, f[11])
	}
	for _, s := range busbw {
		if v := bounded(s); v > n.BusGB {
			n.BusGB, n.Bytes = v, float64(size)
		}
	}
}

func (n *NCCL) network(nets map[string]bool) {
	switch {
	case nets["IB"] && nets["Socket"]:
		n.Network = "IB and Socket"
	case nets["Socket"]:
		n.Network = "Socket"
	case nets["IB"] || nets["IBext"] || nets["IBext_v8"]:
		n.Network = "IB"
	}
	for name := range nets {
		if n.Network == "" {
			n.Network = name
		}
	}
}

func (n *NCCL) judge(least float64, wrong int, warning, log string) {
	switch {
	case n.BusGB == 0:
		n.Text = "all_reduce_perf has printed no bandwidth: "
		if warning != "" {
			n.Text += warning
		} else {
			n.Text += last(log)
		}
		if len(n.Text) > 1000 {
			n.Text = strings.ToValidUTF8(n.Text[:1000], "") + "..."
		}
		return
	case wrong > 0:
		n.Text = fmt.Sprintf("%d wrong values: a GPU, or what is between them, is broken", wrong)
		return
	case strings.Contains(n.Network, "Socket"):
		n.Text = fmt.Sprintf("NET/Socket: NCCL took TCP, %s GB/s: fabricctl doctor pod, and nccl-env, in the pods",
			figure(n.BusGB))
		return
	}
	n.Verdict, n.Text = Good, fmt.Sprintf("%s GB/s bus bandwidth", figure(n.BusGB))
	if n.Network == "" {
		n.Verdict = Skipped
		n.Text += "; the log has no NET/IB: over which network is not known (NCCL_DEBUG=INFO)"
	} else {
		n.Text += " over NET/" + n.Network
	}
	if least > 0 && n.BusGB < least {
		n.Verdict = Slow
		n.Text += fmt.Sprintf(": slow: %s are wanted: the pairs' results say which path, else GPUDirect, NCCL_IB_HCA, "+
			"NVLink", figure(least))
	}
}
