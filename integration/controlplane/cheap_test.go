package controlplane_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// meter counts the bytes of all answers of the API server.
type meter struct {
	http.RoundTripper

	bytes atomic.Int64
}

func (m *meter) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := m.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &meteredBody{answer.Body, m}
	}
	return answer, err
}

type meteredBody struct {
	io.ReadCloser

	meter *meter
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.bytes.Add(int64(n))
	return n, err
}

// limitedMetered is limited, with a count of what it reads.
func limitedMetered(t *testing.T, account string) (client.Client, *meter) {
	t.Helper()
	m := &meter{}
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, "fabric-system", account)
	rc.DisableCompression = true
	rc.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		m.RoundTripper = rt
		return m
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, m
}

// tenants makes objects of 1 MB.
func tenants(t *testing.T, c client.Client, kind schema.GroupVersionKind, n int, spec map[string]any) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			u.SetGroupVersionKind(kind)
			u.SetNamespace("kube-system")
			u.SetName(fmt.Sprint("tenant-", i))
			if err := c.Create(t.Context(), u); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// What tenants write costs the controller nothing: of definitions and pools that are not its own it reads metadata. A
// definition of theirs that has the name of a Fabric is found all the same, and so are the pools that Fabrics use.
func TestForeignObjectsCostNothing(t *testing.T) {
	fresh(t, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	apply(t, nvipamKind("CIDRPool"))
	const each = 30
	text := strings.Repeat("x", 1_000_000)
	cidrPools := schema.GroupVersionKind{Group: "nv-ipam.nvidia.com", Version: "v1alpha1", Kind: "CIDRPool"}
	whereaboutsPools := schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "IPPool"}
	until(t, func() string {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(cidrPools)
		return errorOf(c.List(t.Context(), list))
	})
	tenants(t, c, fabrics.Definitions, each, map[string]any{"config": text})
	tenants(t, c, cidrPools, each, map[string]any{"text": text})
	tenants(t, c, whereaboutsPools, each, map[string]any{"range": "10.9.0.0/24",
		"allocations": map[string]any{"1": map[string]any{"id": "c", "podref": text}}})

	metered, read := limitedMetered(t, "fabric-controller")
	s := newStepper(t, metered)
	apply(t, whereaboutsPool("10.7.0.0-28", "10.7.0.0/28", 12))
	apply(t, testfabrics.Object("wb", `{addresses: {ipam: {type: whereabouts, range: 10.7.0.0/28}}}`))
	apply(t, testfabrics.Object("nv", `{match: {devices: ["x*"]},
	  addresses: {ipam: {type: nv-ipam, poolName: rail-0, poolType: cidrpool}}}`))
	apply(t, testfabrics.Object("nr", `{match: {devices: ["y*"]},
	  addresses: {nodeRanges: {ranges: [{range: 10.8.0.0/24, perNodePrefixLength: 28}]}}}`))
	for range 10 {
		s.round(time.Minute)
	}
	untilDefined(t, c, "wb", "default")
	s.counts("wb", "12/14")

	foreign := definition("theirs")
	foreign.Object["spec"] = map[string]any{"config": text}
	create(t, c, foreign)
	apply(t, testfabrics.Object("theirs", `{match: {devices: ["z*"]}}`))
	// Once theirs has the label of the controller, too.
	for range 2 {
		s.becomes("theirs", v1alpha1.FabricPublished, "False NetworkConflict: another owner's NetworkAttachmentDef")
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"fabric-agent"}}}`))
		if err := c.Patch(t.Context(), definition("theirs"), patch); err != nil {
			t.Fatal(err)
		}
		s.round(time.Minute)
	}
	if n := read.bytes.Load(); n > 1_000_000 {
		t.Errorf("the controller has read %d bytes; each of %d objects of tenants has 1 MB", n, 3*each+1)
	}
}
