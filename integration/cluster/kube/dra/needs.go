//go:build never

// Package dra is where scripts/cluster-setup.sh compiles Kubernetes' tests of DRA drivers for integration/cluster: their
// sources, changed a little, are laid over this directory.
package dra

import _ "k8s.io/kubernetes/test/e2e/dra" // what they need is that of go.mod
