package controlplane_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// nvipamKind is the definition of a kind of nv-ipam, without its schema.
func nvipamKind(kind string) string {
	plural := strings.ToLower(kind) + "s"
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.nv-ipam.nvidia.com}
spec:
  group: nv-ipam.nvidia.com
  scope: Namespaced
  names: {kind: ` + kind + `, listKind: ` + kind + `List, plural: ` + plural + `,
    singular: ` + strings.ToLower(kind) + `}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
}

// stepper is a controller whose rounds and clock are the test's.
type stepper struct {
	*controller.Controller

	t      *testing.T
	client client.Client
	now    time.Time
	events *record.FakeRecorder
}

func newStepper(t *testing.T, c client.Client) *stepper {
	t.Helper()
	s := &stepper{t: t, client: c, now: time.Now(), events: record.NewFakeRecorder(1000)}
	clock := func() time.Time { return s.now }
	s.Controller = &controller.Controller{
		Client: c, Ranges: rounds(c, nil, "steps",
			yes), Events: s.events, Now: clock, Log: slog.New(slog.DiscardHandler),
	}
	s.Ranges.Now = clock
	return s
}

// round lets some time pass, and then the controller work.
func (s *stepper) round(pass time.Duration) {
	s.t.Helper()
	s.now = s.now.Add(pass)
	if _, err := s.Round(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// becomes lets time pass until a condition of a Fabric is as wanted: longer with each step, as it may be hours.
func (s *stepper) becomes(name, kind, want string) {
	s.t.Helper()
	step := 10 * time.Second
	until(s.t, func() string {
		s.round(step)
		step = min(step*5/4, 2*time.Minute)
		if got := conditionOf(s.t, s.client, name, kind); !strings.HasPrefix(got, want) {
			return fmt.Sprintf("%s of %s: %s, want %s", kind, name, got, want)
		}
		return ""
	})
}

func (s *stepper) counts(name, want string) {
	s.t.Helper()
	o := &v1alpha1.Fabric{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	if got := o.Status.Addresses.Summary; got != want {
		s.t.Errorf("%s has the addresses %q, want %q", name, got, want)
	}
}

// event returns whether there was an Event with this reason since the last call.
func (s *stepper) event(reason string) (found bool) {
	for {
		select {
		case e := <-s.events.Events:
			found = found || strings.HasPrefix(e, "Warning "+reason+" ")
		default:
			return found
		}
	}
}

// put makes an object what the text says, status included.
func put(t *testing.T, c client.Client, text string) {
	t.Helper()
	apply(t, text)
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	status, ok := o.Object["status"]
	if !ok {
		return
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), is); err != nil {
		t.Fatal(err)
	}
	is.Object["status"] = status
	if err := c.Status().Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
}

// A Fabric says what is missing of nv-ipam and of its pools, within a minute, and when it is there.
func TestPoolsOfNVIPAM(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("nv", `{addresses: {ipam: {type: nv-ipam, poolName: rail-0, poolType: cidrpool}}}`))
	apply(t, testfabrics.Object("nv2", `{addresses: {ipam: {type: nv-ipam, poolName: "a,b"}}}`))
	for _, n := range []string{"one", "two"} {
		createNode(t, c, n)
		addNode(t, c, n, "nv")
	}
	const sufficient = v1alpha1.FabricAddressesSufficient
	s.becomes("nv", sufficient, "False IPAMMissing: the cluster has no CIDRPools of nv-ipam (nv-ipam.nvidia.com): "+
		"install")
	s.becomes("nv", v1alpha1.FabricReady, "False IPAMMissing")
	if !s.event("IPAMMissing") {
		t.Error("no Event")
	}
	apply(t, nvipamKind("CIDRPool"))
	s.becomes("nv", sufficient, "False PoolMissing: there is no CIDRPool rail-0: make it in the namespace where "+
		"nv-ipam")
	pool := func(spec, status string) {
		t.Helper()
		put(t, c, `{apiVersion: nv-ipam.nvidia.com/v1alpha1, kind: CIDRPool,
		  metadata: {name: rail-0, namespace: kube-system},
		  spec: {`+spec+`}, status: {`+status+`}}`)
	}
	pool("cidr: 10.0.0.0/16", "")
	s.becomes("nv", sufficient, "False PoolNotReady: CIDRPool kube-system/rail-0: spec.perNodeNetworkPrefix 0: want")
	pool("cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24", "")
	s.becomes("nv", sufficient, "False PoolNotReady: CIDRPool kube-system/rail-0 has no block for one, two: does its "+
		"nodeSel")
	const both = "allocations: [{nodeName: one, prefix: 10.0.0.0/24}, {nodeName: two, prefix: 10.0.1.0/24}]"
	pool("cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24", both)
	s.becomes("nv", sufficient, "True Sufficient")
	s.counts("nv", "-/508")
	s.becomes("nv", v1alpha1.FabricReady, "True Ready")
	pool("cidr: 10.0.0.0/23, perNodeNetworkPrefix: 24", both)
	s.becomes("nv", sufficient, "True PoolNearlyFull: over 90 % of the 2 blocks of CIDRPool kube-system/rail-0 are "+
		"given")
	if !s.event("PoolNearlyFull") {
		t.Error("no Event")
	}
	createNode(t, c, "three")
	addNode(t, c, "three", "nv")
	s.becomes("nv", sufficient, "False RangeTooSmall: CIDRPool kube-system/rail-0 has blocks for 2 nodes, and none "+
		"is left")
	pool("cidr: 10.0.0.0/16, perNodeNetworkPrefix: 32, perNodeExclusions: [{startIndex: 0, endIndex: 0}]",
		"allocations: [{nodeName: one, prefix: 10.0.0.0/32}, {nodeName: two, prefix: 10.0.0.1/32}, "+
			"{nodeName: three, prefix: 10.0.0.2/32}]")
	s.becomes("nv", sufficient, "False RangeTooSmall: the blocks of CIDRPool kube-system/rail-0 are too small: one "+
		"has 0 and")

	s.becomes("nv2", sufficient, "False IPAMMissing: the cluster has no IPPools of nv-ipam")
	apply(t, nvipamKind("IPPool"))
	ippool := func(name, subnet string) {
		t.Helper()
		until(t, func() string {
			err := server.ApplyText(t.Context(), []byte(`{apiVersion: nv-ipam.nvidia.com/v1alpha1, kind: IPPool,
			  metadata: {name: `+name+`, namespace: kube-system}, spec: {subnet: "`+subnet+`", perNodeBlockSize: 8}}`))
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
	ippool("a", "10.5.0.0/24")
	s.becomes("nv2", sufficient, "False PoolMissing: there is no IPPool b")
	ippool("b", "fd00::/64")
	s.becomes("nv2", sufficient, "True Sufficient")
	for _, kind := range []string{"cidrpools", "ippools"} {
		removeKind(t, c, kind+".nv-ipam.nvidia.com")
	}
	s.becomes("nv", sufficient, "False IPAMMissing")
}

// whereaboutsPool is what whereabouts writes, with so many addresses given.
func whereaboutsPool(name, of string, given int) string {
	var b strings.Builder
	for i := range given {
		fmt.Fprintf(&b, `"%d": {id: c, podref: "default/p-%d"},`, i+1, i)
	}
	return `{apiVersion: whereabouts.cni.cncf.io/v1alpha1, kind: IPPool, metadata: {name: ` + name +
		`, namespace: kube-system},
	  spec: {range: ` + of + `, allocations: {` + b.String() + `}}}`
}

// The pools of whereabouts are read every few minutes, and never watched.
func TestPoolsOfWhereabouts(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("wb", `{addresses: {ipam: {type: whereabouts, range: 10.7.0.0/28}}}`))
	createNode(t, c, "one")
	addNode(t, c, "one", "wb")
	const sufficient = v1alpha1.FabricAddressesSufficient
	s.becomes("wb", v1alpha1.FabricReady, "True Ready")
	s.counts("wb", "0/14")
	apply(t, whereaboutsPool("10.7.0.0-28", "10.7.0.0/28", 12))
	apply(t, whereaboutsPool("other-10.7.0.0-28", "10.7.0.0/28", 14)) // another network's
	for range 5 {
		s.round(50 * time.Second)
	}
	s.counts("wb", "0/14")
	s.round(time.Minute)
	s.counts("wb", "12/14")
	s.becomes("wb", sufficient, "True Sufficient")
	apply(t, whereaboutsPool("10.7.0.0-28", "10.7.0.0/28", 13))
	s.becomes("wb", sufficient, "True PoolNearlyFull: over 90 % of the 14 addresses of 10.7.0.0/28 are given (IPPool "+
		"10.7.0.0-28)")
	if !s.event("PoolNearlyFull") {
		t.Error("no Event")
	}
	apply(t, whereaboutsPool("10.7.0.0-28", "10.7.0.0/28", 14))
	s.becomes("wb", v1alpha1.FabricReady,
		"False PoolFull: all 14 addresses of 10.7.0.0/28 are given (IPPool 10.7.0.0-28)")
	s.counts("wb", "14/14")
	apply(t, testfabrics.Object("wb6", `{addresses: {ipam: {type: whereabouts, range: 10.8.0.0/30}}}`))
	for _, n := range []string{"two", "three"} {
		createNode(t, c, n)
		addNode(t, c, n, "wb6")
	}
	s.becomes("wb6", sufficient, "True Sufficient")
	createNode(t, c, "four")
	addNode(t, c, "four", "wb6")
	s.becomes("wb6", sufficient, "False RangeTooSmall: addresses.ipam.range 10.8.0.0/30 has 2 addresses to give, and "+
		"all nodes")
}

// Of node ranges the condition says when nearly all are given.
func TestNodeRangesNearlyFull(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("nr", testfabrics.Ranged("10.0.0.0/24", 28)))
	add := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			createNode(t, c, fmt.Sprint("n", i))
			addNode(t, c, fmt.Sprint("n", i), "nr")
		}
	}
	const sufficient = v1alpha1.FabricAddressesSufficient
	add(0, 14)
	s.round(0)
	s.counts("nr", "0/222")
	s.becomes("nr", sufficient, "True Sufficient")
	add(14, 15)
	s.becomes("nr", sufficient, "True PoolNearlyFull: over 90 % of the 16 ranges of 10.0.0.0/24 are given; choose a "+
		"wider")
	add(15, 16)
	s.becomes("nr", sufficient, "True PoolNearlyFull: each range of 10.0.0.0/24 is given: the next node gets none")
	add(16, 17)
	s.becomes("nr", sufficient, "False RangeTooSmall: fabric nr: range 10.0.0.0/24 has no /28 left for node n16")
}

