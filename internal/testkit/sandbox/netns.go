package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
)

var serial atomic.Int64

// Netns is a network namespace of a test.
type Netns struct {
	Name string // for ip -n
	Path string // /run/netns/NAME
}

// New creates a network namespace with its loopback up and without duplicate address detection, which takes a second or
// two for each address; it is deleted when the test ends.
func New(t testing.TB) Netns {
	t.Helper()
	n := Netns{Name: fmt.Sprintf("test%d", serial.Add(1))}
	n.Path = "/run/netns/" + n.Name
	Run(t, "ip", "netns", "add", n.Name)
	t.Cleanup(func() { Run(t, "ip", "netns", "delete", n.Name) })
	n.Sysctl(t, "net/ipv6/conf/default/accept_dad", "0")
	n.IP(t, "link", "set", "lo", "up")
	return n
}

// IP runs ip in the namespace and returns its output.
func (n Netns) IP(t testing.TB, args ...string) string {
	t.Helper()
	return Run(t, "ip", append([]string{"-n", n.Name}, args...)...)
}

// Has reports whether the namespace has an interface of this name.
func (n Netns) Has(t testing.TB, name string) bool {
	t.Helper()
	return strings.Contains(n.IP(t, "-o", "link"), ": "+name)
}

// JSON runs ip -j in the namespace and decodes its output into out.
func (n Netns) JSON(t testing.TB, out any, args ...string) {
	t.Helper()
	s := n.IP(t, append([]string{"-j"}, args...)...)
	if strings.TrimSpace(s) == "" {
		s = "[]"
	}
	if err := json.Unmarshal([]byte(s), out); err != nil {
		t.Fatalf("ip -j %v: %v: %s", args, err, s)
	}
}

// Open opens the namespace for the test.
func (n Netns) Open(t testing.TB) *netns.NS {
	t.Helper()
	ns, err := netns.Open(n.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// Link opens an rtnetlink connection into the namespace for the test.
func (n Netns) Link(t testing.TB) *link.Conn {
	t.Helper()
	var c *link.Conn
	err := n.Open(t).Do(func() (err error) {
		c, err = link.Dial()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Veth makes a pair, with name in n and peer in other, both up.
func (n Netns) Veth(t testing.TB, name string, other Netns, peer string) {
	t.Helper()
	n.IP(t, "link", "add", name, "type", "veth", "peer", "name", peer, "netns", other.Name)
	n.IP(t, "link", "set", name, "up")
	other.IP(t, "link", "set", peer, "up")
	n.AwaitLinkLocal(t, name)
	other.AwaitLinkLocal(t, peer)
}

// AwaitLinkLocal waits for what the kernel gives a link that has come up, up to a second later.
func (n Netns) AwaitLinkLocal(t testing.TB, name string) {
	t.Helper()
	Until(t, name+" has its link-local address", func() bool {
		s := n.IP(t, "-6", "addr", "show", "dev", name)
		return strings.Contains(s, "inet6 fe80:") && !strings.Contains(s, "tentative")
	})
}

// Settled waits until no IPv6 address is tentative, which even without duplicate address detection each is for a
// moment, and each that is up has its local route, which the kernel makes a moment later.
func (n Netns) Settled(t testing.TB) {
	t.Helper()
	Until(t, "no address of "+n.Name+" is tentative", func() bool {
		return !strings.Contains(n.IP(t, "-6", "addr", "show", "tentative"), "inet6")
	})
	Until(t, "each IPv6 address of "+n.Name+" has its route", func() bool {
		routes := n.IP(t, "-6", "route", "show", "table", "all", "type", "local")
		return strings.Count(routes, "\n") >= strings.Count(n.IP(t, "-6", "-o", "addr", "show", "up"), "inet6")
	})
}

// index is the ifindex in front of a netdev in ip's output: a move may change it.
var index = regexp.MustCompile(`(?m)^\d+: `)

// timers are those of a bridge, which run.
var timers = regexp.MustCompile(`_timer +[0-9.]+`)

// ownQdisc is a qdisc that the kernel has chosen by itself, when the netdev came up for the first time.
var ownQdisc = regexp.MustCompile(`(?m)^qdisc \S+ 0: .*\n`)

// State is everything of the namespace that a plugin may change, as ip shows it.
func (n Netns) State(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, args := range [][]string{
		{"-d", "link", "show"}, {"-d", "addr", "show"}, {"-4", "-d", "route", "show", "table", "all"},
		{"-6", "-d", "route", "show", "table", "all"}, {"-4", "rule"}, {"-6", "rule"},
		{"neigh", "show", "nud", "permanent"}, {"neigh", "show", "proxy"}, {"nexthop", "show"},
	} {
		text := timers.ReplaceAllString(index.ReplaceAllString(n.IP(t, args...), ""), "_timer")
		out := slices.Collect(strings.Lines(text))
		if slices.Contains(args, "route") {
			slices.Sort(out) // the kernel lists equal ones in the order of their making
		}
		fmt.Fprintf(&b, "# ip %s\n%s", strings.Join(args, " "), strings.Join(out, ""))
	}
	for _, what := range []string{"qdisc", "class"} {
		fmt.Fprintf(&b, "# tc %s\n%s", what, ownQdisc.ReplaceAllString(Run(t, "tc", "-n", n.Name, what, "show"), ""))
	}
	return b.String()
}

// Run runs a command and returns its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Soon polls until f returns true, and reports whether it did. Tries are counted, and not seconds: each takes longer on
// a machine that is slow or busy, as what is waited for does.
func Soon(f func() bool) bool {
	for range 1000 {
		if f() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// Until polls until f returns true, and fails the test when that is in vain.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	if !Soon(f) {
		t.Fatalf("waited in vain until %s", what)
	}
}

// Batch runs many ip commands at once.
func (n Netns) Batch(t testing.TB, commands string) {
	t.Helper()
	cmd := exec.Command("ip", "-n", n.Name, "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip -batch: %v: %s", err, out)
	}
}

// Sysctl writes a file under /proc/sys.
func (n Netns) Sysctl(t testing.TB, file, value string) {
	t.Helper()
	err := n.Open(t).Do(func() error { return os.WriteFile("/proc/sys/"+file, []byte(value), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// ReadSysctl reads a file under /proc/sys.
func (n Netns) ReadSysctl(t testing.TB, file string) string {
	t.Helper()
	var b []byte
	err := n.Open(t).Do(func() (err error) {
		b, err = os.ReadFile("/proc/sys/" + file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
