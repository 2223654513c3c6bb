package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// host is a node: a real agent, and pods that get their addresses of the plugin's host-local by the file that the
// agent has written.
type host struct {
	t    *testing.T
	name string
	dir  string
	pods int
	stop func()
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{t: t, name: name, dir: t.TempDir(), stop: func() {}}
	h.run()
	t.Cleanup(func() { h.stop() })
	return h
}

// run runs the node's agent.
func (h *host) run() {
	h.t.Helper()
	kubeconfig := filepath.Join(h.dir, "kubeconfig")
	b, err := json.Marshal(tree{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []tree{{"name": "x", "cluster": tree{
			"server": server.Config.Host, "insecure-skip-tls-verify": true,
		}}},
		"users":    []tree{{"name": "x", "user": tree{"token": server.Config.BearerToken}}},
		"contexts": []tree{{"name": "x", "context": tree{"cluster": "x", "user": "x"}}}})
	if err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string][]byte{kubeconfig: b, filepath.Join(h.dir, "fabric"): []byte("the binary")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	o := &agent.Options{
		Source: h.dir + "/fabric", BinDir: h.dir + "/bin", StateDir: h.dir + "/state", Policy: h.dir + "/policy",
		ConfDir: h.dir + "/conf", Kubeconfig: kubeconfig, Node: h.name, WriteEvery: time.Millisecond,
		Interval: 200 * time.Millisecond, Grace: time.Minute,
		Survey: func() ([]survey.Device, error) {
			port := device.Port{Number: 1, LinkLayer: device.InfiniBand, State: device.PortActive}
			return []survey.Device{{ID: "0000:3b:00.0", NUMA: -1, RateGb: 400, Netdev: "ibs1",
				HCA: device.HCA{Name: "mlx5_0", Ports: []device.Port{port}}}}, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx, o, "v1", slog.New(slog.NewTextHandler(logs{h.t}, nil))) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
}

// file is the configuration of a network that pods of the node get.
func (h *host) file(network string) []byte {
	b, err := os.ReadFile(filepath.Join(h.dir, "conf", "fabric-agent-"+network+".conf"))
	if err != nil {
		return nil
	}
	return b
}

func (h *host) delegate(conf []byte, pod int) ipam.Delegate {
	return ipam.Delegate{Type: "host-local", Conf: conf, Env: netconf.Env{
		ContainerID: fmt.Sprintf("%s-%d", h.name, pod), IfName: "net1", Netns: "/run/netns/x", Path: "/nowhere",
	}}
}

// start starts pods.
func (h *host) start(network string, n int) {
	h.t.Helper()
	for range n {
		h.pods++
		until(h.t, func() string {
			conf := h.file(network)
			if conf == nil {
				return h.name + " has no configuration of " + network
			}
			if _, err := h.delegate(conf, h.pods).Add(h.t.Context()); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// end ends all pods that are on a network.
func (h *host) end(conf []byte) {
	h.t.Helper()
	for pod := range h.pods {
		if err := h.delegate(conf, pod+1).Del(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}

// once counts every address that pods of these nodes have, of all networks, and returns how many there are.
func once(t *testing.T, hosts ...*host) int {
	t.Helper()
	whose := map[netip.Addr]string{}
	for _, h := range hosts {
		networks, err := filepath.Glob(filepath.Join(h.dir, "state", "ipam", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range networks {
			given, err := hostlocal.Given(dir)
			if err != nil {
				t.Fatal(err)
			}
			me := h.name + " on " + filepath.Base(dir)
			for _, a := range given {
				if whose[a] != "" {
					t.Errorf("%s is that of a pod of %s, and of one of %s", a, whose[a], me)
				}
				whose[a] = me
			}
		}
	}
	return len(whose)
}

// agentsSet is the DaemonSet of the agents, with so many nodes, as the controller of DaemonSets counts them.
func agentsSet(t *testing.T, c client.Client, nodes int32) {
	t.Helper()
	labels := map[string]string{"app": "fabric-agent"}
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "fabric-agent", Namespace: "fabric-system"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
			},
		},
	}
	create(t, c, d)
	d.Status.ObservedGeneration, d.Status.DesiredNumberScheduled = d.Generation, nodes
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// controlAll runs a controller that waits for the agents, with the permissions of the manifests.
func controlAll(t *testing.T) (stop func()) {
	t.Helper()
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, "fabric-system", "fabric-controller")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		o := &controller.Options{Namespace: "fabric-system", Agents: "fabric-agent", Metrics: "0", Health: "0"}
		ended <- controller.Run(ctx, rc, o, "test", slog.New(slog.NewTextHandler(logs{t}, nil)))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func untilRanges(t *testing.T, c client.Client, n int) string {
	t.Helper()
	got := ""
	until(t, func() string {
		got = ranges(t, c)
		if have := len(strings.Split(got, ", ")); got == "" || have != n {
			return fmt.Sprintf("%q, want %d ranges", got, n)
		}
		return ""
	})
	return got
}

const once50 = `{match: {linkLayer: InfiniBand}, addresses: {nodeRanges: {ranges: [{range: 10.50.0.0/24, `

const once28 = once50 + `perNode: 28}]}}}`

// kubectl delete -k base, and apply again, while pods run: every node has the range again that holds its addresses,
// whoever comes first; nobody gets a fresh one before all have been heard. A FabricNode that is deleted alone, and a
// Fabric that is deleted and made again under another name, give no address twice either.
func TestAddressesOnceAfterDeletion(t *testing.T) {
	fresh(t, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	var hosts []*host
	for _, n := range []string{"z", "m", "a"} {
		createNode(t, c, n)
	}
	createNode(t, c, "later")
	agentsSet(t, c, 3)
	stop := controlAll(t)
	apply(t, testfabrics.Object("ib", once28))
	for _, n := range []string{"z", "m", "a"} {
		hosts = append(hosts, newHost(t, n))
	}
	before := untilRanges(t, c, 3)
	for _, h := range hosts {
		h.start("ib", 4)
	}

	stop()
	for _, h := range hosts {
		h.stop()
	}
	for _, kind := range []string{"fabrics.fabric.dev", "fabricnodes.fabric.dev"} {
		removeKind(t, c, kind)
	}
	if err := server.Apply(t.Context(), everything[0]); err != nil {
		t.Fatal(err)
	}
	until(t, func() string { return errorOf(server.ApplyText(t.Context(), []byte(testfabrics.Object("ib", once28)))) })
	for _, h := range hosts[1:] {
		h.run()
	}
	untilHeldBy(t, c, 8)
	stop = controlAll(t)
	untilCondition(t, c, "ib", v1alpha1.FabricAddressesSufficient, "False WaitingForNodes: ")
	until(t, func() string {
		got := conditionOf(t, c, "ib", v1alpha1.FabricAddressesSufficient)
		if want := "has not said so, for 2m0s at most: later, z"; !strings.HasSuffix(got, want) {
			return got + ", want " + want
		}
		return ""
	})
	hosts[0].run()
	if after := untilRanges(t, c, 3); after != before {
		t.Errorf("%s, was %s", after, before)
	}
	for _, h := range hosts {
		h.start("ib", 3)
	}
	if n := once(t, hosts...); n != 21 {
		t.Errorf("%d addresses, want 21", n)
	}

	for _, h := range hosts[:2] {
		if err := c.Delete(t.Context(), &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: h.name}}); err != nil {
			t.Fatal(err)
		}
	}
	if after := untilRanges(t, c, 3); after != before {
		t.Errorf("%s, was %s", after, before)
	}

	if err := c.Delete(t.Context(), &v1alpha1.Fabric{ObjectMeta: metav1.ObjectMeta{Name: "ib"}}); err != nil {
		t.Fatal(err)
	}
	apply(t, testfabrics.Object("other", once28))
	for _, h := range hosts {
		until(t, func() string {
			if h.file("other") == nil {
				return h.name + " has no configuration of the new Fabric"
			}
			return ""
		})
	}
	after := untilRanges(t, c, 3)
	for part := range strings.SplitSeq(before, ", ") {
		if _, block, _ := strings.Cut(part, " "); strings.Contains(after, block) {
			t.Errorf("%s: pods of the old Fabric have addresses of %s", after, block)
		}
	}
	for _, h := range hosts {
		h.start("other", 5)
	}
	if n := once(t, hosts...); n != 36 {
		t.Errorf("%d addresses, want 36", n)
	}
	stop()
}

// A change of a Fabric that would take an address from a pod is refused, and names who has it. Without that pod it is
// accepted, and then a node's former range is nobody's until the node has said that it has done with it.
func TestAddressesOnceAfterChange(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	var hosts []*host
	for _, n := range []string{"one", "two"} {
		createNode(t, c, n)
		h := newHost(t, n)
		defer h.stop() // before its FabricNode is removed, which it would make again
		hosts = append(hosts, h)
	}
	stop := control(t)
	defer stop()
	apply(t, testfabrics.Object("cut", once28))
	before := untilRanges(t, c, 2)
	for _, h := range hosts {
		h.start("cut", 9)
	}
	conf := hosts[0].file("cut")
	untilHeldBy(t, c, 18)
	apply(t, testfabrics.Object("cut", once50+`perNode: 29}]}}}`))
	untilCondition(t, c, "cut", v1alpha1.FabricAccepted, "False Refused: generation 1 stays in force: 10.50.0.")
	if after := untilRanges(t, c, 2); after != before {
		t.Errorf("%s, was %s", after, before)
	}
	for _, h := range hosts {
		h.end(h.file("cut"))
	}
	untilCondition(t, c, "cut", v1alpha1.FabricAccepted, "True")
	until(t, func() string { // what is left of the former ranges is nobody's any more
		for _, h := range hosts {
			n := &v1alpha1.FabricNode{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: h.name}, n); err != nil {
				return err.Error()
			}
			if len(n.Spec.Former) > 0 || len(n.Spec.Ranges) != 1 || !strings.HasSuffix(n.Spec.Ranges[0].Range, "/29") {
				return fmt.Sprintf("%s has %v and had %v", h.name, n.Spec.Ranges, n.Spec.Former)
			}
		}
		return ""
	})
	// Multus has read the file before.
	if _, err := hosts[0].delegate(conf, 99).Add(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "is not this node's") {
		t.Errorf("by the file of the former range: %v", err)
	}
	for _, h := range hosts {
		h.start("cut", 3)
	}
	if n := once(t, hosts...); n != 6 {
		t.Errorf("%d addresses, want 6", n)
	}
}

// Each change that would cut off or give again an address that a pod holds is refused.
func TestAddressesOnceRefused(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("cut", once28))
	for i, name := range []string{"one", "two"} {
		createNode(t, c, name)
		addNode(t, c, name, "cut")
		use(t, c, name, "team/p")
		n := &v1alpha1.FabricNode{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			t.Fatal(err)
		}
		n.Status.Held = &v1alpha1.HeldAddresses{Fabrics: []v1alpha1.HeldOfFabric{
			{Name: "cut", Prefixes: []string{fmt.Sprintf("10.50.0.%d/31", i*16+4), fmt.Sprintf("10.50.0.%d/32", i*16+9)}},
		}}
		if err := c.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes("cut", v1alpha1.FabricReady, "True")
	before := ranges(t, c)
	const nodeRanges = "addresses: {nodeRanges: {ranges: [{range: 10.50.0.0/24, "
	for _, change := range []struct{ spec, want string }{
		{nodeRanges + "perNode: 29}]}}", "10.50.0.9/32 is in use on node one (pods team/p), which would have " +
			"[10.50.0.0/29]"},
		{nodeRanges + "perNode: 28, exclude: [10.50.0.4/32]}]}}",
			"10.50.0.4/31 is in use on node one (pods team/p), which would have no range: keep perNode, exclude and"},
		{nodeRanges + "perNode: 28}], static: [{node: two, range: 10.50.0.0/28}]}}",
			"10.50.0.4/31 is in use on node one (pods team/p), which would have no range"},
		{nodeRanges + "perNode: 27}]}}", "10.50.0.4/31 is in use on node one (pods team/p), which would have no range"},
		{"addresses: {ipam: {type: whereabouts, range: 10.50.0.0/24}}", "10.50.0.4/31 is in use on node one (pods " +
			"team/p), of nodeRanges of fabric cut, and ipam.range 10.50.0.0/24 has it too: exclude it"},
	} {
		apply(t, testfabrics.Object("cut", "{match: {linkLayer: InfiniBand}, "+change.spec+"}"))
		s.becomes("cut", v1alpha1.FabricAccepted, "False Refused: generation 1 stays in force: "+change.want)
		if after := ranges(t, c); after != before {
			t.Errorf("%s: %s, was %s", change.spec, after, before)
		}
	}
	// What has nothing to do with addresses, and what cuts nothing off.
	apply(t, testfabrics.Object("cut", "{match: {linkLayer: InfiniBand}, network: {mtu: 2044}, "+
		nodeRanges+"perNode: 28, exclude: [10.50.0.64/26]}]}}}"))
	s.becomes("cut", v1alpha1.FabricAccepted, "True")
	if after := ranges(t, c); after != before {
		t.Errorf("%s, was %s", after, before)
	}
}

// untilHeldBy waits until the nodes have said that their pods hold so many addresses.
func untilHeldBy(t *testing.T, c client.Client, want int) {
	t.Helper()
	until(t, func() string {
		list := &v1alpha1.FabricNodeList{}
		if err := c.List(t.Context(), list); err != nil {
			return err.Error()
		}
		n := 0
		for i := range list.Items {
			if held := list.Items[i].Status.Held; held != nil {
				for _, f := range held.Fabrics {
					for _, text := range f.Prefixes {
						p := netip.MustParsePrefix(text)
						n += 1 << (p.Addr().BitLen() - p.Bits())
					}
				}
			}
		}
		if n != want {
			return fmt.Sprintf("they hold %d addresses, want %d", n, want)
		}
		return ""
	})
}

// Nodes give nothing that whereabouts has given, whichever network it was for: what is not excluded of it is refused.
func TestAddressesOnceFromWhereabouts(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	createNode(t, c, "one")
	addNode(t, c, "one", "wn")
	apply(t, testfabrics.Object("wn", `{addresses: {ipam: {type: whereabouts, range: 10.60.0.0/24}}}`))
	s.becomes("wn", v1alpha1.FabricReady, "True Ready")
	pool := whereaboutsPool("10.60.0.0-24", "10.60.0.0/24", 3)
	apply(t, pool)
	change := func(exclude, want string) {
		t.Helper()
		apply(t, testfabrics.Object("wn",
			`{addresses: {nodeRanges: {ranges: [{range: 10.60.0.0/24, perNode: 28, exclude: [`+exclude+`]}]}}}`))
		s.becomes("wn", v1alpha1.FabricAccepted, want)
	}
	change("", "False Refused: generation 1 stays in force: whereabouts has given 10.60.0.1 to pod default/p-0 "+
		"(IPPool kube-system/10.60.0.0-24), and 3 addresses of addresses.nodeRanges 10.60.0.0/24 in all: exclude them")
	change("10.60.0.0/31", "False Refused: generation 1 stays in force: whereabouts has given 10.60.0.2 to pod "+
		"default/p-1")
	change("10.60.0.0/28", "True")
	s.round(time.Second)
	if got := ranges(t, c); got != "one 10.60.0.16/28" {
		t.Error(got)
	}
	// A pool of somebody else's network.
	apply(t, strings.ReplaceAll(whereaboutsPool("theirs-10.61.0.0-24", "10.61.0.0/24", 1), "p-0", `evil\u001b[2J`))
	apply(t, testfabrics.Object("wn2", `{addresses: {nodeRanges: {ranges: [{range: 10.61.0.0/24, perNode: 28}]}}}`))
	s.becomes("wn2", v1alpha1.FabricAccepted, "False Refused: whereabouts has given 10.61.0.1 to pod ")
	if got := conditionOf(t, c, "wn2", v1alpha1.FabricAccepted); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"10.60.0.0-24", "theirs-10.61.0.0-24"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{
			Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "IPPool",
		})
		u.SetNamespace("kube-system")
		u.SetName(name)
		if err := c.Delete(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes("wn2", v1alpha1.FabricAccepted, "True")
	if slices.Contains(strings.Split(ranges(t, c), ", "), "one 10.60.0.0/28") {
		t.Error("what is excluded is given")
	}
}
