// Package crds has the CustomResourceDefinitions in the files beside it, which make generate writes.
package crds

import _ "embed"

// Fabrics is the definition of the kind Fabric.
//
//go:embed fabric.dev_fabrics.yaml
var Fabrics []byte
