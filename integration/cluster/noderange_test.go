package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/noderange"
)

const parted = "fabrics: [{name: ib, match: {rateGb: 200}, " +
	"nodeRanges: {range: 10.77.0.0/24, perNode: /26, reclaim: 5s}}]"

// Three nodes that start at once have a part each. One leaves, and its part waits for it; one comes back, and has what
// it had; a range that is used up is told, and a part whose owner is gone for good is taken.
func TestNodeRanges(t *testing.T) {
	s := newSimulated(t)
	s.settings("fabrics: []")
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "ib", "--ignore-not-found") })
	for _, n := range []string{"n1", "n2", "n3"} {
		s.join(n)
	}
	s.settings(parted) // all see it within the same 0.2 s
	parts := map[string]string{}
	for _, n := range []string{"n1", "n2", "n3"} {
		p := s.part(n)
		if other := parts[p]; other != "" {
			t.Errorf("%s and %s have both the part of %s", n, other, p)
		}
		parts[p] = n
	}
	y := k(t, "get", "network-attachment-definition", "ib", "-o", "jsonpath={.spec}")
	if strings.Contains(y, "config") {
		t.Errorf("the definition has a configuration, so Multus would not look at the node's: %s", y)
	}
	second := s.part("n2")
	s.stop["n2"]()
	if err := os.RemoveAll(filepath.Join(s.dir, "n2")); err != nil {
		t.Fatal(err)
	}
	s.join("n4")
	if p := s.part("n4"); parts[p] != "" {
		t.Errorf("n4 has the part of %s", parts[p])
	}
	s.start("n2") // a new machine of that name
	if p := s.part("n2"); p != second {
		t.Errorf("n2 came back and has %s, it had %s", p, second)
	}
	s.join("n5")
	s.event("n5", "RangeExhausted", "no /26 left for node n5")
	s.leave("n2")
	if p := s.part("n5"); p != second {
		t.Errorf("n5 has %s, the part that is free is %s", p, second)
	}
	s.join("n2")
	s.event("n2", "RangeExhausted", "no /26 left for node n2")
	until(t, "n2 gives no addresses of what is n5's now", func() error {
		if _, err := os.Stat(s.file("n2")); err == nil {
			return textError(s.file("n2"))
		}
		return nil
	})
	fabricRefused(t, s)
	podOnPart(t, s)
}

// Three nodes ask at the very same moment, again and again: the API server lets one of them win each time.
func TestNodeRangesAtOnce(t *testing.T) {
	s := newSimulated(t)
	names := []string{"n1", "n2", "n3"}
	clients := map[string]*cluster.Client{}
	for _, n := range names {
		c, err := cluster.Dial(s.kubeconfig, n)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[n] = c
	}
	for round := range 10 {
		spec := noderange.Spec{Fabric: fmt.Sprint("f", round), Prefix: netip.MustParsePrefix("10.78.0.0/24"), Bits: 26}
		var mu sync.Mutex
		owner := map[netip.Prefix]string{}
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, n := range names {
			all.Go(func() {
				<-start
				part, err := clients[n].NodeRange(t.Context(), "fabric-system", spec, time.Now)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || owner[part] != "" {
					t.Errorf("round %d: %s has %s (as %q), %v", round, n, part, owner[part], err)
				}
				owner[part] = n
			})
		}
		close(start)
		all.Wait()
		data := k(t, "-n", "fabric-system", "get", "configmap", "fabric-ranges-"+spec.Fabric, "-o", "jsonpath={.data}")
		if strings.Count(data, "10.78.0.") != 3 {
			t.Errorf("round %d: %s", round, data)
		}
	}
}

