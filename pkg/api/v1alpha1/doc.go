// Package v1alpha1 has the objects that people write and read with kubectl: Fabric, which describes one network of
// HCAs for all nodes, and FabricNode, which is what one node has of it. The CRDs in the chart are generated from
// these types, and so is docs/reference/api.md: a comment here is what `kubectl explain` prints.
//
// # Stability
//
// Other programs may import this package. As v1alpha1 says, fields may change with a minor version; CHANGELOG.md has
// each change and what to do about objects that exist.
//
// +kubebuilder:object:generate=true
// +groupName=fabric.dev
package v1alpha1
