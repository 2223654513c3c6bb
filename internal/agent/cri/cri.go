// Package cri asks the container runtime for its pod sandboxes (Kubernetes CRI v1). The id of a sandbox is the
// container id of CNI.
package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sockets are where runtimes listen: containerd, CRI-O, and the containerd of k3s and RKE2.
var Sockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"}

// ErrNoRuntime means that none of the known sockets exists.
var ErrNoRuntime = errors.New("no container runtime found")

// Runtime is the container runtime of a node.
type Runtime struct {
	Socket   string // on the node; empty: the first of Sockets that exists
	HostProc string // a /proc of the node, through which its files are seen; empty on the node itself
}

// maxMessage is in bytes. gRPC's own limit of 4 MiB is too low for a node with thousands of exited sandboxes.
const maxMessage = 16 << 20

// path is the path of the socket in the mount namespace of the agent.
func (r Runtime) path() (string, error) {
	list := Sockets
	if r.Socket != "" {
		list = []string{strings.TrimPrefix(r.Socket, "unix://")}
	}
	for _, s := range list {
		if r.HostProc != "" {
			s = filepath.Join(r.HostProc, "1/root", s)
		}
		if st, err := os.Stat(s); err == nil && st.Mode().Type() == os.ModeSocket {
			return s, nil
		}
	}
	return "", fmt.Errorf("%w: no socket at %s; name it with --cri-socket", ErrNoRuntime, strings.Join(list, ", "))
}

// Sandboxes returns the ids of all sandboxes, and which of them are ready. It returns ErrNoRuntime if no socket
// exists.
func (r Runtime) Sandboxes(ctx context.Context) (map[string]bool, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, s := range list {
		out[s.GetId()] = s.GetState() == runtime.PodSandboxState_SANDBOX_READY
	}
	return out, nil
}

// Started returns the pods (namespace/name) that have a ready sandbox. It returns ErrNoRuntime if no socket exists.
func (r Runtime) Started(ctx context.Context) (map[string]bool, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, s := range list {
		if m := s.GetMetadata(); s.GetState() == runtime.PodSandboxState_SANDBOX_READY {
			out[m.GetNamespace()+"/"+m.GetName()] = true
		}
	}
	return out, nil
}

func (r Runtime) list(ctx context.Context) ([]*runtime.PodSandbox, error) {
	socket, err := r.path()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("dial container runtime %s: %w", socket, err)
	}
	defer conn.Close()
	list, err := runtime.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of container runtime %s: %w", socket, err)
	}
	return list.GetItems(), nil
}
