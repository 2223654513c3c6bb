package fabric_test

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// hostState prints what the state of sandbox lacks: what a pod can leave on an interface.
const hostState = `for c in "qdisc" ; do tc qdisc show; done
ip neigh show nud permanent; ip neigh show proxy; ip nexthop
cd /sys/class/net; for d in *; do for f in gro_flush_timeout napi_defer_hard_irqs threaded proto_down; do
echo $d $f $(cat $d/$f 2>&1); done; for q in $d/queues/rx-*; do echo $q $(cat $q/rps_cpus $q/rps_flow_cnt); done; done
cd /proc/sys/net; for f in ipv?/conf/*/* ipv?/neigh/*/*; do echo $f $(cat $f 2>&1); done`

// promiscuity of an interface that is down may count a macvlan that is no more: the kernel corrects it when the
// interface comes up (net/core/dev_addr_lists.c and dev.c, __dev_set_rx_mode).
var promiscuity = regexp.MustCompile(`promiscuity \d+`)

var isUp = regexp.MustCompile(`[<,]UP[,>]`)

var peerIndex = regexp.MustCompile(`@if\d+`)

// everything is the host with all that a pod or a plugin can have changed, what is in the third namespace, and what is
// on file. The order of links is
// no part of it: one that has been away may be listed behind the others.
func (w *walkWorld) everything() string {
	var blocks []string
	for line := range strings.Lines(peerIndex.ReplaceAllString(w.host.State(w.t), "@if")) {
		if len(blocks) > 0 && (line[0] == ' ' || line[0] == '\t') {
			blocks[len(blocks)-1] += line
			continue
		}
		blocks = append(blocks, line)
	}
	for i, b := range blocks {
		if strings.Contains(b, "promiscuity ") && !isUp.MatchString(b) {
			blocks[i] = promiscuity.ReplaceAllString(b, "")
		}
	}
	slices.Sort(blocks)
	out, err := exec.Command("ip", "netns", "exec", w.host.Name, "sh", "-c", hostState).Output()
	third, terr := exec.Command("ip", "-n", w.third.Name, "-br", "link").Output()
	if err := errors.Join(err, terr); err != nil {
		w.t.Error(err)
	}
	blocks = append(blocks, "third: "+string(third))
	rest := slices.Collect(strings.Lines(string(out)))
	slices.Sort(rest)
	files := slices.DeleteFunc(w.files(w.t), func(f string) bool {
		return strings.Contains(f, "last_reserved_ip.") || strings.HasSuffix(f, "/lock")
	})
	for i, f := range files {
		files[i] = "file " + f + "\n"
	}
	return strings.Join(blocks, "") + strings.Join(rest, "") + strings.Join(files, "")
}

// patience is how often a difference has to be the same to count: link-local addresses and carriers come by themselves.
const patience = 100

// difference is what of the host is not what it was, line by line.
func (w *walkWorld) difference() string {
	var last string
	for same := 0; same < patience; same++ {
		diff := lineDiff(w.start, w.everything())
		if diff == "" {
			return ""
		}
		if diff != last {
			last, same = diff, 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	return last
}

// lineDiff lists the lines that only one of two sorted states has.
func lineDiff(before, after string) string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]++
	}
	var b strings.Builder
	for line := range strings.Lines(after) {
		if count[line]--; count[line] < 0 {
			b.WriteString("+ " + line)
		}
	}
	for line := range strings.Lines(before) {
		if count[line] > 0 {
			count[line]--
			b.WriteString("- " + line)
		}
	}
	return b.String()
}
