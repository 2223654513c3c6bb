package network

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Discover groups the node's devices into fabrics by link layer, subnet prefix, subnet manager and rate. It sets the
// Fabric of each device, and returns the fabrics. before maps a device id to the device's fabric at an earlier look: a
// device whose port has gone down since stays in that fabric, as an unhealthy one.
func Discover(devices []survey.Device, before map[string]string) []topology.Fabric {
	var ports []topology.Port
	byName := map[string]*survey.Device{}
	for i := range devices {
		d := &devices[i]
		if d.Refused != nil && !d.ByRA { // a rail with a default route of a router advertisement may be meant for pods
			continue
		}
		byName[d.HCA.Name] = d
		d.Fabric = before[d.ID()]
		for _, p := range d.HCA.Ports {
			state := p.State
			if d.Moving() { // neither namespace may have it now: then nothing of it is known
				state = device.PortDown
			}
			ports = append(ports, topology.Port{
				Node: "node", HCA: d.HCA.Name, Port: p.Number, Netdev: d.Netdev, Address: d.Address, PCI: d.PCI,
				Slot: d.Slot, Kind: d.Kind(), LinkLayer: p.LinkLayer, State: state,
				Idle: d.Idle() && !d.Moving(), Phys: p.Phys, RateGb: d.RateGb, Prefix: d.Prefix,
				LID: p.LID, SMLID: p.SMLID,
			})
		}
	}
	found := topology.Group(ports).Fabrics
	for i := range found {
		for _, p := range found[i].On("node") {
			if d := byName[p.HCA]; d != nil {
				d.Fabric = found[i].Name
			}
		}
	}
	return found
}

// Unused describes the ports of a discovered fabric that no pod can ask for: there is no Fabric of that name, and no
// match of another one takes them. It is empty if there are none.
func Unused(f *topology.Fabric, assigned map[string][]survey.Device) string {
	taken := map[string]bool{}
	for _, list := range assigned {
		for _, d := range list {
			taken[d.HCA.Name] = true
		}
	}
	var names []string
	for _, p := range f.On("node") {
		if !taken[p.HCA] {
			names = append(names, p.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the ports %s form a fabric (%s), and no pod can ask for it: apply a Fabric with match: "+
		"{discovered: %s} (fabricctl generate fabric writes one)", strings.Join(names, ", "), f.Reason, f.Name)
}
