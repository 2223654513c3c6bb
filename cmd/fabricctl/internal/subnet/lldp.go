package subnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// neighbour is what LLDP tells of the other end of a cable, unverified.
type neighbour struct{ iface, chassis, system, port string }

// lldp reads lldpctl -f json or networkctl lldp --json of one node.
func (g *Graph) lldp(text []byte, node string) error {
	if node == "" {
		return errors.New("LLDP is of one node, and the file's name has to be the node's: gpu-1.json")
	}
	var top struct {
		LLDP *struct {
			Interface json.RawMessage `json:"interface"`
		} `json:"lldp"`
		Neighbors []struct {
			InterfaceName string
			Neighbors     []struct{ ChassisID, PortID, SystemName string }
		}
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("%w: %w", errFormat, err)
	}
	if top.LLDP == nil && top.Neighbors == nil {
		return errFormat
	}
	var list []neighbour
	if top.LLDP != nil {
		list = lldpctl(top.LLDP.Interface)
	}
	for _, i := range top.Neighbors {
		for _, n := range i.Neighbors {
			list = append(list, neighbour{i.InterfaceName, n.ChassisID, n.SystemName, n.PortID})
		}
	}
	for _, n := range list {
		if n.iface == "" || n.chassis == "" {
			continue
		}
		sw, err := g.sw("lldp:" + clipped(strings.ToLower(n.chassis)))
		if err != nil {
			return err
		}
		p, err := g.port(clipped(node + "/" + n.iface))
		if err != nil {
			return err
		}
		if p.Switch != nil && p.Switch != sw {
			continue // two neighbours on one cable: the first, a bridge between them forwards
		}
		sw.Desc = clipped(n.system)
		p.Node, p.HCA, p.Netdev, p.ethernet = node, clipped(n.iface), clipped(n.iface), true
		p.Switch, p.SwitchPort = sw, clipped(n.port)
	}
	return nil
}

// lldpctl reads its list of interfaces: an array of objects with one key, or an object if there is only one.
func lldpctl(raw json.RawMessage) (out []neighbour) {
	type identity struct {
		Value string `json:"value"`
	}
	type iface struct {
		Chassis json.RawMessage `json:"chassis"`
		Port    struct {
			ID identity `json:"id"`
		} `json:"port"`
	}
	var list []map[string]iface
	if json.Unmarshal(raw, &list) != nil {
		var one map[string]iface
		if json.Unmarshal(raw, &one) != nil {
			return nil
		}
		list = []map[string]iface{one}
	}
	for _, m := range list {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			n := neighbour{iface: name, port: m[name].Port.ID.Value}
			var bare struct {
				ID *identity `json:"id"`
			}
			var named map[string]struct {
				ID identity `json:"id"`
			}
			if json.Unmarshal(m[name].Chassis, &bare) == nil && bare.ID != nil {
				n.chassis = bare.ID.Value
			} else if json.Unmarshal(m[name].Chassis, &named) == nil && len(named) == 1 {
				for system, c := range named {
					n.system, n.chassis = system, c.ID.Value
				}
			}
			out = append(out, n)
		}
	}
	return out
}
