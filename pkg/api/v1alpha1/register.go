package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all objects of this package.
var GroupVersion = schema.GroupVersion{Group: "fabric.dev", Version: "v1alpha1"}

// Resources of the API server.
var (
	Fabrics     = GroupVersion.WithResource("fabrics")
	FabricNodes = GroupVersion.WithResource("fabricnodes")
)

// AddToScheme registers the objects of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Fabric{}, &FabricList{}, &FabricNode{}, &FabricNodeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