// Multus may come later, and its kind may go: the network is published as soon as it is there.
func TestMultusLater(t *testing.T) {
	fresh(t, everything...)
	c := whole(t)
	defer control(t)()
	apply(t, testfabrics.Object("early", `{}`))
	untilCondition(t, c, "early", v1alpha1.FabricReady,
		"False MultusMissing: the cluster has no NetworkAttachmentDefinitions: inst")
	apply(t, testfabrics.Object("claimed", `{allocation: DRA, match: {rateGb: 800}}`)) // needs none
	untilCondition(t, c, "claimed", v1alpha1.FabricPublished,
		"False MultusMissing: the cluster has no NetworkAttachmentDefinitions: pods get the devices by their ResourceC")
	untilCondition(t, c, "claimed", v1alpha1.FabricReady, "False NoDevices")
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	untilCondition(t, c, "early", v1alpha1.FabricPublished, "True Published")
	untilDefined(t, c, "early", "default")
	removeKind(t, c, "network-attachment-definitions.k8s.cni.cncf.io")
	untilCondition(t, c, "early", v1alpha1.FabricReady, "False MultusMissing")
}

// removeKind deletes a CustomResourceDefinition, and waits until it is gone.
func removeKind(t *testing.T, c client.Client, name string) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
	crd.SetName(name)
	if err := c.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	until(t, func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); apierrors.IsNotFound(err) {
			return ""
		} else if err != nil {
			return err.Error()
		}
		return name + " is still there: " + fmt.Sprint(crd.Object["status"])
	})
}

