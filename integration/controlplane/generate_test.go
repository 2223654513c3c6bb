package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// ctl is fabricctl with a kubeconfig of the API server.
type ctl struct{ dir string }

func newCtl(t *testing.T) *ctl {
	t.Helper()
	c := &ctl{dir: t.TempDir()}
	if err := os.Symlink(built(t, "fabricctl"), filepath.Join(c.dir, "fabricctl")); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":
		{"cluster":"a","user":"a"}}],"clusters":[{"name":"a","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
		"users":[{"name":"a","user":{"token":%q}}]}`, server.Config.Host, server.Config.BearerToken)
	if err := os.WriteFile(filepath.Join(c.dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs fabricctl, and returns its exit status and what it prints.
func (c *ctl) run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.dir, "fabricctl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "config"), "HOME="+c.dir)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), diag.String()
}

// says runs fabricctl, and looks for texts in what it prints.
func (c *ctl) says(t *testing.T, status int, want []string, args ...string) {
	t.Helper()
	got, out, diag := c.run(t, args...)
	if got != status {
		t.Errorf("fabricctl %v: exit status %d, want %d", args, got, status)
	}
	for _, w := range want {
		if !strings.Contains(out+diag, w) {
			t.Errorf("fabricctl %v: no %q in:\n%s%s", args, w, out, diag)
		}
	}
}

// The API server takes what generate fabric writes of every recorded machine, unknown fields included.
func TestGeneratedFabrics(t *testing.T) {
	c, client := newCtl(t), whole(t)
	removeFabrics(t, client)
	for _, m := range []string{"h20", "roce", "gb200", "v100", "a100"} {
		dir := filepath.Join(c.dir, m)
		if err := machines.Named(m).Plant(dir); err != nil {
			t.Fatal(err)
		}
		status, text, diag := c.run(t, "generate", "fabric", "--range", "198.18.0.0/18", "--exclude", "198.18.0.0/28",
			dir)
		if status != 0 {
			t.Fatalf("%s: %s", m, diag)
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			o := &v1alpha1.Fabric{}
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Fatalf("%s: %v", m, err)
			}
			if err := server.Create(t.Context(), []byte(doc)); err != nil {
				t.Errorf("%s: %v in:\n%s", m, err, doc)
				continue
			}
			if err := client.Delete(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
	}
}

// The API server takes the claims that are generated: their selectors compile, and requests, constraints and pods fit
// together.
func TestGeneratedClaims(t *testing.T) {
	c := newCtl(t)
	for _, o := range []string{ // there is no controller manager to make the account
		"{apiVersion: v1, kind: Namespace, metadata: {name: claims}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: claims}}",
	} {
		if err := server.Create(t.Context(), []byte(o)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, m := range []string{"h20", "a100", "gb200"} {
		dir := filepath.Join(c.dir, m)
		if err := machines.Named(m).Plant(dir); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"claim", "--with-pod"}, {"claim", "--per-rail", "--min-rate", "100"},
			{"claim", "--gpu-class", "gpu.nvidia.com", "--with-pod"}, {"perftest-pods", "--allocation", "dra"}} {
			if m == "gb200" && slices.Contains(args, "--gpu-class") {
				continue // no rail has its PCIe root in common with a GPU
			}
			n++
			status, text, diag := c.run(t, slices.Concat([]string{"generate"}, args,
				[]string{"-n", "claims", "--name", fmt.Sprintf("claim-%d", n), dir})...)
			if status != 0 || !strings.HasPrefix(text, "apiVersion: resource.k8s.io/v1\n") {
				t.Fatalf("%s %v: %s%s", m, args, diag, text)
			}
			for doc := range strings.SplitSeq(text, "\n---\n") {
				if err := server.Create(t.Context(), []byte(doc)); err != nil {
					t.Errorf("%s %v: %v in:\n%s", m, args, err, doc)
				}
			}
			bad := strings.Replace(text, `.rail == `, `.rail = `, 1)
			if bad == text {
				bad = strings.Replace(text, "deviceClassName", "className", 1)
			}
			bad, _, _ = strings.Cut(strings.Replace(bad, "name: claim-", "name: bad-claim-", 1), "\n---\n")
			if server.Create(t.Context(), []byte(bad)) == nil {
				t.Errorf("the API server takes\n%s", bad)
			}
		}
	}
}

// doctor pod reads a pod and what it depends on from the API server, and says why it waits.
func TestDoctorOfClaims(t *testing.T) {
	c := newCtl(t)
	objects := []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: claimed}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: claimed}}",
		"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: ib-400g.fabric.dev}, " +
			"spec: {selectors: [{cel: {expression: 'device.driver == \"fabric.dev\"'}}]}}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: ctl-1}, spec: {driver: fabric.dev, " +
			"nodeName: ctl-1, pool: {name: ctl-1, generation: 1, resourceSliceCount: 1}, devices: [" +
			"{name: pci-a, attributes: {fabric: {string: ib-400g}}}, {name: pci-b, attributes: {fabric: {string: " +
			"ib-400g}}}]}}",
	}
	dir := filepath.Join(c.dir, "h20")
	if err := machines.Named("h20").Plant(dir); err != nil {
		t.Fatal(err)
	}
	_, text, _ := c.run(t, "generate", "claim", "--with-pod", "-n", "claimed", "--name", "train", dir)
	for _, o := range append(objects, strings.Split(text, "\n---\n")...) {
		if err := server.Create(t.Context(), []byte(o)); err != nil {
			t.Fatalf("%v in %s", err, o)
		}
	}
	c.says(t, 3, []string{
		`FAIL  pod-claim  claim "rails": Kubernetes has not made it of the ResourceClaimTemplate "train" yet`,
		`FAIL  pod-claim-allocated  claim "rails", request "ib-400g": no node has 4 devices of fabric ib-400g with ` +
			`state ` +
			"Active: 1 node has 2",
	}, "doctor", "pod", "claimed/train")
	before, after, _ := strings.Cut(text, "ResourceClaimTemplate")
	claim := before + "ResourceClaim" + strings.Replace(after, "\n  spec:\n", "\n", 1)
	claim, _, _ = strings.Cut(claim, "\n---\n")
	if err := server.Create(t.Context(), []byte(claim)); err != nil {
		t.Fatalf("%v in %s", err, claim)
	}
	pod := &corev1.Pod{}
	client := whole(t)
	if err := client.Get(t.Context(), types.NamespacedName{Namespace: "claimed", Name: "train"}, pod); err != nil {
		t.Fatal(err)
	}
	name := "train"
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "rails", ResourceClaimName: &name}}
	if err := client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	c.says(t, 3, []string{
		`FAIL  pod-claim-allocated  claim claimed/train, request "ib-400g": no node has 4 devices of fabric ib-400g ` +
			`with ` +
			"state Active: 1 node has 2",
		"OK    pod-claim-class  all there",
	}, "doctor", "pod", "--all", "claimed/train")
}

// fabricctl reads what agents and the controller have written from a real API server.
func TestCtlOfCluster(t *testing.T) {
	c, client := newCtl(t), whole(t)
	if err := client.DeleteAllOf(t.Context(), &v1alpha1.FabricNode{}); err != nil { // of other tests
		t.Fatal(err)
	}
	c.says(t, 3, []string{
		"FAIL  cluster-controller  "},
		"doctor", "cluster")

	dir := filepath.Join(c.dir, "h20")
	if err := machines.Named("h20").Plant(dir); err != nil {
		t.Fatal(err)
	}
	_, picture, _ := c.run(t, "discover", "--root", dir, "-o", "json")
	var discovered struct{ Node json.RawMessage }
	if err := json.Unmarshal([]byte(picture), &discovered); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ctl-1", "ctl-2"} {
		n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Delete(context.Background(), n); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
		n.Status.Agent, n.Status.RDMAMode = "test", "exclusive"
		n.Status.Inventory = &runtime.RawExtension{Raw: discovered.Node}
		if err := client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	c.says(t, 0, []string{"ctl-1", "ctl-2", "ibs108", "fabric ib-400g"}, "discover", "--cluster")
	c.says(t, 0, []string{"node ctl-2, 7 RDMA devices"}, "discover", "--cluster", "ctl-2")
	c.says(t, 1, []string{"there is no FabricNode ctl-3 with an inventory"}, "discover", "--cluster", "ctl-3")
	c.says(t, 0, []string{"\nkind: Fabric\n", "linkLayer: InfiniBand", "range: 198.18.0.0/22",
		": 198.18.0.0/22 is free: compared with ", "ServiceCIDRs (1)"}, "generate", "fabric",
		"--cluster")
	c.says(t, 2, []string{" meets ServiceCIDR kubernetes (10.96.0.0/16)"}, "generate", "fabric",
		"--cluster", "--range", "10.96.64.0/20")
	c.says(t, 3, []string{"cluster-discovered  no Fabric has the ports of ib-400g (2 nodes, 4 rails)",
		"cluster-guids  ctl-1 mlx5_0:1 and ctl-2 mlx5_0:1"}, "doctor", "cluster")
}
