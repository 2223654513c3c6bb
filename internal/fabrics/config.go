package fabrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// NodeParams is the part of a fabric's configuration that depends on the node.
type NodeParams struct {
	Master  string         // attachment IPoIBChild: the parent interface; none with allocation DRA
	Own     []netip.Prefix // nodeRanges: the node's ranges, in the order of the fabric's
	Several bool           // a node has several devices of the fabric
	IPAMDir string         // nodeRanges: the directory in which host-local records the addresses that it has given
}

// OfNode returns whether the fabric's configuration is a file of each node: then its definition has none. With the
// host's addresses it says what the plugin believes only the agent.
func (f *Fabric) OfNode() bool {
	return f.Attachment == v1alpha1.IPoIBChild || f.NodeRanges != nil || f.Host != nil
}

// Config is the fabric's network configuration.
func (f *Fabric) Config(h NodeParams) ([]byte, error) {
	c := map[string]any{}
	if f.Attachment == v1alpha1.IPoIBChild {
		c["mode"] = string(netconf.ModeIPoIB)
		if h.Master != "" || f.Allocation != v1alpha1.DRA { // with DRA the pod's device determines it
			c["master"] = h.Master
		}
	}
	if (h.Several || f.AllPorts) && f.Attachment == v1alpha1.WholeDevice {
		c["routing"] = map[string]any{"sourceBased": true}
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
	return Configuration(f.Name, c)
}

// Configuration writes the network configuration that consists of these settings of the plugin and, in a chain, of the
// plugins behind it. Every configuration that this project writes comes from here.
func Configuration(name string, settings map[string]any, chain ...any) ([]byte, error) {
	c := map[string]any{"type": "fabric"}
	maps.Copy(c, settings)
	if takesDevice(c) { // Multus names a device of the pod, and the plugin says which one it is
		all := map[string]any{"deviceID": true, "CNIDeviceInfoFile": true}
		own, _ := c["capabilities"].(map[string]any)
		maps.Copy(all, own)
		c["capabilities"] = all
	}
	if len(chain) > 0 {
		c = map[string]any{"plugins": append([]any{c}, chain...)}
	}
	head, err := json.Marshal(struct {
		Version string `json:"cniVersion"` // runtimes call CHECK from 0.4.0
		Name    string `json:"name"`
		Type    any    `json:"type,omitempty"`
	}{"1.0.0", name, c["type"]})
	if err != nil {
		return nil, err
	}
	delete(c, "type")
	rest, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, slices.Concat(head[:len(head)-1], []byte(","), rest[1:]), "", "  ")
	return b.Bytes(), err
}

func takesDevice(c map[string]any) bool {
	return c["type"] == "fabric" && c["mode"] != string(netconf.ModeIPoIB)
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
	here := NodeParams{Master: "ib0"}
	if f.NodeRanges != nil {
		for _, r := range f.NodeRanges.Ranges {
			here.Own = append(here.Own, netip.PrefixFrom(r.Prefix.Addr(), r.Bits))
		}
	}
	b, err := f.Config(here)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	c, err := Judge(b)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	return c, nil
}

// Judge has the plugin's own parser read what Configuration has written, with the device that Multus adds for a pod.
func Judge(conf []byte) (*netconf.Config, error) {
	var fields map[string]any
	if err := json.Unmarshal(conf, &fields); err != nil {
		return nil, err
	}
	if takesDevice(fields) {
		conf = append([]byte(`{"pciBusID":"0000:00:00.0",`), conf[1:]...)
	}
	return netconf.Parse(conf, netconf.Env{
		Command: "ADD", ContainerID: "check", IfName: "net1", Netns: "/run/netns/check", Path: "/opt/cni/bin",
	})
}

// Definitions are Multus's objects.
var Definitions = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

// Annotations and labels of a NetworkAttachmentDefinition.
const (
	ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	ManagedBy          = "app.kubernetes.io/managed-by"
	Manager            = "fabric-agent"
)

// Definition is the fabric's NetworkAttachmentDefinition in a namespace, which is the same for every node. Where
// OfNode is true it has no configuration, so that Multus takes the file of that name on the
// node. It goes with its owner. several says that a node has several devices of the fabric.
func (f *Fabric) Definition(
	namespace string, owner metav1.OwnerReference, several bool,
) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	if !f.OfNode() {
		b, err := f.Config(NodeParams{Several: several})
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
