package fabric

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// writeMetadata writes what has become of the devices of a claim into the files that its containers have mounted: once
// for each sandbox, before the first of its containers that has the claim starts. The entries are those of the devices,
// in their order.
func (p Plugin) writeMetadata(claim *prepared.Claim, entries []*journal.Entry, in container) error {
	if len(claim.MetadataRequests()) == 0 {
		return nil
	}
	store, generation := prepared.In(p.StateDir), metadataGeneration(entries)
	if store.HasMetadata(claim, generation) {
		return nil
	}
	c := p.newCall(&netconf.Config{}, netconf.Env{})
	defer c.close()
	side, err := c.openSide(in.netns)
	if err != nil {
		return err
	}
	var list []prepared.InPod
	for _, e := range entries {
		hwAddr, addresses, err := side.Link.InterfaceAddrs(e.IfName)
		if err != nil {
			const problem = "read the interface %s, which the pod has by ResourceClaim %s: %w"
			return fmt.Errorf(problem, e.IfName, claim.Whose(), err)
		}
		list = append(list, prepared.InPod{
			NetworkData: prepared.NetworkDataOf(e.IfName, hwAddr, addresses), RDMADevice: rdmaIn(e),
		})
	}
	return store.UpdateMetadata(claim, generation, list)
}

// metadataGeneration is when the newest of a pod's attachments was made, in ms since boot: another sandbox has others.
// The agent's own files have 1.
func metadataGeneration(entries []*journal.Entry) int64 {
	out := int64(2)
	for _, e := range entries {
		out = max(out, e.BootTime/1e6)
	}
	return out
}

// rdmaIn is the name of an attachment's RDMA device in the pod; empty: it stays on the host, and keeps its name.
func rdmaIn(e *journal.Entry) string {
	switch {
	case e.RDMAName != "":
		return e.RDMAName
	case e.VF != nil && e.VF.HCA != nil:
		return e.VF.HCA.Name
	case e.MoveRDMA && e.HCA != nil:
		return e.HCA.Name
	}
	return ""
}
