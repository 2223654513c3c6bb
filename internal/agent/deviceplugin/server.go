// Package deviceplugin reports to kubelet which devices a node has (device plugin API v1beta1), and which device files
// a container needs for those that it gets. It knows nothing of RDMA: values in, kubelet's messages out.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Unit is one thing that kubelet hands out: a device, or a share of one.
type Unit struct {
	ID string
	device.Location
	Healthy bool
	NUMA    int      // -1: unknown
	Files   []string // its device files, as the last update has them
	Extra   []string // kinds of device files that a container gets beside what it needs, for Set.Files
	Alone   bool     // it is a whole device, which goes into a pod
	Slot    string   // of the card: units of one slot share its port
	Path    []string // the way down the PCI tree to it
	RDMA    string   // RDMA device, for its device-info file
}

// server is the device plugin of one resource, with a socket of its own.
type server struct {
	api.UnimplementedDevicePluginServer
	resource string
	dir      string // kubelet's device plugin directory
	log      *slog.Logger
	files    func(context.Context, Unit) ([]string, error)
	prefer   func(context.Context, Choice) []string // nil: kubelet takes any

	mu      sync.Mutex
	units   []Unit
	changed chan struct{} // closed at each update
}

func newServer(resource, dir string, log *slog.Logger) *server {
	return &server{
		resource: resource, dir: dir, log: log.With("resource", resource), changed: make(chan struct{}),
		files: func(_ context.Context, u Unit) ([]string, error) { return u.Files, nil },
	}
}

func (s *server) socket() string { return filepath.Join(s.dir, socketName(s.resource)) }

// socketName replaces the slash of a resource.
func socketName(resource string) string { return "fabric-" + flat(resource) + ".sock" }

// update replaces the list of units, and reports a change to kubelet.
func (s *server) update(units []Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.EqualFunc(s.units, units, equal) {
		return
	}
	s.units = units
	close(s.changed)
	s.changed = make(chan struct{})
}

func equal(a, b Unit) bool {
	return a.ID == b.ID && a.Healthy == b.Healthy && a.NUMA == b.NUMA && a.RDMA == b.RDMA &&
		a.Location == b.Location && a.Alone == b.Alone && a.Slot == b.Slot && slices.Equal(a.Files, b.Files) &&
		slices.Equal(a.Path, b.Path) && slices.Equal(a.Extra, b.Extra)
}

func (s *server) list() ([]Unit, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.units, s.changed
}

// run serves and registers until ctx ends, and again whenever kubelet has been restarted: kubelet empties its
// directory when it starts.
func (s *server) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.session(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("device plugin", "error", err)
		}
		wait(ctx, time.Second)
	}
}

// session is one registration: it lasts until kubelet is restarted.
func (s *server) session(ctx context.Context) error {
	kubelet := filepath.Join(s.dir, "kubelet.sock")
	before, err := os.Stat(kubelet)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // kubelet has not started yet
	}
	if err != nil {
		return fmt.Errorf("find kubelet: %w", err)
	}
	if err := os.Remove(s.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", s.socket())
	if err != nil {
		return fmt.Errorf("listen for kubelet: %w", err)
	}
	own, err := os.Stat(s.socket())
	if err != nil {
		return fmt.Errorf("listen for kubelet: %w", errors.Join(err, l.Close()))
	}
	g := grpc.NewServer()
	api.RegisterDevicePluginServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer g.Stop()
	if err := s.register(ctx, kubelet); err != nil {
		return err
	}
	s.log.Info("registered with kubelet")
	for ctx.Err() == nil {
		if !same(kubelet, before) || !same(s.socket(), own) {
			s.log.Info("kubelet has been restarted: registering again")
			return nil
		}
		select {
		case err := <-served:
			return fmt.Errorf("serve kubelet: %w", err)
		default:
			wait(ctx, time.Second)
		}
	}
	return nil
}

// same returns whether the file is still the same. The inode alone does not show that: a new socket may get the old
// one's.
func same(path string, was os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, was) && now.ModTime().Equal(was.ModTime())
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *server) register(ctx context.Context, kubelet string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("dial kubelet: %w", err)
	}
	defer conn.Close()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(s.socket()), ResourceName: s.resource, Options: s.options()})
	if err != nil {
		return fmt.Errorf("register resource %s with kubelet: %w", s.resource, err)
	}
	return nil
}

func (s *server) options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: s.prefer != nil}
}

// GetDevicePluginOptions implements the API.
func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return s.options(), nil
}

// ListAndWatch implements the API: it sends the list at once, and again at each change.
func (s *server) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		units, changed := s.list()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices(units)}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

func devices(units []Unit) []*api.Device {
	out := make([]*api.Device, 0, len(units))
	for _, u := range units {
		d := &api.Device{ID: u.ID, Health: api.Unhealthy}
		if u.Healthy {
			d.Health = api.Healthy
		}
		if u.NUMA >= 0 {
			d.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(u.NUMA)}}}
		}
		out = append(out, d)
	}
	return out
}

// Allocate implements the API. An unknown unit is an error, so that kubelet does not start a container without its
// device. The files are those of this moment: the kernel renumbers them whenever a device returns to the host. See
// kernel fact 29 in docs/kernel.md.
func (s *server) Allocate(ctx context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	units, _ := s.list()
	out := &api.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		var files []string
		for _, id := range c.GetDevicesIds() {
			i := slices.IndexFunc(units, func(u Unit) bool { return u.ID == id })
			if i < 0 {
				return nil, fmt.Errorf("allocate %s of %s: the node has no such device now", id, s.resource)
			}
			now, err := s.files(ctx, units[i])
			if err != nil {
				return nil, fmt.Errorf("allocate %s of %s: %w", id, s.resource, err)
			}
			files = append(files, now...)
		}
		slices.Sort(files)
		r := &api.ContainerAllocateResponse{}
		for _, f := range slices.Compact(files) {
			r.Devices = append(r.Devices, &api.DeviceSpec{HostPath: f, ContainerPath: f, Permissions: "rw"})
		}
		out.ContainerResponses = append(out.ContainerResponses, r)
	}
	return out, nil
}
