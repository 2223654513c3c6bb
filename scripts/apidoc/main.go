// Command apidoc writes the page of the reference, docs/reference/api.md, from the CustomResourceDefinitions: make
// generate. These come from the Go types in pkg/api, so that page, kubectl explain and API server say the same.
// The page has the CEL rules, defaults and bounds of the definitions; crd-ref-docs reads the types.
//
//	apidoc   at the root of the repository
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/scripts/refpage"
)

const out = "docs/reference/api.md"

func main() { refpage.Main("apidoc", out, page) }

// page is the whole page, from the definitions in the repository at root.
func page(root string) (string, error) {
	w := &writer{}
	w.f("%s", head)
	for _, plural := range []string{"fabrics", "fabricnodes"} {
		b, err := os.ReadFile(filepath.Join(root, "deployments/helm/fabric-cni/crds/fabric.dev_"+plural+".yaml"))
		if err != nil {
			return "", err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			return "", fmt.Errorf("read the definition of %s: %w", plural, err)
		}
		w.kind(crd)
	}
	return w.text.String(), nil
}

var head = strings.ReplaceAll(`# API reference

Written by 'make generate' from the Go types in 'pkg/api/v1alpha1'; do not edit. 'kubectl explain' prints the same.
Where a table names a default, the API server or the controller fills it in. "Refused" is what 'kubectl apply' says
to a wrong object. What only the controller can see, such as ranges that overlap, is a condition of the Fabric instead.
How the objects work together: [control-plane.md](control-plane.md).
`, "'", "`")
