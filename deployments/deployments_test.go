// Package deployments_test tests that what the manifests configure is what the programs understand.
package deployments_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// documents are the objects of a YAML file.
func documents(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n---\n")
}

// overlays are the Fabrics of the overlays.
func overlays(t *testing.T) (out []fabrics.Fabric) {
	t.Helper()
	files, err := filepath.Glob("overlays/*/fabrics.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		for _, text := range documents(t, file) {
			o := &v1alpha1.Fabric{}
			if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			f, err := fabrics.Parse(o)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, *f)
		}
	}
	return out
}

// What the API server can't see of the Fabrics of the overlays is right as well.
func TestFabrics(t *testing.T) {
	all := overlays(t)
	for i := range all {
		if err := all[i].CheckCapacity(64, 8); err != nil {
			t.Errorf("%s: %v", all[i].Name, err)
		}
		for j := range all[:i] {
			if err := fabrics.Overlap(&all[i], &all[j]); err != nil {
				t.Errorf("%s and %s: %v", all[i].Name, all[j].Name, err)
			}
		}
	}
}

// The examples ask for resources and networks that the overlays define.
func TestExamples(t *testing.T) {
	known := map[string]bool{}
	for _, f := range overlays(t) {
		known[f.Resource()], known[f.Name] = true, true
	}
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	resource := regexp.MustCompile(`fabric\.dev/[a-z0-9-]+`)
	class := regexp.MustCompile(`deviceClassName: ([a-z0-9-]+)\.fabric\.dev`)
	networks := regexp.MustCompile(`k8s\.v1\.cni\.cncf\.io/networks: "?([^"#}\n]+)`)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := slices.DeleteFunc(resource.FindAllString(string(b), -1), func(name string) bool {
			return name == v1alpha1.GroupVersion.String()
		})
		for _, m := range class.FindAllStringSubmatch(string(b), -1) {
			names = append(names, m[1])
		}
		for _, m := range networks.FindAllStringSubmatch(string(b), -1) {
			for _, network := range strings.Split(m[1], ",") {
				name, _, _ := strings.Cut(network, "@")
				names = append(names, strings.TrimSpace(name))
			}
		}
		if len(names) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: no overlay has %s", file, name)
			}
		}
	}
}

// kubelet asks the agent in its container: who takes a port of the node must not be able to answer in its place.
func TestAgentProbes(t *testing.T) {
	b, err := os.ReadFile("helm/fabric-cni/templates/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ready", "health"} {
		if !strings.Contains(string(b), "exec: {command: [/usr/bin/fabric-agent, "+command+"]}") {
			t.Errorf("no probe by fabric-agent %s", command)
		}
	}
	for _, network := range []string{"httpGet", "tcpSocket", "grpc:"} {
		if strings.Contains(string(b), network) {
			t.Errorf("a probe by %s", network)
		}
	}
}
