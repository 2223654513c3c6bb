package controlplane_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// fabricctl generate policy --cluster reads Fabrics, what most nodes have, and the version of the API from a real API
// server, and writes what this one takes. Without the gate it says what is missing.
func TestGeneratePolicy(t *testing.T) {
	program := built(t, "fabricctl")
	s, c := withGate(t, gate[0]+",DRAExtendedResource=true", gate[1])
	if err := s.Apply(t.Context(), manifests+"helm/fabric-cni/crds/fabric.dev_*.yaml"); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]string{"ib-200g": `{namespaces: {names: [ml]}}`, "dra": `{allocation: DRA}`} {
		if err := s.ApplyText(t.Context(), []byte(testfabrics.Object(name, spec))); err != nil {
			t.Fatal(err)
		}
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(s.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() string { // a kind is served a moment after its definition was made
		if err := objects.List(t.Context(), &v1alpha1.FabricNodeList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	addNode(t, objects, "gpu-1", "ib-200g")
	addNode(t, objects, "cpu-1")

	text, stderr := generatePolicy(t, s, program)
	if stderr != "" || !strings.HasPrefix(text, "# Without dra: allocation DRA, and its DeviceClass") {
		t.Fatalf("%.200s %s", text, stderr)
	}
	if err := s.ApplyText(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	tryPods(t, c, []labelled{
		{name: "all", labels: `{fabric.dev/rails: all}`, want: "ml/ib-200g a{ib-200g=1/1 IPC_LOCK}"},
		{name: "dra", labels: `{rails.fabric.dev/dra: "1"}`, want: "no such fabric: want rails.fabric.dev/ib-200g"},
		{name: "x", labels: `{fabric.dev/rails: x}`, want: `label fabric.dev/rails: "x": want 1 to 64, or all`},
	})

	// The controller has made the class, and the API server keeps the name of the resource.
	if err := s.ApplyText(t.Context(), []byte(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass,
	  metadata: {name: dra.fabric.dev}, spec: {extendedResourceName: fabric.dev/dra}}`)); err != nil {
		t.Fatal(err)
	}
	if text, stderr = generatePolicy(t, s, program); !strings.Contains(text, "rails.fabric.dev/dra") {
		t.Errorf("%.200s %s", text, stderr)
	}

	s, _ = withGate(t, oldest)
	if err := s.Apply(t.Context(), manifests+"helm/fabric-cni/crds/fabric.dev_*.yaml"); err != nil {
		t.Fatal(err)
	}
	until(t, func() string {
		_, stderr := generatePolicy(t, s, program)
		if strings.Contains(stderr, "does not serve MutatingAdmissionPolicy: Kubernetes does since 1.36") {
			return ""
		}
		return "without the gate: " + stderr
	})
}

// generatePolicy is what fabricctl prints, and what it complains of.
func generatePolicy(t *testing.T, s *controlplane.Server, program string) (text, complaint string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "generate", "policy", "--cluster")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigOf(t, s.Config.Host, s.Config.BearerToken),
		"HOME="+t.TempDir())
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && stderr.Len() == 0 {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String()
}
