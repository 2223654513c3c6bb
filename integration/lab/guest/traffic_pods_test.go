//go:build labguest

package guest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// trafficFabric makes a guest with these HCAs and Debian's RDMA programs. When the test has ended the host is what it
// was, and nothing holds the HCAs: their module can be unloaded.
func trafficFabric(t *testing.T, f Fabric) {
	t.Helper()
	UserLand(t)
	f.Load(t)
	t.Cleanup(func() { Unload(t) })
	Unchanged(t)
}

// trafficPod is a pod with rails: net1 and on.
type trafficPod struct {
	*Pod
	number int // the last octet of its addresses
	rails  []*attachment
	idle   map[string]int // verbs objects while no program runs
}

// podWithRails attaches a pod to these networks. On the nth, counted from 1, its address is 10.n.0.NUMBER.
func podWithRails(t *testing.T, name string, number int, networks ...config) *trafficPod {
	t.Helper()
	p := &trafficPod{Pod: NewPod(t, name), number: number}
	for i, fields := range networks {
		conf := network(fields)
		conf["ipam"] = static(p.address(i+1) + "/24")
		a := interfaceOf(p.Pod, fmt.Sprintf("net%d", i+1), conf)
		a.add(t)
		p.rails = append(p.rails, a)
	}
	p.idle = verbsObjects(t, p.Pod)
	return p
}

func (p *trafficPod) address(rail int) string { return fmt.Sprintf("10.%d.0.%d", rail, p.number) }

// hca returns the name of the pod's only RDMA device.
func (p *trafficPod) hca(t *testing.T) string {
	t.Helper()
	links, err := dump(p.Handle(t).RdmaLinkList)
	if err != nil || len(links) != 1 {
		t.Fatalf("RDMA devices of pod %s: %v, %v", p.Name, links, err)
	}
	return links[0].Attrs.Name
}

// idleAgain waits until the pod has no verbs objects but those from before its programs.
func (p *trafficPod) idleAgain(t *testing.T) {
	t.Helper()
	Until(t, "the programs of pod "+p.Name+" have left no verbs objects", func() error {
		if now := verbsObjects(t, p.Pod); !maps.Equal(now, p.idle) {
			return fmt.Errorf("there are %v, before %v", now, p.idle)
		}
		return nil
	})
}

// leave detaches the pod, after its programs: none of them has left anything.
func (p *trafficPod) leave(t *testing.T) {
	t.Helper()
	p.idleAgain(t)
	for _, a := range slices.Backward(p.rails) {
		a.call("CHECK").Must(t)
		a.del(t)
	}
}

// join gives two pods another network, as the cluster's is: eth0 with 192.168.0.NUMBER. Programs meet there when the
// rail has no IPoIB, or none that works.
func join(t *testing.T, a, b *trafficPod) {
	t.Helper()
	wire(t, a.Pod, b.Pod)
	for _, p := range []*trafficPod{a, b} {
		p.sh(t, "ip address add "+p.clusterAddress()+"/24 dev eth0; ip link set eth0 up")
	}
}

// wire gives each of two pods an end of a veth, eth0. It gets this name there: Linux 6.1 refuses to create an interface
// in another network namespace under a name that one here has, and NICs of earlier tests have such names.
func wire(t *testing.T, a, b *Pod) {
	t.Helper()
	Modprobe(t, "veth")
	commands(t, [][]string{
		{"ip", "link", "add", "veth" + a.Name, "type", "veth", "peer", "name", "veth" + b.Name},
		{"ip", "link", "set", "veth" + a.Name, "netns", a.Name, "name", "eth0"},
		{"ip", "link", "set", "veth" + b.Name, "netns", b.Name, "name", "eth0"},
	})
}

func (p *trafficPod) clusterAddress() string { return fmt.Sprintf("192.168.0.%d", p.number) }

// Octets of a message, and messages, of the programs that measure.
const (
	messageSize = 65536
	messages    = 50
)

// perftest is the command line of a program of perftest with these further arguments.
func perftest(name string, args ...string) []string {
	return append([]string{name, "-F", "--report_gbits", "-n", strconv.Itoa(messages)}, args...)
}

// sized is the same with messages of messageSize.
func sized(name string, args ...string) []string {
	return perftest(name, append([]string{"-s", strconv.Itoa(messageSize)}, args...)...)
}

var (
	bandwidthLine = regexp.MustCompile(`(?m)^ #bytes +#iterations +BW.*\n *\d+ +\d+ +[\d.]+ +([\d.]+)`)
	latencyLine   = regexp.MustCompile(`(?m)^ #bytes +#iterations +t_min.*\n *\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)`)
	pingpongLine  = regexp.MustCompile(`(?m)^\d+ iters in .* = ([\d.]+) usec/iter`)
)

// figure returns what a program has measured, "" if it has not.
func figure(output string) string {
	for pattern, unit := range map[*regexp.Regexp]string{
		bandwidthLine: "Gb/s", latencyLine: "us", pingpongLine: "us",
	} {
		if found := pattern.FindStringSubmatch(output); found != nil {
			if n, err := strconv.ParseFloat(found[1], 64); err == nil && n > 0 {
				return found[1] + " " + unit
			}
		}
	}
	return ""
}

// unclocked is what perftest says in place of a figure when it could not measure the rate of the processor's clock, as
// on an emulated processor of a busy machine. The messages went over the wire all the same: the ports' counters say it.
const unclocked = "Correlation coefficient r^2"

// measured fails the test unless a client has measured something, and logs what.
func measured(t *testing.T, talk Talk) {
	t.Helper()
	got := figure(talk.Client.Output)
	if got == "" && strings.Contains(talk.Client.Output, unclocked) {
		got = "sent, not timed"
	}
	if got == "" {
		t.Fatalf("nothing is measured:\n%s", talk)
	}
	t.Logf("%s: %s (emulated)", strings.Fields(talk.Client.Program)[0], got)
}

// moved is what an HCA's port has sent and received, in octets.
type moved struct{ sent, received uint64 }

// octets reads the port counters of an HCA in a pod. They count units of four octets.
func octets(t *testing.T, p *trafficPod, hca string) moved {
	t.Helper()
	c := Counters(t, p.Pod, hca)
	sent, ok := c["port_xmit_data"]
	received, ok2 := c["port_rcv_data"]
	if !ok || !ok2 {
		t.Fatalf("the port of %s in pod %s does not count what it carries: %v", hca, p.Name, c)
	}
	return moved{4 * sent, 4 * received}
}

func (m moved) since(before moved) moved {
	return moved{m.sent - before.sent, m.received - before.received}
}
