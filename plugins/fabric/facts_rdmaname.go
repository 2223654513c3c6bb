package fabric

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// rdmaNames reads what a new name of the RDMA device depends on, if the configuration asks for one: how far names reach
// on this kernel, and then either the names in the pod or who on the node has had the name.
func (g *gatherer) rdmaNames() error {
	want, f := g.cfg.RDMAName, g.facts
	if want == "" || g.dev.HCA == nil || f.NetnsMode != device.NetnsExclusive {
		return nil
	}
	f.RDMANamesPerNetns = g.host.RDMA.PerNetns(g.dev.HCA)
	switch {
	case !f.RDMANamesPerNetns && want != netconf.RDMANameAuto:
		return g.nameHolder(want)
	case f.RDMANamesPerNetns && want == netconf.RDMANameAuto && g.pod != nil && g.pod.RDMA != nil:
		return g.namesInPod()
	}
	return nil
}

// namesInPod asks more than once: a dump may skip a device while another one moves. See kernel fact 7 in
// docs/kernel.md.
func (g *gatherer) namesInPod() error {
	for range 3 {
		list, err := g.pod.RDMA.List()
		if err != nil {
			return err
		}
		for _, h := range list {
			g.facts.RDMANamesInPod = append(g.facts.RDMANamesInPod, h.Name)
		}
	}
	return nil
}

// nameHolder looks through the journal for another device whose own name this is: it needs it when it returns.
func (g *gatherer) nameHolder(name string) error {
	claim := g.dev.Claim()
	entries, err := g.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	for _, e := range entries {
		if e.MoveRDMA && e.Claim != claim && e.HCA != nil && e.HCA.Name == name {
			g.facts.RDMANameHolder = fmt.Sprintf("device %s, which %s has as %s",
				e.Claim, e.Who(), e.IfName)
			return nil
		}
	}
	debtors, err := g.store.Debtors(journal.RDMA)
	if err != nil {
		return err
	}
	for _, d := range debtors {
		owed, err := g.store.Owed(journal.RDMA, d)
		if err != nil {
			return err
		}
		if d != claim && owed == name {
			g.facts.RDMANameHolder = fmt.Sprintf("device %s, which gets it back as soon as it is free", d)
			return nil
		}
	}
	return nil
}
