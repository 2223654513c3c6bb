package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/sample"
)

// choose returns those of groups that the expression matches.
func choose(groups, expression string) (string, error) {
	want, err := regexp.Compile("^(" + expression + ")$")
	if err != nil {
		return "", fmt.Errorf("flag -groups: %w", err)
	}
	return strings.Join(
		slices.DeleteFunc(strings.Split(groups, "|"), func(g string) bool { return !want.MatchString(g) }),
		"|",
	), nil
}

// target is a ratio that is to be reached.
type target struct {
	what    string
	of      string
	against string
	words   string // for against
	most    float64
}

// The floor is the kernel's work alone, in one process that is executed once; see bare.Job. static is built into
// fabric, so no IPAM process belongs to it.
const once = "floor exec'd once"

var targets = append(slices.Concat(
	both("IPoIB + RDMA, exclusive", "ipoib/fabric", once, 1.20, 1.20, "ipoib/floor-once"),
	both("IPoIB + RDMA, exclusive", "ipoib/fabric", "host-device, netdev only", 0.85, 1.00, "ipoib/host-device"),
	both("plain netdev", "netdev/fabric", "host-device", 0.65, 0.80, "netdev/host-device"),
	both("IPoIB, shared mode", "shared/fabric", "host-device", 0.65, 0.80, "shared/host-device"),
	both("IB VF, exclusive", "vf/fabric", once, 1.20, 1.20, "vf/floor-once"),
	both("IB VF, exclusive", "vf/fabric", "host-device, netdev only", 0.85, 1.00, "vf/host-device"),
	both("IB VF, exclusive", "vf/fabric", "ib-sriov (stand-in)", 1.00, 1.00, "vf/ib-sriov"),
	both("IB VF with a GUID", "guid/fabric", "ib-sriov (stand-in)", 1.00, 1.00, "guid/ib-sriov"),
	both("8 IB VFs with GUIDs at once", "guids/fabric-parallel", "ib-sriov (stand-in)", 1.00, 1.00,
		"guids/ib-sriov-parallel"),
	both("PKey child", "child/fabric", once, 1.20, 1.20, "child/floor-once"),
	both("veth, not emulated", "veth/fabric", once, 1.20, 1.20, "veth/floor-once"),
	both("veth, not emulated", "veth/fabric", "host-device", 0.65, 0.80, "veth/host-device"),
	both("8 veths at once, not emulated", "veths/fabric-parallel", "8 floors at once", 1.30, 1.30,
		"veths/floor-once-parallel"),
	both("8 veths at once, not emulated", "veths/fabric-parallel", "8 in turn", 1.00, 1.00, "veths/fabric-sequence"),
	both("4 rails at once", "rails/fabric-parallel", "4 floors at once", 1.30, 1.30, "rails/floor-once-parallel"),
	both("4 rails at once", "rails/fabric-parallel", "4 in turn", 1.00, 1.00, "rails/fabric-sequence"),
	both("PKey child", "child/fabric", "ipoib-cni (stand-in)", 1.00, 1.00, "child/ipoib-cni"),
), target{"VERSION", "version/fabric/add", "version/trivial/add", "trivial plugin", 1.10},
	target{"ADD, IB VF of another namespace's pod", "tenant/other/add", "tenant/same/add", "of the same one's", 1.50},
	target{"DEL, IB VF of another namespace's pod", "tenant/other/del", "tenant/same/del", "of the same one's", 1.05},
	target{"ADD, 100 other network namespaces", "namespaces/100/add", "namespaces/1/add", "1", 1.50},
	target{"DEL, 100 other network namespaces", "namespaces/100/del", "namespaces/1/del", "1", 1.50},
	target{"ADD, 500 other network namespaces", "namespaces/500/add", "namespaces/1/add", "1", 3.00},
	target{"DEL, 500 other network namespaces", "namespaces/500/del", "namespaces/1/del", "1", 3.00},
	target{"ADD, 512 others in the journal", "journal/512/add", "journal/none/add", "none", 1.05},
	target{"DEL, 512 others in the journal", "journal/512/del", "journal/none/del", "none", 1.05})

func both(what, of, words string, add, del float64, against string) []target {
	return []target{
		{"ADD, " + what, of + "/add", against + "/add", words, add},
		{"DEL, " + what, of + "/del", against + "/del", words, del},
	}
}

// limits of what is measured once.
var limits = []struct {
	value, what, unit string
	most              float64
}{
	{"size/fabric", "binary, stripped", "MB", 8},
	{"rss/fabric", "peak RSS of an ADD", "MiB", 20},
}

func verdict(ok bool) string {
	if ok {
		return "PASS"
	}
	return "MISS"
}

func report(w io.Writer, set *sample.Set) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "milliseconds\tmedian\tquartiles\t\tmin\t x floor\t")
	var names []string
	for name := range set.Series {
		names = append(names, name)
	}
	slices.Sort(names)
	last := ""
	for _, name := range names {
		group, rest, _ := strings.Cut(name, "/")
		if group != last && last != "" {
			fmt.Fprintln(t, "\t\t\t\t\t\t")
		}
		last = group
		v, ratio := set.Series[name], ""
		verb := name[strings.LastIndex(name, "/"):]
		floor := set.Series[group+"/floor"+verb]
		if group == "rails" {
			floor = set.Series["rails/floor-sequence"+verb]
		}
		if floor != nil && !strings.HasPrefix(rest, "floor/") && !strings.HasPrefix(rest, "floor-seq") &&
			!strings.HasPrefix(rest, "ipam/") {
			ratio = fmt.Sprintf("%.2f", sample.Median(v)/sample.Median(floor))
		}
		fmt.Fprintf(
			t,
			"%s\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t\n",
			name,
			sample.Median(v),
			sample.Quantile(v, 0.25),
			sample.Quantile(v, 0.75),
			sample.Quantile(v, 0),
			ratio,
		)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return reportTargets(w, set)
}

// reportTargets prints three ratios: that of the medians, which the target is for; the median of the ratios within a
// cycle, which a change of the machine's load disturbs less; and that of the fastest, which are those that were
// disturbed least.
func reportTargets(w io.Writer, set *sample.Set) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "operation\tagainst\tmedians\tin pairs\tminima\tat most\t")
	for _, x := range targets {
		a, b := set.Series[x.of], set.Series[x.against]
		if len(a) == 0 || len(b) == 0 {
			continue
		}
		ratio := sample.Median(a) / sample.Median(b)
		fmt.Fprintf(
			t,
			"%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%s\n",
			x.what,
			x.words,
			ratio,
			sample.Median(sample.Ratios(a, b)),
			slices.Min(a)/slices.Min(b),
			x.most,
			verdict(ratio <= x.most),
		)
		previous := strings.Replace(x.of, "/fabric", "/previous", 1)
		if p, ok := set.Series[previous]; ok && previous != x.of {
			fmt.Fprintf(t, "  the same\tthe previous build\t%.3f\t%.3f\t%.3f\t\t\n", sample.Median(a)/sample.Median(p),
				sample.Median(sample.Ratios(a, p)), slices.Min(a)/slices.Min(p))
		}
	}
	for _, x := range limits {
		if v, ok := set.Values[x.value]; ok {
			fmt.Fprintf(t, "%s\t\t%.1f %s\t\t\t%.0f\t%s\n", x.what, v, x.unit, x.most, verdict(v <= x.most))
		}
	}
	return t.Flush()
}
