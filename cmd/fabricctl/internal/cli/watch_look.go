package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// started is what looks are timed from.
var started = time.Now()

// look reads the ports of the machine: of the running one as fabric-agent does, with those in pods.
func (w *watcher) look() (*watchLook, error) {
	at := time.Now()
	out := &watchLook{at: at, up: at.Sub(started)}
	if filepath.Clean(w.root) != "/" {
		return out, w.lookAt(out)
	}
	s := survey.Node{Sys: os.DirFS("/sys"), Store: w.store(), Policy: policy.DefaultPath}
	devices, err := s.Read()
	if err != nil && len(devices) == 0 {
		return nil, err
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
	return out, nil
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

// lookAt reads the tree of a machine that is mounted elsewhere, which is not asked about its pods.
func (w *watcher) lookAt(out *watchLook) error {
	tree, err := w.tree()
	if err != nil {
		return err
	}
	n, err := node.Open(tree, w.store())
	if err != nil {
		return err
	}
	out.addTree(n, counters.Read(tree, n))
	return nil
}

// addTree adds the ports of a tree.
func (l *watchLook) addTree(n *node.Node, look *counters.Look) {
	for _, p := range look.Ports {
		h := n.HCA(p.HCA)
		if h == nil {
			continue
		}
		i := slices.IndexFunc(h.Ports, func(q node.Port) bool { return q.Number == p.Number })
		if i < 0 {
			continue
		}
		q := &h.Ports[i]
		l.ports = append(l.ports, watchedPort{
			Port: p, device: h.PCI, netdev: q.Netdev, pod: h.InPod, state: q.State, rateGb: q.RateGb,
		})
	}
}
