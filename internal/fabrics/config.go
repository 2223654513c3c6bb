package fabrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Here is the part of a fabric's configuration that depends on the node.
type Here struct {
	Master  string         // mode shared: the parent interface of the IPoIB children; none with allocation DRA
	Own     []netip.Prefix // nodeRanges: the node's ranges, in the order of the fabric's
	IPAMDir string         // nodeRanges: the directory in which host-local records the addresses that it has given
}

// OfNode returns whether the fabric's configuration is a file of each node: then its definition has none.
func (f *Fabric) OfNode() bool { return f.Mode == v1alpha1.Shared || f.NodeRanges != nil }

// Config is the fabric's network configuration.
func (f *Fabric) Config(h Here) ([]byte, error) {
	c := map[string]any{"cniVersion": "1.0.0", "type": "fabric"}
	if f.Mode == v1alpha1.Exclusive { // Multus names a device of the pod, and the plugin says which one it is
		c["capabilities"] = map[string]any{"deviceID": true, "CNIDeviceInfoFile": true}
	} else {
		c["mode"], c["master"] = "ipoib", h.Master
		if h.Master == "" && f.Allocation == v1alpha1.DRA { // it is that of the device that the pod was given
			delete(c, "master")
		}
	}
	maps.Copy(c, f.Network)
	if f.Allocation == v1alpha1.DRA {
		c["allocation"] = netconf.AllocationDRA
	}
	if f.NodeRanges != nil {
		if len(h.Own) != len(f.NodeRanges.Ranges) {
			return nil, fmt.Errorf("fabric %s: %d ranges of this node, want %d", f.Name, len(h.Own),
				len(f.NodeRanges.Ranges))
		}
		var sets [][]map[string]string
		for i, own := range h.Own {
			sets = append(sets, []map[string]string{hostLocal(&f.NodeRanges.Ranges[i], own)})
		}
		c["ipam"] = map[string]any{"type": "host-local", "dataDir": h.IPAMDir, "ranges": sets}
	}
	c["name"] = f.Name
	return json.MarshalIndent(c, "", "  ")
}

func hostLocal(r *noderange.Range, own netip.Prefix) map[string]string {
	first, last := r.Bounds(own)
	return map[string]string{
		"subnet": r.Prefix.String(), "rangeStart": first.String(), "rangeEnd": last.String(),
	}
}

// Netconf has the plugin's own parser read the configuration of the fabric, as an ADD would have it. What depends on
// the node is made up. An error is what the plugin would say to the first pod.
func (f *Fabric) Netconf() (*netconf.Config, error) {
	here := Here{Master: "ib0"}
	if f.NodeRanges != nil {
		for _, r := range f.NodeRanges.Ranges {
			here.Own = append(here.Own, netip.PrefixFrom(r.Prefix.Addr(), r.Bits))
		}
	}
	b, err := f.Config(here)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if f.Mode == v1alpha1.Exclusive { // Multus adds it to the configuration of a pod
		b = append([]byte(`{"pciBusID":"0000:00:00.0",`), b[1:]...)
	}
	env := netconf.Env{
		Command: "ADD", ContainerID: "check", IfName: "net1", Netns: "/run/netns/check", Path: "/opt/cni/bin",
	}
	c, err := netconf.Parse(b, env)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	return c, nil
}

// Definitions are Multus's objects.
var Definitions = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

// Annotations and labels of a NetworkAttachmentDefinition.
const (
	ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	ManagedBy          = "app.kubernetes.io/managed-by"
	Manager            = "fabric-agent"
)

// Definition is the fabric's NetworkAttachmentDefinition in a namespace, which is the same for every node. In mode
// shared and with nodeRanges it has no configuration, so that Multus takes the file of that name on the node. It goes
// with its owner.
func (f *Fabric) Definition(namespace string, owner metav1.OwnerReference) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	if !f.OfNode() {
		b, err := f.Config(Here{})
		if err != nil {
			return nil, err
		}
		u.Object["spec"] = map[string]any{"config": string(b)}
	}
	u.SetGroupVersionKind(Definitions)
	u.SetNamespace(namespace)
	u.SetName(f.Name)
	u.SetLabels(map[string]string{ManagedBy: Manager})
	u.SetAnnotations(map[string]string{ResourceAnnotation: f.Resource()})
	u.SetOwnerReferences([]metav1.OwnerReference{owner})
	return u, nil
}
