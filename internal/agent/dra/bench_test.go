package dra

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// rails is a node with eight virtual devices, judged by the plugin itself.
func rails(t testing.TB) (*node, *resourceapi.ResourceClaim) {
	t.Helper()
	host, far := sandbox.New(t), sandbox.New(t)
	n := newNode(t)
	v := View{Fabrics: map[string]bool{"ib": true}}
	var names []string
	for i := range 8 {
		name := fmt.Sprintf("v%d", i)
		host.Veth(t, name, far, name)
		v.Devices = append(v.Devices, Device{
			Item: offer.Item{Fabric: "ib", Resource: "fabric.dev/ib", NUMA: -1,
				Location: device.Location{Address: device.Address{Bus: prepared.Virtual, Name: name}}},
			Files: []string{"/dev/null"},
			Conf:  []byte(`{"cniVersion":"1.0.0","type":"fabric","name":"ib","allocation":"DRA"}`),
		})
		names = append(names, "netdev-"+name)
	}
	n.Update(v)
	ns := host.Open(t)
	preflight := Preflight(n.Store.Dir, sandbox.PolicyFile(t, sandbox.AllowVirtual), "")
	n.Preflight = func(w []fabric.PreflightRequest) (out []error, err error) {
		err = ns.DoWithSys(func(fs.FS) (err error) {
			begun := time.Now()
			out, err = preflight(w)
			n.judged = append(n.judged, time.Since(begun))
			return err
		})
		return out, err
	}
	return n, given("c1", "p1", names...)
}

// With the plugin's own decision a claim of eight devices is prepared far sooner than anybody notices.
func TestPrepareEight(t *testing.T) {
	n, c := rails(t)
	if _, err := n.claim(t, c); err != nil {
		t.Fatal(err)
	}
	if n.asked != nil {
		t.Error("the stand-in was asked")
	}
}

func BenchmarkPrepareEight(b *testing.B) {
	n, c := rails(b)
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		out, err := n.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{c})
		took = append(took, time.Since(begun))
		if err != nil || out[c.UID].Err != nil {
			b.Fatal(out, err)
		}
		if _, err := n.UnprepareResourceClaims(context.Background(),
			[]kubeletplugin.NamespacedObject{{UID: c.UID}}); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	slices.Sort(n.judged)
	b.ReportMetric(float64(n.judged[len(n.judged)/2].Microseconds())/1000, "ms-judge/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
}
