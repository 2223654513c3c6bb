package netconf

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Pod is what CNI_ARGS says of the pod. The runtime has written it, in whatever form: nothing of it has been checked.
type Pod struct {
	UID, Namespace, Name string
}

// claim judges what may stand beside "allocation": "DRA": the device is one that a ResourceClaim has given to the pod.
func (p *parser) claim(s selectors) {
	c := p.cfg
	if !c.FromClaim {
		return
	}
	if len(s.addresses) > 0 {
		c.DeviceID, _ = p.text(s.addresses[0], wantAddress)
	}
	if c.Mode == ModeRDMA {
		p.fail(notAllowed(p.get("allocation"), `no "allocation" in mode "rdma": its device is that of the plugin `+
			`before it in the chain`))
		return
	}
	written := s.chosen
	if s.guid.ok() && len(s.addresses) == 0 {
		written = append(written, s.guid)
	}
	if len(written) > 0 {
		v := written[0]
		p.fail(&Error{
			Code: CodeConfig, Field: v.path, Value: shown(v.raw),
			Problem: `is a selector beside "allocation": "DRA"`,
			Allowed: "none: the device is one that a ResourceClaim has given to the pod",
			Hint:    "say in the claim which device it is to be, or leave \"allocation\" out",
		})
	}
}

// Override returns a configuration in which the fields of by stand instead of its own, whatever the case of their keys.
// A field of by that is null is taken away. What the fields mean is Parse's to judge.
func Override(stdin []byte, by map[string]json.RawMessage) ([]byte, error) {
	if err := checkJSON(stdin, maxStdin); err != nil {
		return nil, err
	}
	values := map[string]json.RawMessage{}
	for key, raw := range by {
		if !json.Valid(raw) {
			return nil, &Error{Code: CodeDecode, Field: shown([]byte(key)), Problem: "is not valid JSON"}
		}
		name, _, _ := lookup(key)
		values[name] = raw
	}
	out := []byte{'{'}
	add := func(key string, raw []byte) error {
		k, err := json.Marshal(key)
		if err != nil {
			return fmt.Errorf("encode field name: %w", err)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), raw...)
		return nil
	}
	for _, m := range split(stdin[skipSpace(stdin, 0):]) {
		name, _, _ := lookup(m.written)
		if _, ok := values[name]; ok {
			continue
		}
		if err := add(m.written, m.raw); err != nil {
			return nil, err
		}
	}
	keys := make([]string, 0, len(values))
	for key, raw := range values {
		if !isNull(raw) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := add(key, values[key]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// WithDevice returns a configuration with another device where Multus has put one.
func WithDevice(stdin []byte, id string) ([]byte, error) {
	device, err := json.Marshal(id)
	if err != nil {
		return nil, fmt.Errorf("encode field %q: %w", "deviceID", err)
	}
	by := map[string]json.RawMessage{"deviceID": device, "pciBusID": device}
	if err := checkJSON(stdin, maxStdin); err != nil {
		return nil, err
	}
	for _, m := range split(stdin[skipSpace(stdin, 0):]) {
		if name, _, _ := lookup(m.written); name == "runtimeConfig" && m.raw[0] == '{' {
			runtime := map[string]json.RawMessage{}
			for _, m := range split(m.raw) {
				runtime[m.written] = m.raw
				if strings.EqualFold(m.written, "deviceID") {
					runtime[m.written] = device
				}
			}
			if by[name], err = json.Marshal(runtime); err != nil {
				return nil, fmt.Errorf("encode field %q: %w", name, err)
			}
		}
	}
	return Override(stdin, by)
}
