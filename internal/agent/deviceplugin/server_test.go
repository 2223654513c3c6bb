package deviceplugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// kubelet is the registration service of the API on a real socket.
type kubelet struct {
	api.UnimplementedRegistrationServer
	dir        string
	server     *grpc.Server
	registered chan *api.RegisterRequest
}

func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{dir: dir, server: grpc.NewServer(), registered: make(chan *api.RegisterRequest, 8)}
	api.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

func (k *kubelet) await() *api.RegisterRequest { return <-k.registered }

func (k *kubelet) dial(t *testing.T, r *api.RegisterRequest) api.DevicePluginClient {
	t.Helper()
	conn, err := grpc.NewClient(
		"unix://"+filepath.Join(k.dir, r.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewDevicePluginClient(conn)
}

func newSet(t *testing.T) *deviceplugin.Set {
	t.Helper()
	// A unix socket's path has 107 bytes at most, and the test's own directory may have more.
	dir, err := os.MkdirTemp("", "dp-")
	if err != nil {
		t.Fatal(err)
	}
	s := &deviceplugin.Set{
		Dir:     dir,
		InfoDir: filepath.Join(dir, "devinfo"),
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(func() { s.Stop(); os.RemoveAll(dir) })
	return s
}

func update(t *testing.T, s *deviceplugin.Set, resource string, units ...deviceplugin.Unit) {
	t.Helper()
	if err := s.Update(
		context.WithoutCancel(t.Context()),
		map[string][]deviceplugin.Unit{resource: units},
	); err != nil {
		t.Fatal(err)
	}
}

// shown is a list as "id health numa".
func shown(t *testing.T, stream grpc.ServerStreamingClient[api.ListAndWatchResponse]) []string {
	t.Helper()
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range r.GetDevices() {
		b, err := json.Marshal(d.GetTopology())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d.GetID()+" "+d.GetHealth()+" "+string(b))
	}
	return out
}

const resource = "fabric.dev/ib-200g"

var (
	rail0 = deviceplugin.Unit{ID: "0000:3b:00.0", Healthy: true, NUMA: 0,
		Location: device.LocationOnPCI("0000:3b:00.0"), RDMA: "mlx5_0",
		Files: []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}}
	rail1 = deviceplugin.Unit{ID: "0000:5e:00.0", NUMA: -1, Location: device.LocationOnPCI("0000:5e:00.0"),
		RDMA: "mlx5_1", Files: []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1"}}
)

func TestKubelet(t *testing.T) {
	s := newSet(t)
	k := startKubelet(t, s.Dir)
	update(t, s, resource, rail0, rail1)
	r := k.await()
	if r.GetVersion() != "v1beta1" || r.GetResourceName() != resource ||
		r.GetEndpoint() != "fabric-fabric.dev-ib-200g.sock" {
		t.Errorf("registered %v", r)
	}
	c := k.dial(t, r)
	stream, err := c.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`0000:3b:00.0 Healthy {"nodes":[{}]}`, `0000:5e:00.0 Unhealthy null`}
	if got := shown(t, stream); !slices.Equal(got, want) {
		t.Errorf("list: %v, want %v", got, want)
	}
	up := rail1
	up.Healthy, up.NUMA = true, 1
	update(t, s, resource, rail0, up)
	want[1] = `0000:5e:00.0 Healthy {"nodes":[{"ID":1}]}`
	if got := shown(t, stream); !slices.Equal(got, want) {
		t.Errorf("after the port came up: %v, want %v", got, want)
	}
	res, err := c.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{rail0.ID}}, {DevicesIds: []string{rail0.ID, rail1.ID}}}})
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, c := range res.GetContainerResponses() {
		var s []string
		for _, d := range c.GetDevices() {
			if d.GetHostPath() != d.GetContainerPath() || d.GetPermissions() != "rw" {
				t.Errorf("%v", d)
			}
			s = append(s, filepath.Base(d.GetHostPath()))
		}
		files = append(files, strings.Join(s, " "))
	}
	if want := []string{"rdma_cm uverbs0", "rdma_cm uverbs0 uverbs1"}; !slices.Equal(files, want) {
		t.Errorf("%v, want %v", files, want)
	}
	_, err = c.Allocate(
		t.Context(),
		&api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0000:ff:00.0"}}},
		},
	)
	if err == nil || !strings.Contains(err.Error(), "0000:ff:00.0") {
		t.Errorf("an id that is nobody's: %v", err)
	}
}

