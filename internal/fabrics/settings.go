package fabrics

import (
	"encoding/json"
	"errors"
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
	err = errors.Join(
		word(out, "rdmaMode", "rdma", rdmaModes, "Any, Exclusive, Shared or Ignore"),
		word(out, "ipoibMode", "ipoibMode", ipoibModes, "Datagram or Connected"),
		word(out, "roceMode", "roceMode", roceModes, "V1 or V2"),
	)
	if err != nil {
		return nil, err
	}
	if on, ok := out["sourceBasedRouting"]; ok {
		delete(out, "sourceBasedRouting")
		out["routing"] = map[string]any{"sourceBased": on}
	}
	return out, nil
}

// word replaces the API's word for a setting by the plugin's, which may have another name for the field.
func word[A, P ~string](settings map[string]any, field, plugins string, words map[A]P, allowed string) error {
	m, ok := settings[field].(string)
	if !ok {
		return nil
	}
	w, ok := words[A(m)]
	if !ok {
		return fmt.Errorf("%s %q: must be %s", field, m, allowed)
	}
	delete(settings, field)
	settings[plugins] = string(w)
	return nil
}
