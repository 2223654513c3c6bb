package fabrics

import (
	"encoding/json"
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// rdmaModes are the plugin's words for the RDMA modes of a Fabric.
var rdmaModes = map[v1alpha1.RDMAMode]netconf.RDMAPolicy{
	v1alpha1.RDMAAny: netconf.RDMAAuto, v1alpha1.RDMAExclusive: netconf.RDMAExclusive,
	v1alpha1.RDMAShared: netconf.RDMAShared, v1alpha1.RDMAIgnore: netconf.RDMANone,
}

// ipoibModes are the plugin's words for the modes of an IPoIB interface.
var ipoibModes = map[v1alpha1.IPoIBMode]string{v1alpha1.Datagram: "datagram", v1alpha1.Connected: "connected"}

// roceModes are the plugin's words for the versions of RoCE.
var roceModes = map[v1alpha1.RoCEMode]string{v1alpha1.RoCEv1: "v1", v1alpha1.RoCEv2: "v2"}

// Settings returns settings of a Fabric's network, or of an InterfaceConfig, as the plugin's configuration has them:
// most have the same name there.
func Settings(api any) (out map[string]any, err error) {
	b, err := json.Marshal(api)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, err
	}
	if m, ok := out["rdmaMode"].(string); ok {
		word, ok := rdmaModes[v1alpha1.RDMAMode(m)]
		if !ok {
			return nil, fmt.Errorf("rdmaMode %q: must be Any, Exclusive, Shared or Ignore", m)
		}
		delete(out, "rdmaMode")
		out["rdma"] = string(word)
	}
	if m, ok := out["ipoibMode"].(string); ok {
		word, ok := ipoibModes[v1alpha1.IPoIBMode(m)]
		if !ok {
			return nil, fmt.Errorf("ipoibMode %q: must be Datagram or Connected", m)
		}
		out["ipoibMode"] = word
	}
	if m, ok := out["roceMode"].(string); ok {
		word, ok := roceModes[v1alpha1.RoCEMode(m)]
		if !ok {
			return nil, fmt.Errorf("roceMode %q: must be V1 or V2", m)
		}
		out["roceMode"] = word
	}
	if on, ok := out["sourceBasedRouting"]; ok {
		delete(out, "sourceBasedRouting")
		out["routing"] = map[string]any{"sourceBased": on}
	}
	return out, nil
}
