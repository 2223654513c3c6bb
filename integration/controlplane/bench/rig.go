package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// rig is an API server with Nodes, without anybody who asks it for anything.
type rig struct {
	dir    string
	server *controlplane.Server
	meter  *meter
	tokens map[string]string // of service accounts; without one an account acts as administrator
}

// newRig starts one, with the Nodes from number 0 on.
func newRig(ctx context.Context, nodes int) (*rig, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	// Without compaction etcd's growth is the size of all that was written.
	server, err := controlplane.Start(ctx, dir, "--etcd-compaction-interval=0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &rig{dir: dir, server: server, meter: &meter{server}}
	err = server.Apply(ctx, "deployments/helm/fabric-cni/crds/fabric.dev_*.yaml", server.Manifests()+"/*")
	if err == nil {
		err = r.makeNodes(ctx, 0, nodes)
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) stop() error {
	r.server.Stop()
	return os.RemoveAll(r.dir)
}

// addFabrics adds eight Fabrics with node ranges, one for each rail.
func (r *rig) addFabrics(ctx context.Context) error {
	for i := range nFabrics {
		if err := r.addFabric(ctx, i, 4092); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) addFabric(ctx context.Context, i, mtu int) error {
	return r.server.ApplyText(ctx, []byte(fabrics.Object(fabricName(i), fmt.Sprintf(
		`{match: {linkLayer: InfiniBand, rail: %d}, network: {mtu: %d},
		  addresses: {nodeRanges: {ranges: [{range: 10.%d.0.0/13, perNodePrefixLength: 26}]}}}`, i, mtu, 8*i))))
}

// namespace is that of the manifests.
const namespace = "fabric-system"

// install installs what the agent and the controller need, as a cluster does. The API server limits how much it does
// at once for a service account; for an administrator it does not.
func (r *rig) install(ctx context.Context) error {
	base := "deployments/base/"
	if err := r.server.Apply(ctx, base+"namespace.yaml", base+"rbac.yaml", base+"controller.yaml"); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(r.server.Config)
	if err != nil {
		return err
	}
	r.tokens = map[string]string{}
	for _, account := range []string{"fabric-agent", "fabric-controller"} {
		seconds := int64((12 * time.Hour).Seconds())
		t, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		r.tokens[account] = t.Status.Token
	}
	return nil
}

func (r *rig) token(account string) string {
	return cmp.Or(r.tokens[account], r.server.Config.BearerToken)
}

// config is that of an agent, with client-go's own rate limits: 5 requests a second.
func (r *rig) config() *rest.Config {
	return &rest.Config{Host: r.server.Config.Host, BearerToken: r.token("fabric-agent"),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// makeNodes makes the Nodes from the one number up to the other.
func (r *rig) makeNodes(ctx context.Context, from, to int) error {
	client, err := kubernetes.NewForConfig(r.server.Config)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	tokens := make(chan struct{}, 16)
	for i := from; i < to; i++ {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			if _, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}

// node is a Node as large as that of a GPU machine is: kubelet tells up to 50 images, and feature discovery has many
// labels. Most images are the same on all Nodes, which matters to compression.
func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{}}}
	n.Status.Capacity = corev1.ResourceList{}
	for j := range 40 {
		image := j
		if j < 10 {
			image = 100*i + j
		}
		n.Labels[fmt.Sprintf("feature.node.kubernetes.io/something-that-was-found-%d", j)] = "true"
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 30, Names: []string{
			fmt.Sprintf("registry.example/team/image-%d@sha256:%x", image, sha256.Sum256(fmt.Append(nil, image))),
			fmt.Sprintf("registry.example/team/image-%d:v1.2.3", image),
		}})
	}
	for j := range nFabrics {
		n.Status.Capacity[corev1.ResourceName("fabric.dev/"+fabricName(j))] = resource.MustParse("1")
	}
	for _, c := range []corev1.NodeConditionType{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: "False",
			Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()})
	}
	return n
}

// describe says how large the objects are.
func describe() (string, error) {
	s, err := machine()
	if err != nil {
		return "", err
	}
	status, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	n, err := json.Marshal(node(0))
	return fmt.Sprintf("A Node has %d bytes of JSON, the status of a FabricNode %d, of which its inventory is %d.",
		len(n),
		len(status), len(s.Inventory.Raw)), err
}

func name(i int) string { return fmt.Sprintf("gpu-%04d", i) }

func fabricName(i int) string { return fmt.Sprintf("rail-%d", i) }

// kubeconfig writes a file for processes.
func (r *rig) kubeconfig(account string) (string, error) {
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
	  "clusters": [{"name": "x", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
	  "users": [{"name": "x", "user": {"token": %q}}],
	  "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}`,
		r.server.Config.Host, r.token(account))
	file := filepath.Join(r.dir, account)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// memory is that of a process in MiB: now, and at its peak.
func memory(pid int) (now, peak int) {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int
		if k, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); k == 1 {
			now = kb / 1024
		}
		if k, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); k == 1 {
			peak = kb / 1024
		}
	}
	return now, peak
}

// memory describes that of the API server and of etcd.
func (r *rig) memory() string {
	p := r.server.Processes()
	_, api := memory(p["kube-apiserver"])
	_, etcd := memory(p["etcd"])
	return fmt.Sprintf("API server: %d MiB at its peak, etcd: %d MiB", api, etcd)
}

// until waits for something that takes seconds or minutes.
func until(ctx context.Context, what string, most time.Duration, done func() bool) (time.Duration, error) {
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Since(began) > most {
			return 0, fmt.Errorf("%s: not within %s", what, most)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	return time.Since(began), nil
}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
