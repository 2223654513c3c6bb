// Package helm has files of the chart that programs use as well.
package helm

import _ "embed"

// Fabrics is the CustomResourceDefinition of the kind Fabric, which make generate writes.
//
//go:embed fabric-cni/crds/fabric.dev_fabrics.yaml
var Fabrics []byte

// Label is the template of the policies of one label: docs/label.md. internal/podlabel says what it takes.
//
//go:embed fabric-cni/files/label.yaml
var Label string
