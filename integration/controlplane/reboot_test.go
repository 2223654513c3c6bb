package controlplane_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// registrations are what kubelet is told of device plugins, at its socket.
type registrations struct {
	pluginapi.UnimplementedRegistrationServer
	made chan *pluginapi.RegisterRequest
}

func (r *registrations) Register(
	_ context.Context, request *pluginapi.RegisterRequest,
) (*pluginapi.Empty, error) {
	r.made <- request
	return &pluginapi.Empty{}, nil
}

// listen is the socket of kubelet in a directory.
func listen(t *testing.T, dir string) *registrations {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	r := &registrations{made: make(chan *pluginapi.RegisterRequest, 8)}
	s := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r
}

// A node boots, and has nothing of an earlier agent, while the newest generation of its Fabric is refused: kubelet has
// the devices of the generation that is in force.
func TestRebootWithRefusedFabric(t *testing.T) {
	c := wholeWithAgents(t)
	const node = "gpu-boots"
	config := agentOf(t, node)
	apply(t, testfabrics.Object("boots", `{match: {linkLayer: InfiniBand}}`))
	untilCondition(t, c, "boots", v1alpha1.FabricAccepted, "True Accepted")
	apply(t, testfabrics.Object("boots", `{match: {linkLayer: InfiniBand},
	  addresses: {ipam: {type: whereabouts, rnge: 1}}}`))
	untilCondition(t, c, "boots", v1alpha1.FabricAccepted, "False Refused: generation 1 stays in force")

	dir, err := os.MkdirTemp("", "boot") // the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	kubelet := listen(t, dir)
	o := agentOptions(t, dir, node, kubeconfig(t, config.BearerToken), &port{})
	o.DeviceDir = dir
	runAgentWith(t, o)
	var r *pluginapi.RegisterRequest
	select {
	case r = <-kubelet.made:
	case <-time.After(time.Minute):
		t.Fatal("no device plugin has registered")
	}
	if r.GetResourceName() != "fabric.dev/boots" {
		t.Fatalf("%v", r)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, r.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pluginapi.NewDevicePluginClient(conn).ListAndWatch(t.Context(), &pluginapi.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	offered, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if list := offered.GetDevices(); len(list) != 1 || list[0].GetID() != "0000:3b:00.0" ||
		list[0].GetHealth() != pluginapi.Healthy {
		t.Errorf("%v", list)
	}
	untilNode(t, c, node, `1/1 True Ready ""`)
}
