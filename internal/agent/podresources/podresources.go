// Package podresources asks kubelet what it has given to whom (pod resources API v1).
package podresources

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
)

// Socket is where kubelet listens.
const Socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// maxMessage is in bytes: what kubelet's own client takes.
const maxMessage = 16 << 20

// Kubelet is the kubelet of a node.
type Kubelet struct {
	Socket   string // on the node
	HostProc string // a /proc of the node, through which its files are seen; empty on the node itself
}

// List returns the containers of the node with their devices.
func (k Kubelet) List(ctx context.Context) (out []prefer.Container, err error) {
	socket := strings.TrimPrefix(k.Socket, "unix://")
	if k.HostProc != "" {
		socket = filepath.Join(k.HostProc, "1/root", socket)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("dial kubelet %s: %w", socket, err)
	}
	defer conn.Close()
	list, err := api.NewPodResourcesListerClient(conn).List(ctx, &api.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the devices of pods, kubelet %s: %w", socket, err)
	}
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			out = append(out, prefer.Container{
				Pod: p.GetNamespace() + "/" + p.GetName(), Devices: devices(c.GetDevices()),
			})
		}
	}
	return out, nil
}

// devices has one line for each device: kubelet lists those of one resource and one NUMA node together.
func devices(list []*api.ContainerDevices) (out []prefer.Device) {
	for _, d := range list {
		numa := -1
		if nodes := d.GetTopology().GetNodes(); len(nodes) > 0 {
			numa = int(nodes[0].GetID())
		}
		for _, id := range d.GetDeviceIds() {
			out = append(out, prefer.Device{Resource: d.GetResourceName(), ID: id, NUMA: numa})
		}
	}
	return out
}
