package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/podresources"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// lister is kubelet's side of the pod resources API.
type lister struct {
	api.UnimplementedPodResourcesListerServer
	mu      sync.Mutex
	pods    []*api.PodResources
	hangs   bool
	entered func() // when it hangs
	calls   int
}

func (l *lister) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *lister) List(ctx context.Context, _ *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	l.mu.Lock()
	l.calls++
	hangs, pods := l.hangs, l.pods
	l.mu.Unlock()
	if hangs {
		l.entered()
		<-ctx.Done()
	}
	return &api.ListPodResourcesResponse{PodResources: pods}, nil
}

// sandboxes is the container runtime's side of CRI.
type sandboxes struct {
	runtime.UnimplementedRuntimeServiceServer
	list atomic.Pointer[[]*runtime.PodSandbox]
}

func (s *sandboxes) ListPodSandbox(
	context.Context, *runtime.ListPodSandboxRequest,
) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: *s.list.Load()}, nil
}

func serveOn(t *testing.T, socket string, register func(*grpc.Server)) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// A pod gets the rails of the GPUs that kubelet has given it just before, although kubelet names no pod; and any rails,
// soon, where that can't be known.
func TestRailsOfThePod(t *testing.T) {
	m := machines.H20()
	sys, err := fs.Sub(m.FS, "sys")
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	from := deviceplugin.Choice{Resource: "fabric.dev/ib-400g", Size: 1}
	for i := range n.Fabrics().Fabrics[0].Rails {
		h := n.HCA(n.Fabrics().Fabrics[0].Rails[i].Ports[0].HCA)
		from.Units = append(from.Units, deviceplugin.Unit{ID: h.Name, Slot: h.PCI, Path: h.Path, NUMA: h.NUMA})
		from.Available = append(from.Available, h.Name)
	}
	dir, err := os.MkdirTemp("", "pr-") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	pod := func(name, resource, id string) *api.PodResources {
		return &api.PodResources{Namespace: "ml", Name: name, Containers: []*api.ContainerResources{{Name: "main",
			Devices: []*api.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}}}}
	}
	kubelet := &lister{pods: []*api.PodResources{
		pod("web", "nvidia.com/gpu", "GPU-0"), pod("train", "nvidia.com/gpu", "GPU-7"),
		pod("dns", "devices/kvm", "kvm0"),
	}}
	sandbox := func(pod string, state runtime.PodSandboxState) *runtime.PodSandbox {
		return &runtime.PodSandbox{Metadata: &runtime.PodSandboxMetadata{Namespace: "ml", Name: pod}, State: state}
	}
	started := &sandboxes{}
	started.list.Store(&[]*runtime.PodSandbox{
		sandbox("web", runtime.PodSandboxState_SANDBOX_READY),
		sandbox("train", runtime.PodSandboxState_SANDBOX_NOTREADY),
	})
	serveOn(t, filepath.Join(dir, "k"), func(s *grpc.Server) { api.RegisterPodResourcesListerServer(s, kubelet) })
	serveOn(t, filepath.Join(dir, "c"), func(s *grpc.Server) { runtime.RegisterRuntimeServiceServer(s, started) })
	proc := fstest.MapFS{}
	for i, uuid := range map[int]string{0: "GPU-0", 7: "GPU-7"} {
		proc["driver/nvidia/gpus/"+n.GPUs[i].PCI+"/information"] = &fstest.MapFile{Data: []byte("GPU UUID: \t " + uuid)}
	}
	c := &chooser{
		sys: sys, proc: proc, within: time.Minute, log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		kubelet: podresources.Kubelet{Socket: filepath.Join(dir, "k")},
		runtime: cri.Runtime{Socket: filepath.Join(dir, "c")},
	}
	ctx := t.Context()
	check := func(what, want string, calls int) {
		t.Helper()
		kubelet.set(func() { kubelet.calls = 0 })
		got := c.choose(ctx, from)
		kubelet.set(func() {
			if !slices.Equal(got, []string{want}) || kubelet.calls != calls {
				t.Errorf("%s: %v, %d calls, want %s", what, got, kubelet.calls, want)
			}
		})
	}
	check("GPU 7", "mlx5_7", 1)
	all := from.Available
	from.Available = []string{"mlx5_3"}
	check("there is no choice", "mlx5_3", 0)
	from.Available, from.Must = all, []string{"mlx5_4"}
	check("kubelet has begun", "mlx5_4", 0)
	from.Must = nil
	started.list.Store(&[]*runtime.PodSandbox{})
	check("two pods have no sandbox", "mlx5_0", 1)
	kubelet.set(func() { kubelet.hangs = true })
	ctx, kubelet.entered = context.WithCancel(t.Context()) // the time is up when kubelet has been asked
	check("kubelet does not answer", "mlx5_0", 1)
	ctx = t.Context()
	kubelet.set(func() { kubelet.hangs, kubelet.pods = false, kubelet.pods[1:] })
	check("GPU 7 again", "mlx5_7", 1)
	c.runtime.Socket = filepath.Join(dir, "none")
	check("no container runtime", "mlx5_0", 1)
	c.kubelet.Socket = filepath.Join(dir, "none")
	check("no kubelet", "mlx5_0", 0)
	c.kubelet.Socket = ""
	check("it must not be asked", "mlx5_0", 0)
}
