package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// lookInPods adds the counters of devices that are in pods, which the host's sysfs does not show. What can't be read is
// left out: without root nobody looks into a pod.
func (a *app) lookInPods(l *counters.Look, n *node.Node) {
	s := survey.Node{Sys: os.DirFS("/sys"), Store: a.store(), Policy: policy.DefaultPath}
	devices, _ := s.Read()
	for i := range devices {
		d := &devices[i]
		h := n.HCA(d.HCA.Name)
		if !d.Away || d.Stale || h == nil {
			continue
		}
		list, err := s.Counters(d)
		if err != nil {
			continue
		}
		by := map[uint32][]counters.Counter{}
		for _, c := range list {
			by[c.Port] = append(by[c.Port], c)
		}
		for _, p := range d.HCA.Ports {
			l.Ports = append(l.Ports, counters.Port{
				HCA: h.Name, Number: p.Number, Place: h.PCI + " " + h.NodeGUID.String(),
				Values: counters.Sum(by[p.Number]),
			})
		}
	}
}

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
		list, _ := s.Counters(d, watched...) // without root nobody looks into a pod: it has no rates then
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
	place := fmt.Sprintf("%s away %t", d.ID, d.Away)
	pod := ""
	if d.Holder != nil {
		place += " " + d.Holder.String() + " " + d.Holder.Nonce
		pod = cmp.Or(d.Holder.Pod(), shortContainer(d.Holder))
	}
	for i := range d.HCA.Ports {
		p := &d.HCA.Ports[i]
		l.ports = append(l.ports, watchedPort{
			Port:   counters.Port{HCA: d.HCA.Name, Number: p.Number, Place: place, Values: counters.Sum(by[p.Number])},
			device: strings.TrimPrefix(d.ID, "pci/"), netdev: d.Netdev, pod: pod, state: p.State.String(),
			rateGb: d.RateGb,
			moving: d.Moving(),
		})
	}
}

func shortContainer(e *journal.Entry) string { return e.ContainerID[:min(len(e.ContainerID), 13)] }