// fabricRefused gives the agents settings that have too few addresses: those before stay in force, for a new agent too.
func fabricRefused(t *testing.T, s *simulated) {
	s.settings(strings.ReplaceAll(parted, "/26", "/30"))
	s.event("n1", "SettingsRefused",
		`fabric "ib": nodeRanges.perNode /30 has 2 addresses to give, and this node needs 4`)
	s.settings("fabrics: [{name: ib, match: {rateGb: 200}, network: {ipam: {type: whereabouts, range: 10.77.0.0/30}}}]")
	s.event("n1", "SettingsRefused",
		"network.ipam.range 10.77.0.0/30 has 2 addresses to give, and all nodes together need 4")
	s.capacity("n3", "ib", 40)
	s.settings("fabrics: [{name: ib, match: {rateGb: 200}, network: {ipam: {type: whereabouts, range: 10.77.0.0/27}}}]")
	s.event("n1", "SettingsRefused",
		"network.ipam.range 10.77.0.0/27 has 30 addresses to give, and all nodes together need 40")
	before := s.part("n1")
	s.stop["n1"]()
	if err := os.Remove(s.file("n1")); err != nil {
		t.Fatal(err)
	}
	s.start("n1")
	if p := s.part("n1"); p != before {
		t.Errorf("part %s, was %s", p, before)
	}
	s.settings(parted)
}

// podOnPart has a pod attached with a node's configuration. The fabric leaves the settings; its definition goes when
// the pod has gone.
func podOnPart(t *testing.T, s *simulated) {
	b, err := os.ReadFile(s.file("n4"))
	if err != nil {
		t.Fatal(err)
	}
	var conf map[string]any
	if err := json.Unmarshal(b, &conf); err != nil {
		t.Fatal(err)
	}
	rail(t, "rail0")
	conf["device"] = "rail0" // the rig has none that could be given by its PCI address
	if b, err = json.Marshal(conf); err != nil {
		t.Fatal(err)
	}
	file := "/etc/cni/multus/net.d/ib.conf"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	k(t, "annotate", "network-attachment-definition", "ib", "k8s.v1.cni.cncf.io/resourceName-") // nor a resource
	pod(t, "p1", "ib")
	ready(t, "p1")
	got := status(t, "p1")[1].IPs
	first := netip.MustParseAddr(s.part("n4"))
	if len(got) != 1 ||
		netip.PrefixFrom(first, 26).Masked() != netip.PrefixFrom(netip.MustParseAddr(got[0]), 26).Masked() {
		t.Errorf("the pod has %v, the node's part begins with %s", got, first)
	}
	s.settings("fabrics: []")
	s.stays("ib")
	gone(t, "p1")
	until(t, "the definition is gone", func() error {
		out, err := output("kubectl", "get", "network-attachment-definition", "-o", "name")
		if err == nil && strings.Contains(out, "/ib\n") {
			err = textError(out)
		}
		return err
	})
	if _, err := os.Stat(s.file("n4")); err == nil {
		t.Error("the node's file is still there")
	}
	home(t, "rail0")
	nothingLeft(t)
}

// A pool that is nearly full is told by an Event and by metrics, from whereabouts's own objects.
func TestPoolNearlyExhausted(t *testing.T) {
	s := newSimulated(t)
	s.settings("fabrics: [{name: full, match: {devices: [none]}, " +
		"network: {ipam: {type: whereabouts, range: 198.51.100.0/30, network_name: full}}}]")
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "full", "--ignore-not-found") })
	var conf []string
	for i := range 2 {
		name := fmt.Sprint("rail", i)
		rail(t, name)
		conf = append(conf, name)
		network(t, name, `{"cniVersion":"1.0.0","name":"full","type":"fabric","device":"`+name+`",`+
			`"ipam":{"type":"whereabouts","range":"198.51.100.0/30","network_name":"full"}}`)
	}
	pod(t, "p1", strings.Join(conf, ","))
	ready(t, "p1")
	s.join("n1")
	s.event("n1", "PoolNearlyExhausted",
		"fabric full: all the 2 addresses of 198.51.100.0/30 are given (pool full-198.51.100.0-30)")
	s.capacity("n1", "full", 10)
	s.event("n1", "RangeTooSmall",
		"network.ipam.range 198.51.100.0/30 has 2 addresses to give, and all nodes together need 10")
	gone(t, "p1")
	home(t, "rail0")
	home(t, "rail1")
	nothingLeft(t)
}
