package network

import (
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Assign gives each device to the first fabric that it fits, and returns the devices by fabric name: fabrics.Assign.
// One that a fabric gets is not refused any more.
func Assign(list []fabrics.Fabric, devices []survey.Device, before map[string]string) map[string][]survey.Device {
	at := map[device.Location]*survey.Device{}
	for i := range devices {
		at[devices[i].Location] = &devices[i]
	}
	out := map[string][]survey.Device{}
	for name, of := range fabrics.Assign(list, candidates(devices), before) {
		for _, c := range of {
			at[c.Location].Refused = nil
			out[name] = append(out[name], *at[c.Location])
		}
	}
	return out
}

// Unmatched says that a fabric has no device on this node, and why: fabrics.Unmatched.
func Unmatched(f *fabrics.Fabric, devices []survey.Device, assigned map[string][]survey.Device) string {
	of := map[string][]fabrics.Candidate{}
	for name, list := range assigned {
		of[name] = candidates(list)
	}
	return fabrics.Unmatched(f, candidates(devices), of)
}

func candidates(devices []survey.Device) []fabrics.Candidate {
	out := make([]fabrics.Candidate, len(devices))
	for i := range devices {
		d := &devices[i]
		out[i] = fabrics.Candidate{
			Location: d.Location, HCA: d.HCA.Name, LinkLayer: d.LinkLayer(), Prefix: d.Prefix, RateGb: d.RateGb,
			Driver: d.Driver,
			Names:  d.Names(), Active: d.Active(), State: d.State(), InPod: d.InPod(), Discovered: d.Fabric,
			Refused: d.Refused, ByRA: d.ByRA,
		}
	}
	return out
}
