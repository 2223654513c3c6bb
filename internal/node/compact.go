package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// MaxCompact bounds the JSON of a compact picture in bytes. A node with 256 VFs has half of it; etcd takes objects of
// 1.5 MB at most.
const MaxCompact = 256 << 10

// maxProblem bounds one line of Problems and Kept in a compact picture, in bytes, and maxProblems the number of lines.
const (
	maxProblem  = 256
	maxProblems = 32
	maxGPUs     = 64 // that stay when something must go
)

// Compact is the picture as the cluster keeps it, in a JSON text of at most limit bytes: without what other fields
// tell, because an API server keeps it for each node and etcd keeps old versions of it. Devices that it has no room
// for are left out, which Problems then says.
func (n *Node) Compact(limit int) ([]byte, error) {
	c := n.compact()
	b, err := json.Marshal(c)
	if err != nil || len(b) <= limit {
		return b, err
	}
	all := *c
	for _, divisor := range []int{2, 4, 8, 16, 32, 64, 128, 256, 1024, 0} {
		c.cut(&all, divisor)
		if b, err = json.Marshal(c); err != nil || len(b) <= limit {
			return b, err
		}
	}
	return nil, fmt.Errorf("the picture of the node has %d bytes without any device, %d are allowed", len(b), limit)
}

// cut keeps the first part of each list, nothing with divisor 0, and notes it in Problems.
func (n *Node) cut(all *Node, divisor int) {
	part := func(length int) int {
		if divisor == 0 {
			return 0
		}
		return length / divisor
	}
	n.HCAs = all.HCAs[:part(len(all.HCAs))]
	maps.DeleteFunc(n.Kept, func(name, _ string) bool { return n.HCA(name) == nil })
	n.Netdevs = all.Netdevs[:part(len(all.Netdevs))]
	n.GPUs = all.GPUs[:min(len(all.GPUs), max(part(len(all.GPUs)), maxGPUs*min(divisor, 1)))]
	n.Problems = append(slices.Clone(all.Problems[:part(len(all.Problems))]), fmt.Sprintf(
		"too much for the cluster: it shows %d of %d RDMA devices, %d of %d interfaces and %d of %d GPUs; fabricctl "+
			"discover on the node shows all", len(n.HCAs), len(all.HCAs), len(n.Netdevs), len(all.Netdevs), len(n.GPUs),
		len(all.GPUs)))
}

// compact is a copy without what other fields tell.
func (n *Node) compact() *Node {
	c := *n
	c.HCAs, c.Netdevs, c.GPUs = slices.Clone(n.HCAs), slices.Clone(n.Netdevs), slices.Clone(n.GPUs)
	for i := range c.HCAs {
		c.HCAs[i].compact()
	}
	for i := range c.Netdevs {
		d := &c.Netdevs[i]
		d.DCB = nil // doctor host looks at it, on the node
		if d.Address.Name == d.PCI {
			d.Address = device.Address{}
		}
		if d.Type == typeInfiniBand {
			d.HWAddr = "" // flags, queue pair, and the GID of the port
		}
	}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		g.Path, g.CPUs = root(g.Path), ""
	}
	c.Kept = maps.Clone(n.Kept)
	for name, why := range c.Kept {
		c.Kept[name] = bounded(why)
	}
	c.Problems = nil
	for i, p := range n.Problems {
		if i == maxProblems {
			c.Problems = append(c.Problems, fmt.Sprintf("and %d more", len(n.Problems)-i))
			break
		}
		c.Problems = append(c.Problems, bounded(p))
	}
	return &c
}

// bounded is a line for people in a compact picture.
func bounded(line string) string {
	if len(line) > maxProblem {
		line = line[:maxProblem] + "..."
	}
	return strings.ToValidUTF8(line, "?")
}

var defaultPKeys = []string{"0xffff"}

// typeInfiniBand is ARPHRD_INFINIBAND (include/uapi/linux/if_arp.h).
const typeInfiniBand = 32

func (h *HCA) compact() {
	if h.Address.Name == h.PCI {
		h.Address = device.Address{}
	}
	h.Path, h.CPUs = root(h.Path), ""
	if h.DataDirect != nil {
		h.DataDirect = &DataDirect{h.DataDirect.PCI, root(h.DataDirect.Path)}
	}
	h.Ports = slices.Clone(h.Ports)
	for i := range h.Ports {
		p := &h.Ports[i]
		p.Rate = ""
		if p.GUID == h.NodeGUID {
			h.NodeGUID = device.GUID(0)
		}
		if p.LinkLayer == device.InfiniBand {
			p.GIDs = nil // the prefix and the GUID
			continue
		}
		if slices.Equal(p.PKeys, defaultPKeys) {
			p.PKeys = nil // RoCE has no others
		}
		// RoCE v1 and v2 are pairs of entries with one GID; the interface is the port's
		p.GIDs = slices.DeleteFunc(slices.Clone(p.GIDs), func(g GID) bool { return g.Type != device.RoCEv2 })
		for j := range p.GIDs {
			if p.GIDs[j].Netdev == p.Netdev {
				p.GIDs[j].Netdev = ""
			}
		}
	}
}

// root is the host bridge of a way down the PCI tree.
func root(path []string) []string { return path[:min(1, len(path))] }
