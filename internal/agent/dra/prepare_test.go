package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// node is a driver of a node with files of its own.
type node struct {
	*Driver
	dir     string
	mu      sync.Mutex
	asked   []fabric.PreflightRequest
	judged  []time.Duration  // how long the plugin's own decision took
	refused map[string]error // by address
	away    map[string]bool  // by address: the device does not return
	extra   []string         // kinds of device files that the fabric allows
}

func newNode(t testing.TB, ids ...string) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), refused: map[string]error{}, away: map[string]bool{}}
	state := filepath.Join(n.dir, "state")
	specs, err := cdi.In(filepath.Join(n.dir, "cdi"), "/opt/cni/bin/fabric", state)
	if err != nil {
		t.Fatal(err)
	}
	n.Driver = New(Config{
		Node: "n1", PluginsDir: filepath.Join(n.dir, "plugins"), Store: journal.Store{Dir: state},
		Prepared: prepared.In(state), CDI: specs, Log: slog.New(slog.DiscardHandler),
		Preflight: func(w []fabric.PreflightRequest) ([]error, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.asked = append(n.asked, w...)
			out := make([]error, len(w))
			for i := range w {
				out[i] = n.refused[w[i].Device.Address.String()]
			}
			return out, nil
		},
		Files: func(_ context.Context, a device.Address, _ bool, was []string) ([]string, error) {
			if n.away[a.String()] {
				return nil, errors.New("the pod that had it has not given it back")
			}
			return was, nil
		},
	})
	n.see(ids...)
	return n
}

// see lets the driver know of a look at the node.
func (n *node) see(ids ...string) {
	v := View{Fabrics: map[string]bool{"ib": true}}
	for i, id := range ids {
		v.Devices = append(v.Devices, Device{
			Item: offer.Item{Fabric: "ib", Resource: "fabric.dev/ib", NUMA: -1, Location: device.LocationOnPCI(id)},
			Conf: []byte(`{"name":"ib"}`),
			Files: []string{
				fmt.Sprintf("/dev/infiniband/uverbs%d", i), "/dev/infiniband/rdma_cm",
				fmt.Sprintf("/dev/infiniband/umad%d", i), fmt.Sprintf("/dev/infiniband/issm%d", i),
			},
			Extra: n.extra,
		})
	}
	n.Update(v)
}

// given is a claim that gives devices of the node to a pod: each for a request of its name, "rails" for those without.
func given(uid, pod string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{}
	c.UID, c.Namespace, c.Name = types.UID(uid), "default", "rails-"+uid
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, d := range devices {
		request, name, ok := strings.Cut(d, "=")
		if !ok {
			request, name = "rails", d
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Driver: "fabric.dev", Pool: "n1", Request: request, Device: name,
			})
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)},
	}
	return c
}

func (n *node) claim(t *testing.T, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	t.Helper()
	out, err := n.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	return out[c.UID].Devices, out[c.UID].Err
}

