package controlplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const once50 = `{match: {linkLayer: InfiniBand}, addresses: {nodeRanges: {ranges: [{range: 10.50.0.0/24, `

const once28 = once50 + `perNodePrefixLength: 28}]}}}`

// kubectl delete -k base, and apply again, while pods run: every node has the range again that holds its addresses, the
// node that comes first; no node gets a fresh one before all have been heard. A FabricNode that is deleted alone, and a
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
// accepted, and then a node's former range goes to no other until the node has said that it has done with it.
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
	apply(t, testfabrics.Object("cut", once50+`perNodePrefixLength: 29}]}}}`))
	untilCondition(t, c, "cut", v1alpha1.FabricAccepted, "False Refused: generation 1 stays in force: 10.50.0.")
	if after := untilRanges(t, c, 2); after != before {
		t.Errorf("%s, was %s", after, before)
	}
	for _, h := range hosts {
		h.end(h.file("cut"))
	}
	untilCondition(t, c, "cut", v1alpha1.FabricAccepted, "True")
	until(t, func() string { // no node has a former range any more
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
		!strings.Contains(err.Error(), `"ipam" differs from the configuration of name "cut"`) {
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
			{Name: "cut", Prefixes: []string{
				fmt.Sprintf("10.50.0.%d/31", i*16+4), fmt.Sprintf("10.50.0.%d/32", i*16+9),
			}},
		}}
		if err := c.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes("cut", v1alpha1.FabricReady, "True")
	before := ranges(t, c)
	const nodeRanges = "addresses: {nodeRanges: {ranges: [{range: 10.50.0.0/24, "
	for _, change := range []struct{ spec, want string }{
		{nodeRanges + "perNodePrefixLength: 29}]}}", "10.50.0.9/32 is in use on node one (pods team/p), which would " +
			"have " +
			"[10.50.0.0/29]"},
		{nodeRanges + "perNodePrefixLength: 28, exclude: [10.50.0.4/32]}]}}",
			"10.50.0.4/31 is in use on node one (pods team/p), which would have no range: keep perNodePrefixLength, "},
		{nodeRanges + "perNodePrefixLength: 28}], static: [{node: two, range: 10.50.0.0/28}]}}",
			"10.50.0.4/31 is in use on node one (pods team/p), which would have no range"},
		{nodeRanges + "perNodePrefixLength: 27}]}}",
			"10.50.0.4/31 is in use on node one (pods team/p), which would have no range"},
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
		nodeRanges+"perNodePrefixLength: 28, exclude: [10.50.0.64/26]}]}}}"))
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
			`{addresses: {nodeRanges: {ranges: [{range: 10.60.0.0/24, perNodePrefixLength: 28, exclude: [`+exclude+`]}]}}}`))
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
	// A pool of another owner's network.
	apply(t, strings.ReplaceAll(whereaboutsPool("theirs-10.61.0.0-24", "10.61.0.0/24", 1), "p-0", `evil\u001b[2J`))
	apply(t, testfabrics.Object("wn2", testfabrics.Ranged("10.61.0.0/24", 28)))
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
