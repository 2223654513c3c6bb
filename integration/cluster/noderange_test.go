package cluster

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const ranged = "{match: {rateGb: 200}, " +
	"addresses: {nodeRanges: {ranges: [{range: 10.77.0.0/24, perNodePrefixLength: 26}], reclaim: 5s}}}"

var (
	fabricColumns = []string{"NAME", "ATTACHMENT", "LINK", "RATE", "NODES", "DEVICES", "HEALTHY", "ATTACHED",
		"ADDRESSES",
		"READY", "AGE"}
	nodeColumns = []string{"NAME", "RDMA-MODE", "DEVICES", "HEALTHY", "ATTACHED", "PLUGIN", "READY", "REASON"}
)

// Three nodes that start at once have a range each. One comes back as a new machine, and has what it had; one that
// comes when none is left waits and reports that, and gets the range of a Node that is gone for good.
func TestNodeRanges(t *testing.T) {
	s := newSimulated(t)
	controller(t)
	fabric(t, "ib", ranged)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.join(n)
	}
	ranges := map[string]string{}
	for _, n := range []string{"n1", "n2", "n3"} {
		r := s.own(n)
		if other := ranges[r]; other != "" {
			t.Errorf("%s and %s have both the range of %s", n, other, r)
		}
		ranges[r] = n
	}
	y := k(t, "get", "network-attachment-definition", "ib", "-o", "jsonpath={.spec}")
	if strings.Contains(y, "config") {
		t.Errorf("the definition has a configuration, so Multus would not look at the node's: %s", y)
	}
	row(t, "fabrics", "ib", fabricColumns,
		[]string{"ib", "WholeDevice", "InfiniBand", "200G", "3", "12", "12", "0", "0/190", "True"})
	row(t, "fabricnodes", "n1", nodeColumns, []string{"n1", "", "4", "4", "0", "test", "True", "Ready"})

	second := s.own("n2")
	s.stop["n2"]()
	if err := os.RemoveAll(filepath.Join(s.dir, "n2")); err != nil {
		t.Fatal(err)
	}
	s.join("n4")
	if r := s.own("n4"); ranges[r] != "" {
		t.Errorf("n4 has the range of %s", ranges[r])
	}
	s.start("n2") // a new machine of that name
	if r := s.own("n2"); r != second {
		t.Errorf("n2 came back and has %s, it had %s", r, second)
	}
	s.join("n5")
	s.waits("n5")
	row(t, "fabricnodes", "n5", nodeColumns, []string{"n5", "", "4", "0", "0", "test", "False", "NoRange"})
	nodeEventOf(t, "n5", "NoRange", "fabric ib: the controller has given this node no range yet")
	condition(t, "fabric/ib", "AddressesSufficient", "False", "RangeTooSmall", "10.77.0.0/24")
	condition(t, "fabric/ib", "Degraded", "True", "DevicesUnhealthy", "4 NoRange")
	s.leave("n2")
	if r := s.own("n5"); r != second {
		t.Errorf("n5 has %s, the range that is free is %s", r, second)
	}
	s.join("n2")
	s.waits("n2")
	refused(t, s)
	podOnRange(t, s, "n4")
}

// refused gives the fabric too few addresses: what was before stays in force, for a new agent too.
func refused(t *testing.T, s *simulated) {
	t.Helper()
	for spec, want := range map[string]string{
		strings.ReplaceAll(ranged, "perNodePrefixLength: 26", "perNodePrefixLength: 30"): "perNodePrefixLength " +
			"30 has 2 addresses to give, " +
			"and a node needs 4",
		"{match: {rateGb: 200}, addresses: {ipam: {type: whereabouts, range: 10.77.0.0/30}}}": "range 10.77.0.0/30 " +
			"has 2 addresses to give, and all nodes together need 20",
	} {
		fabric(t, "ib", spec)
		condition(t, "fabric/ib", "Accepted", "False", "Refused", want)
		described(t, "fabric", "ib", "Warning", "Refused", want)
	}
	before := s.own("n1")
	s.stop["n1"]()
	if err := os.Remove(s.file("n1")); err != nil {
		t.Fatal(err)
	}
	s.start("n1")
	if r := s.own("n1"); r != before {
		t.Errorf("range %s, was %s", r, before)
	}
	fabric(t, "ib", ranged)
	condition(t, "fabric/ib", "Accepted", "True", "Accepted", "")
}

