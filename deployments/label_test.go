package deployments_test

import (
	"os"
	"strings"
	"testing"

	k8syaml "sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/podlabel"
	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// The directory label has the policies of the Fabrics in overlays/exclusive.
func TestLabel(t *testing.T) {
	b, err := os.ReadFile("overlays/exclusive/fabrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []*fabrics.Fabric
	for _, text := range strings.Split(string(b), "\n---\n") {
		o := &v1alpha1.Fabric{}
		if err := k8syaml.UnmarshalStrict([]byte(text), o); err != nil {
			t.Fatal(err)
		}
		f, err := fabrics.Parse(o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	text, err := podlabel.Policy(list, podlabel.Options{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "label/policy.yaml", text)
}