// empty fails the test if anything is left of a claim.
func (n *node) empty(t *testing.T) {
	t.Helper()
	claims, err := n.Prepared.All()
	files, ferr := n.CDI.Claims()
	if err != nil || ferr != nil || len(claims)+len(files) != 0 {
		t.Errorf("left: %v, %v; %v, %v", claims, files, err, ferr)
	}
	if left, err := filepath.Glob(filepath.Join(n.Prepared.Dir, "*", "*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

const (
	dev0 = "pci-0000-3b-00-0"
	dev1 = "pci-0000-5e-00-0"
)

func two(t *testing.T) *node { t.Helper(); return newNode(t, "0000:3b:00.0", "0000:5e:00.0") }

// The CDI spec of a claim has what verbs need, and umad and issm only if the Fabric allows them.
func TestPrepareFiles(t *testing.T) {
	for _, extra := range [][]string{nil, {"umad"}, {"umad", "issm"}} {
		n := two(t)
		n.extra = extra
		n.see("0000:3b:00.0", "0000:5e:00.0")
		for range 2 { // and again, as after a restart of kubelet
			if _, err := n.claim(t, given("c1", "p1", dev1)); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"uverbs", "rdma_cm", "umad", "issm"} {
				want := kind == "uverbs" || kind == "rdma_cm" || slices.Contains(extra, kind)
				if strings.Contains(string(b), "/dev/infiniband/"+kind) != want {
					t.Errorf("with %v, %s: %s", extra, kind, b)
				}
			}
		}
	}
}

func TestPrepare(t *testing.T) {
	n := two(t)
	c := given("c1", "p1", "a="+dev1, "a="+dev0, "b/x=pci-0000-9a-00-0")
	if _, err := n.claim(t, c); err == nil || !strings.Contains(err.Error(), "pci-0000-9a-00-0") ||
		!strings.Contains(err.Error(), dev0+", "+dev1) {
		t.Fatalf("with a device that is not there: %v", err)
	}
	n.empty(t)
	c = given("c1", "p1", "a="+dev1, "b/x="+dev0)
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: "FromClaim", Requests: []string{"b"},
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: "fabric.dev", Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"fabric.dev/v1alpha1","kind":"InterfaceConfig", "mtu": 4000}`),
			},
		}},
	}}
	want := []kubeletplugin.Device{
		{Requests: []string{"a"}, PoolName: "n1", DeviceName: dev1, CDIDeviceIDs: []string{"fabric.dev/claim=c1-a"}},
		{Requests: []string{"b/x"}, PoolName: "n1", DeviceName: dev0, CDIDeviceIDs: []string{"fabric.dev/claim=c1-b"}},
	}
	got, err := n.claim(t, c)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	p, err := n.Prepared.Claim("c1")
	if err != nil {
		t.Fatal(err)
	}
	d := p.Devices[1]
	if p.PodUID != "uid-p1" || p.Pod != "p1" || d.ID != "0000:3b:00.0" || d.Rail != 0 || p.Devices[0].Rail != 1 ||
		string(compact(d.Network)) != `{"mtu":4000}` || d.Fabric != "ib" || p.Devices[0].Network != nil {
		t.Errorf("prepared: %+v", p)
	}
	if len(n.asked) != 2 || n.asked[1].PodUID != "uid-p1" || string(n.asked[1].Conf) != `{"name":"ib"}` {
		t.Errorf("asked: %+v", n.asked)
	}
	n.asked = nil
	n.away["pci/0000:3b:00.0"] = true // in the pod by now
	if got, err = n.claim(t, c); err != nil || cmp.Diff(want, got) != "" || len(n.asked) != 0 {
		t.Errorf("again: %v, %v, asked %v", got, err, n.asked)
	}
	if b, err := os.ReadFile(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json")); err != nil ||
		!strings.Contains(string(b), "uverbs1") {
		t.Errorf("its files while it is in the pod: %s, %v", b, err)
	}
	for range 2 {
		out, err := n.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "c1"}})
		if err != nil || out["c1"] != nil {
			t.Fatal(out, err)
		}
		n.empty(t)
	}
}

// Whatever is refused leaves nothing, and says why.
func TestRefused(t *testing.T) {
	n := two(t)
	n.refused["pci/0000:5e:00.0"] = errors.New("port 1 of mlx5_1 is Down; check its cable")
	n.away["pci/0000:3b:00.0"] = true
	for name, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  string
	}{
		"judged":   {given("c1", "p1", dev1), "rails-c1: device " + dev1 + " of fabric ib: port 1 of mlx5_1"},
		"away":     {given("c1", "p1", dev0), "has not given it back"},
		"no share": {given("c1", "p1", dev0+"-share-9x"), "no such device"},
		"other":    {given("c1", "p1"), "no device of pool n1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := n.claim(t, c.claim); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			n.empty(t)
		})
	}
	if err := os.WriteFile(filepath.Join(n.dir, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.away, n.refused = nil, nil
	if _, err := n.claim(t, given("c1", "p1", dev0)); err == nil {
		t.Error("prepared without a file")
	}
	if files, _ := n.CDI.Claims(); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
}

// One device is one claim's, also of claims that are prepared at the same time.
func TestTwoClaims(t *testing.T) {
	for range 30 { // the order of their steps is another one each time
		twoClaims(t)
	}
}

func twoClaims(t *testing.T) {
	t.Helper()
	n := two(t)
	claims := []*resourceapi.ResourceClaim{given("c1", "p1", dev0), given("c2", "p2", dev0), given("c3", "p3", dev1)}
	out, err := n.PrepareResourceClaims(t.Context(), claims)
	if err != nil || out["c3"].Err != nil || (out["c1"].Err == nil) == (out["c2"].Err == nil) {
		t.Fatalf("%v, %v", out, err)
	}
	loser := claims[0]
	if out["c1"].Err == nil {
		loser = claims[1]
	}
	if _, err := n.claim(t, loser); err == nil || !strings.Contains(err.Error(), "prepared for claim default/rails-") {
		t.Errorf("later: %v", err)
	}
}

// A named claim that another pod has after its first one ended is that pod's.
func TestNextPod(t *testing.T) {
	n := two(t)
	for _, pod := range []string{"p1", "p2"} {
		if _, err := n.claim(t, given("c1", pod, dev0)); err != nil {
			t.Fatal(err)
		}
	}
	if of, err := n.Prepared.Of("uid-p1"); err != nil || len(of) != 0 {
		t.Errorf("of the first pod: %v, %v", of, err)
	}
	if of, err := n.Prepared.Of("uid-p2"); err != nil || len(of) != 1 {
		t.Errorf("of the second pod: %v, %v", of, err)
	}
}

// Between any two steps of prepare the agent may be killed: the next one puts it right.
func TestKilledBetween(t *testing.T) {
	n := two(t)
	if err := n.CDI.Write("orphan", []cdi.Request{{Name: "rails", Files: []string{"/dev/null"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.claim(t, given("c1", "p1", dev0)); err != nil {
		t.Fatal(err)
	}
	if err := n.CDI.Remove("c1"); err != nil {
		t.Fatal(err)
	}
	orphan := &prepared.Claim{UID: "orphan", PodUID: "p0", Devices: []prepared.Device{{
		Request: "rails", Attributes: prepared.Attributes{"rail": []byte(`{"int":0}`)},
	}}}
	if err := n.Prepared.InitMetadata(orphan); err != nil {
		t.Fatal(err)
	}
	if err := n.reconcileFiles(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.Prepared.MetadataFile(orphan, "rails")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("metadata of a claim that was not prepared: %v", err)
	}
	files, err := n.CDI.Claims()
	if diff := cmp.Diff([]string{"c1"}, files); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// The kernel gives the files of a device other numbers whenever it returns: containers that start later get those.
func TestFilesChange(t *testing.T) {
	n := two(t)
	if _, err := n.claim(t, given("c1", "p1", dev1)); err != nil {
		t.Fatal(err)
	}
	n.see("0000:5e:00.0") // uverbs0 instead of uverbs1
	c, err := n.Prepared.Claim("c1")
	if err != nil {
		t.Fatal(err)
	}
	n.follow1(c)
	b, err := os.ReadFile(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json"))
	if err != nil || !strings.Contains(string(b), "uverbs0") {
		t.Errorf("%s, %v", b, err)
	}
	if err := n.Prepared.Remove("c1"); err != nil {
		t.Fatal(err)
	}
	if err := n.CDI.Remove("c1"); err != nil {
		t.Fatal(err)
	}
	n.follow1(c) // unprepared meanwhile
	if _, err := os.Stat(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a claim that has been taken back has its file again: %v", err)
	}
}