// configured is the node's configuration as the rig can use it, which has no device with a PCI address, and whose own
// agent has published nothing: addresses are kept where those of any network are.
func (s *simulated) configured(node, device string) string {
	s.t.Helper()
	s.own(node)
	b, err := os.ReadFile(s.file(node))
	if err != nil {
		s.t.Fatal(err)
	}
	var conf map[string]any
	if err := json.Unmarshal(b, &conf); err != nil {
		s.t.Fatal(err)
	}
	conf["device"] = device
	ipam, _ := conf["ipam"].(map[string]any)
	delete(ipam, "dataDir")
	if b, err = json.Marshal(conf); err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// podOnRange has a pod attached with a node's configuration.
func podOnRange(t *testing.T, s *simulated, node string) {
	t.Helper()
	rail(t, "rail0")
	file := "/etc/cni/multus/net.d/ib.conf"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(s.configured(node, "rail0")), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	pod(t, "p1", "ib")
	ready(t, "p1")
	got := status(t, "p1")[1].IPs
	first := netip.MustParseAddr(s.own(node))
	if len(got) != 1 ||
		netip.PrefixFrom(first, 26).Masked() != netip.PrefixFrom(netip.MustParseAddr(got[0]), 26).Masked() {
		t.Errorf("the pod has %v, the node's range begins with %s", got, first)
	}
	gone(t, "p1")
	home(t, "rail0")
	nothingLeft(t)
}

// While no controller runs, what runs goes on, pods come and go, and new nodes wait and say for what. The next
// controller gives them what no node has.
func TestControllerKilled(t *testing.T) {
	s := newSimulated(t)
	end := controller(t)
	fabric(t, "ib", ranged)
	s.join("n1")
	first := s.own("n1")
	s.join("n2") // which may have its range, or wait for it
	end(unix.SIGKILL)
	s.join("n3")
	s.waits("n3")
	podOnRange(t, s, "n1")
	controller(t)
	second, third := s.own("n2"), s.own("n3")
	if now := s.own("n1"); now != first || second == first || third == first || second == third {
		t.Errorf("n1 had %s and has %s, n2 has %s, n3 has %s", first, now, second, third)
	}
	row(t, "fabrics", "ib", fabricColumns,
		[]string{"ib", "WholeDevice", "InfiniBand", "200G", "3", "12", "12", "0", "0/190", "True"})
}

// While the API server is away an agent knows what it knew, also one that starts, and the plugin attaches and detaches.
// A node that is new has nothing, and gets it afterwards.
func TestAPIServerAway(t *testing.T) {
	s := newSimulated(t)
	controller(t)
	fabric(t, "ib", ranged)
	s.join("n1")
	first := s.own("n1")
	s.join("n2")
	second := s.own("n2")
	s.stop["n2"]()
	if err := os.RemoveAll(filepath.Join(s.dir, "n2")); err != nil {
		t.Fatal(err)
	}

	start := stopAPI(t)
	s.stop["n1"]()
	if err := os.Remove(s.file("n1")); err != nil {
		t.Fatal(err)
	}
	s.start("n1")
	s.start("n2") // a new machine, which has never heard of a fabric
	rail(t, "rail0")
	ip(t, "netns", "add", "away")
	t.Cleanup(func() { ip(t, "netns", "delete", "away") })
	conf := s.configured("n1", "rail0")
	cni := func(command string) {
		t.Helper()
		cmd := exec.Command("/opt/cni/bin/fabric")
		cmd.Stdin = strings.NewReader(conf)
		cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=away", "CNI_IFNAME=net1",
			"CNI_NETNS=/run/netns/away", "CNI_PATH=/opt/cni/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	cni("ADD")
	says(t, "in the pod", ip(t, "-n", "away", "address", "show", "net1"), "inet 10.77.0.")
	cni("DEL")
	home(t, "rail0")
	if _, err := os.Stat(s.file("n2")); err == nil {
		t.Error("n2 has a configuration, and nobody has told it of a fabric")
	}

	start()
	if r := s.own("n2"); r != second {
		t.Errorf("n2 has %s, its range is %s", r, second)
	}
	if r := s.own("n1"); r != first {
		t.Errorf("n1 has %s, it had %s", r, first)
	}
	s.join("n3")
	if r := s.own("n3"); r == first || r == second {
		t.Errorf("n3 has %s, which is another's", r)
	}
	nothingLeft(t)
}

// A pool that is full is told by a condition and an Event of the Fabric, from whereabouts's own objects. The controller
// looks at them when it starts, and then every few minutes.
func TestPoolFull(t *testing.T) {
	newSimulated(t)
	fabric(t, "full", "{match: {devices: [none]}, "+
		"addresses: {ipam: {type: whereabouts, range: 198.51.100.0/30, network_name: full}}}")
	var names []string
	for _, name := range []string{"rail0", "rail1"} {
		rail(t, name)
		names = append(names, name)
		network(t, name, `{"cniVersion":"1.0.0","name":"full","type":"fabric","device":"`+name+`",`+
			`"ipam":{"type":"whereabouts","range":"198.51.100.0/30","network_name":"full"}}`)
	}
	pod(t, "p1", strings.Join(names, ","))
	ready(t, "p1")
	controller(t)
	const text = "all 2 addresses of 198.51.100.0/30 are given (IPPool full-198.51.100.0-30)"
	condition(t, "fabric/full", "AddressesSufficient", "False", "PoolFull", text)
	described(t, "fabric", "full", "2/2", "Warning", "PoolFull", text)
	gone(t, "p1")
	home(t, "rail0")
	home(t, "rail1")
	nothingLeft(t)
}
