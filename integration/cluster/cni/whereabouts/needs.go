//go:build never

// Package whereabouts is where scripts/cluster-setup.sh compiles whereabouts' e2e for integration/cluster: their sources,
// changed a little, are laid over this directory.
package whereabouts

import ( // what they need is that of go.mod
	_ "github.com/k8snetworkplumbingwg/whereabouts/cmd/controlloop"
	_ "github.com/k8snetworkplumbingwg/whereabouts/cmd/nodeslicecontroller"
	_ "github.com/k8snetworkplumbingwg/whereabouts/pkg/api/whereabouts.cni.cncf.io/v1alpha1"
	_ "github.com/k8snetworkplumbingwg/whereabouts/pkg/generated/clientset/versioned"
	_ "github.com/k8snetworkplumbingwg/whereabouts/pkg/storage/kubernetes"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
)
