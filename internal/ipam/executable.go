package ipam

import (
	"encoding/json"
	"slices"
)

// Executable returns the type of the IPAM plugin that ADD would execute for a network configuration. It is empty if the
// configuration has no section ipam, or if a built-in plugin serves it. If there is a built-in one that can't, key is
// the key of the section that it does not know.
func Executable(conf []byte) (typ, key string) {
	var c struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if json.Unmarshal(conf, &c) != nil || c.IPAM.Type == "" {
		return "", ""
	}
	b, key := Delegate{Type: c.IPAM.Type, Conf: conf}.builtin()
	if b != nil {
		return "", ""
	}
	return c.IPAM.Type, key
}

// Names are the names of the IPAM plugins that the documentation names: a misspelt name may mean one of them.
func Names() []string {
	out := []string{"nv-ipam"}
	for _, t := range known {
		out = append(out, t.Name)
	}
	slices.Sort(out)
	return out
}
