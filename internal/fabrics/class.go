package fabrics

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Classes are the kind by which ResourceClaims ask for devices. Kubernetes 1.34 is the first that serves this version.
var Classes = schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"}

// Class is the DeviceClass of a fabric's devices. It goes with its owner. Pods that ask for the resource get the same
// devices where the API server has the feature gate DRAExtendedResource; one without it drops the name of the resource.
func (f *Fabric) Class(owner metav1.OwnerReference) *unstructured.Unstructured {
	cel := fmt.Sprintf(`device.driver == %q && device.attributes[%q].fabric == %q`, Driver, Driver, f.Name)
	return class(f.DeviceClass(), cel, map[string]any{ExtendedResource: f.Resource()}, owner)
}

// ExtendedResource is the field of a DeviceClass's spec with the resource by which pods get its devices as well.
const ExtendedResource = "extendedResourceName"

// AllClass is the DeviceClass of all devices of the driver, which goes with the last of its owners.
func AllClass(owners ...metav1.OwnerReference) *unstructured.Unstructured {
	return class(Driver, fmt.Sprintf(`device.driver == %q`, Driver), map[string]any{}, owners...)
}

func class(name, cel string, spec map[string]any, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	spec["selectors"] = []any{map[string]any{"cel": map[string]any{"expression": cel}}}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(Classes)
	u.SetName(name)
	u.SetLabels(map[string]string{ManagedBy: Manager})
	u.SetOwnerReferences(owners)
	return u
}