func createNode(t *testing.T, c client.Client, name string) {
	t.Helper()
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// The way of docs/migration.md: no node has a range in which whereabouts has given addresses, and when these are free
// the nodes keep what they have.
func TestFromWhereabouts(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	createNode(t, c, "one")
	addNode(t, c, "one", "ib-200g")
	apply(t, testfabrics.Object("ib-200g", `{addresses: {ipam: {type: whereabouts, range: 10.20.0.0/16}}}`))
	s.becomes("ib-200g", v1alpha1.FabricReady, "True Ready")
	const with, without = `ranges: [{range: 10.20.0.0/16, perNodePrefixLength: 26, exclude: [10.20.0.0/21]}]`,
		`ranges: [{range: 10.20.0.0/16, perNodePrefixLength: 26}]`
	for _, spec := range []string{with, without} {
		apply(t, testfabrics.Object("ib-200g", `{addresses: {nodeRanges: {`+spec+`}}}`))
		for range 3 {
			s.round(time.Minute)
		}
		if got := ranges(t, c); got != "one 10.20.8.0/26" {
			t.Errorf("%s: %s", spec, got)
		}
	}
	createNode(t, c, "two")
	addNode(t, c, "two", "ib-200g")
	s.round(time.Minute)
	if got := ranges(t, c); got != "one 10.20.8.0/26, two 10.20.8.64/26" {
		t.Error(got)
	}
}
