package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
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

// Select returns the configuration with another device, and with the settings that come with it: the fields of by stand
// instead of its own, whatever the case of their keys, and one that is null is taken away. Settings may contradict the
// rest of the configuration: all is validated again, with the env that Parse was given.
func (c *Config) Select(env Env, by map[string]json.RawMessage) (*Config, error) {
	raw, err := replace(c.Raw, by)
	if err != nil {
		return nil, err
	}
	return Parse(raw, env)
}

// SelectInjected returns the configuration with another device instead of Injected, which must not be empty. Nothing
// else depends on which device it is, so that nothing is validated again.
func (c *Config) SelectInjected(id string, a device.Address) (*Config, error) {
	text, err := json.Marshal(id)
	if err != nil {
		return nil, fmt.Errorf("encode field %q: %w", "deviceID", err)
	}
	by := map[string]json.RawMessage{"deviceID": text, "pciBusID": text}
	if err := c.withRuntime(by, map[string]json.RawMessage{"deviceID": text}); err != nil {
		return nil, err
	}
	out := *c
	out.Injected, out.Selector.Value, out.Selector.Address = id, id, a
	if c.FromClaim {
		out.DeviceID = id
	}
	out.Raw, err = replace(c.Raw, by)
	return &out, err
}

// withRuntime adds to the fields of by the runtimeConfig of the configuration, if it has one, with other values for
// those of its members that set names, in any case; nil takes a member away.
func (c *Config) withRuntime(by, set map[string]json.RawMessage) (err error) {
	for _, m := range split(c.Raw[skipSpace(c.Raw, 0):]) {
		name, _, _ := lookup(m.written)
		if name != "runtimeConfig" || m.raw[0] != '{' {
			continue
		}
		runtime := map[string]json.RawMessage{}
		for _, m := range split(m.raw) {
			runtime[m.written] = m.raw
			for key, text := range set {
				if !strings.EqualFold(m.written, key) {
					continue
				}
				if runtime[m.written] = text; text == nil {
					delete(runtime, m.written)
				}
			}
		}
		if by[name], err = json.Marshal(runtime); err != nil {
			return fmt.Errorf("encode field %q: %w", name, err)
		}
	}
	return nil
}

// replace puts fields into the text of a configuration. An IPAM plugin reads it, and the journal keeps it.
func replace(raw []byte, by map[string]json.RawMessage) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, &Error{Code: CodeDecode, Problem: "not valid JSON", Err: err}
	}
	for key, text := range by {
		name, _, _ := lookup(key)
		maps.DeleteFunc(fields, func(written string, _ json.RawMessage) bool {
			is, _, _ := lookup(written)
			return is == name
		})
		if !isNull(text) {
			fields[name] = text
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil, &Error{Code: CodeDecode, Problem: "not valid JSON", Err: err}
	}
	return out, nil
}

// OtherPort returns the configuration of the interface of another port of the RDMA device: it is selected by its own
// bus address, and has nothing to do with the RDMA device, which moves with the first one. env has the name that it
// gets.
func (c *Config) OtherPort(env Env, a device.Address) (*Config, error) {
	id, err := json.Marshal(a.ID())
	if err != nil {
		return nil, fmt.Errorf("encode field %q: %w", "deviceID", err)
	}
	by := map[string]json.RawMessage{
		"mode": json.RawMessage(`"device"`), "rdma": json.RawMessage(`"none"`), "deviceID": id,
	}
	for _, key := range []string{
		"allPorts", "rdmaIsolation", "rdmaName", "tos", "roceMode", "trafficClass", "pkey", "allocation", "prevResult",
		"pciBusID", "device", "hwaddr", "kernelpath", "rdmaDevice", "guid",
	} {
		by[key] = json.RawMessage("null")
	}
	// What the runtime says of the device is about the first interface.
	if err := c.withRuntime(by, map[string]json.RawMessage{"deviceID": nil, "CNIDeviceInfoFile": nil}); err != nil {
		return nil, err
	}
	return c.Select(env, by)
}
