package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// liveCounters reads what the host's sysfs does not show: the counters of devices that are in pods, and the statistics
// of interfaces. What can't be read is left out: looking into a pod takes root.
func (a *app) liveCounters(n *node.Node) *counters.Live {
	live := &counters.Live{Interfaces: map[string]map[string]uint64{}}
	for i := range n.HCAs {
		for _, p := range n.HCAs[i].Ports {
			if p.LinkLayer != device.Ethernet || p.Netdev == "" || n.HCAs[i].Kind != "PF" {
				continue
			}
			if stats, err := ethtool.Stats(p.Netdev); err == nil && stats != nil {
				live.Interfaces[p.Netdev] = counters.OfInterface(stats)
			}
		}
	}
	s := survey.Node{Sys: os.DirFS("/sys"), Store: a.store(), Policy: policy.DefaultPath}
	devices, _ := s.Read()
	for i := range devices {
		d := &devices[i]
		if h := n.HCA(d.HCA.Name); h != nil && d.Away && !d.Stale && d.Holder != nil {
			list, _ := s.Counters(d)
			live.Ports = append(live.Ports, portsInPod(d, h, list)...)
		}
	}
	return live
}

// portsInPod are the ports of a device that is in a pod. A move is not a flap: the holder is part of the place. A
// move of an Ethernet interface takes its link down.
func portsInPod(d *survey.Device, h *node.HCA, list []counters.Counter) (out []counters.Port) {
	place := h.PCI + " " + h.NodeGUID.String() + " " + d.Holder.String() + " " + d.Holder.Nonce
	for i := range d.HCA.Ports {
		p := &d.HCA.Ports[i]
		own := slices.DeleteFunc(slices.Clone(list), func(c counters.Counter) bool {
			return c.Port != p.Number || c.Name == linkDowned && p.LinkLayer == device.Ethernet
		})
		out = append(out, counters.Port{HCA: h.Name, Number: p.Number, Place: place, Values: counters.Sum(own)})
	}
	return out
}

// linkDowned is the port's own count of how often its link went down.
const linkDowned = "link_downed"

// lookHere reads the ports of the running machine.
func (w *watcher) lookHere(out *watchLook) error {
	s := survey.Node{Sys: os.DirFS("/sys"), Store: w.store(), Policy: policy.DefaultPath}
	devices, err := s.Read()
	if err != nil && len(devices) == 0 {
		return err
	}
	for i := range devices {
		d := &devices[i]
		if d.Holder == nil && d.Slot != d.PCI && !w.all {
			out.hidden++
			continue
		}
		list, _ := s.Counters(d, watched...) // looking into a pod takes root; without it there are no rates
		out.add(d, list)
	}
	return nil
}

// add adds the ports of a device.
func (l *watchLook) add(d *survey.Device, list []counters.Counter) {
	by := map[uint32][]counters.Counter{}
	for _, c := range list {
		by[c.Port] = append(by[c.Port], c)
	}
	place := fmt.Sprintf("%s away %t", d.ID(), d.Away)
	pod := ""
	if d.Holder != nil {
		place += " " + d.Holder.String() + " " + d.Holder.Nonce
		pod = cmp.Or(d.Holder.Pod(), shortContainer(d.Holder))
	}
	for i := range d.HCA.Ports {
		p := &d.HCA.Ports[i]
		l.ports = append(l.ports, watchedPort{
			Port:   counters.Port{HCA: d.HCA.Name, Number: p.Number, Place: place, Values: counters.Sum(by[p.Number])},
			device: d.ID(), netdev: d.Netdev, pod: pod, state: p.State.String(),
			rateGb: d.RateGb,
			moving: d.Moving(),
		})
	}
}

func shortContainer(e *journal.Entry) string { return e.ContainerID[:min(len(e.ContainerID), 13)] }