// A kubelet that restarts removes all sockets of its directory and knows nothing.
func TestKubeletRestarts(t *testing.T) {
	s := newSet(t)
	update(t, s, resource, rail0) // before there is a kubelet
	k := startKubelet(t, s.Dir)
	k.await()
	k.server.Stop()
	for _, f := range []string{"kubelet.sock", "fabric-fabric.dev-ib-200g.sock"} {
		_ = os.Remove(filepath.Join(s.Dir, f))
	}
	k = startKubelet(t, s.Dir)
	stream, err := k.dial(t, k.await()).ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(t, stream); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// A device between two namespaces is on neither side when looked at: kubelet must not hear of it.
func TestMissedOnce(t *testing.T) {
	s := newSet(t)
	k := startKubelet(t, s.Dir)
	update(t, s, resource, rail0, rail1)
	stream, err := k.dial(t, k.await()).ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	shown(t, stream)
	update(t, s, resource, rail0)        // missed
	update(t, s, resource, rail0, rail1) // there again
	update(t, s, resource, rail0)        // missed
	update(t, s, resource, rail0)        // and once more: gone
	if got := shown(t, stream); len(got) != 1 || !strings.HasPrefix(got[0], rail0.ID) {
		t.Errorf("%v", got)
	}
	if err := s.Update(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, stream); len(got) != 0 {
		t.Errorf("the fabric is gone, but: %v", got)
	}
}

func TestDeviceInfo(t *testing.T) {
	s := newSet(t)
	other := filepath.Join(s.InfoDir, "nvidia.com-hostdev-0000:3b:00.0-device.json")
	if err := os.MkdirAll(s.InfoDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(`{"type":"pci","version":"1.0.0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	shared := rail0
	shared.ID, shared.PCI = "platform/fakeib.0", ""
	update(t, s, resource, rail0, rail1, shared)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(s.InfoDir, name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	want := `{"pci":{"pci-address":"0000:3b:00.0","rdma-device":"mlx5_0"},"type":"pci","version":"1.1.0",` +
		`"writer":"fabric-agent"}`
	if got := read("fabric.dev-ib-200g-0000:3b:00.0-device.json"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	update(t, s, resource, rail0)
	update(t, s, resource, rail0)
	entries, err := os.ReadDir(s.InfoDir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if got := read(filepath.Base(other)); !strings.Contains(got, "1.0.0") {
		t.Errorf("another plugin's file: %s", got)
	}
}

// The files are looked up when kubelet asks, not when the node was last looked at.
func TestAllocateLooksAgain(t *testing.T) {
	s := newSet(t)
	s.Files = func(_ context.Context, u deviceplugin.Unit) ([]string, error) {
		if u.ID == rail1.ID {
			return nil, errors.New("it has not come back")
		}
		return []string{"/dev/infiniband/uverbs7"}, nil
	}
	k := startKubelet(t, s.Dir)
	update(t, s, resource, rail0, rail1)
	c := k.dial(t, k.await())
	ask := func(id string) (*api.AllocateResponse, error) {
		return c.Allocate(t.Context(), &api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{id}}},
		})
	}
	res, err := ask(rail0.ID)
	if err != nil {
		t.Fatal(err)
	}
	d := res.GetContainerResponses()[0].GetDevices()
	if len(d) != 1 || d[0].GetHostPath() != "/dev/infiniband/uverbs7" {
		t.Errorf("handed out %v", d)
	}
	if _, err := ask(rail1.ID); err == nil || !strings.Contains(err.Error(), rail1.ID+" of "+resource+": it has not") {
		t.Errorf("a device that is not there: %v", err)
	}
}

// kubelet asks for a choice if the plugin offers one, and hears the ids that were chosen.
func TestPreferred(t *testing.T) {
	s := newSet(t)
	s.Prefer = func(_ context.Context, c deviceplugin.Choice) []string {
		if c.Resource != resource || len(c.Units) != 2 || c.Size != 1 || len(c.Available) != 2 || len(c.Must) != 0 {
			t.Errorf("asked for %+v", c)
		}
		return []string{rail1.ID}
	}
	k := startKubelet(t, s.Dir)
	update(t, s, resource, rail0, rail1)
	r := k.await()
	if !r.GetOptions().GetGetPreferredAllocationAvailable() {
		t.Errorf("registered with %v", r.GetOptions())
	}
	c := k.dial(t, r)
	o, err := c.GetDevicePluginOptions(t.Context(), &api.Empty{})
	if err != nil || !o.GetGetPreferredAllocationAvailable() {
		t.Errorf("options %v, %v", o, err)
	}
	got, err := c.GetPreferredAllocation(t.Context(), &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: []string{rail0.ID, rail1.ID}, AllocationSize: 1},
		},
	})
	if err != nil || len(got.GetContainerResponses()) != 1 ||
		!slices.Equal(got.GetContainerResponses()[0].GetDeviceIDs(), []string{rail1.ID}) {
		t.Errorf("preferred %v, %v", got, err)
	}
}
