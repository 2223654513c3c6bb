package inventory

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Memory is what the last look at a network namespace has found, for the next one. It holds as long as the kernel
// announces no change of a netdev, address, route or rule (link.Events), and lists the same RDMA devices: nothing
// changes in the sysfs directory of a function's netdev, or of its RDMA device, without one of these. The zero Memory
// is empty. It is not safe for concurrent use.
type Memory struct {
	events *link.Events // nil: not yet, or the kernel refuses them, and each look is a whole one
	hcas   []device.HCA
	lists  *lists // nil: nothing is remembered
	used   int
}

// wholeLook is the number of looks of which one reads everything again. For so long a look may not see what is not
// announced: another version of the firmware, or an altname of a netdev that is down (net/core/dev.c,
// netdev_state_change).
const wholeLook = 10

// found is what a look has read in sysfs.
type found struct {
	devices   map[device.Address]*Device
	uppers    map[int][]device.Upper // by ifindex
	addresses map[string]device.Address
}

// Close ends the announcements.
func (m *Memory) Close() {
	if m.events != nil {
		_ = m.events.Close()
	}
	*m = Memory{}
}

// quiet says whether nothing has been announced since the call before.
func (m *Memory) quiet() bool {
	if m == nil {
		return false
	}
	if m.events == nil {
		m.lists = nil
		m.events, _ = link.Listen()
		return false
	}
	return m.events.Quiet()
}

func (m *Memory) has(hcas []device.HCA) bool {
	m.used++
	return m.lists != nil && m.used < wholeLook && slices.EqualFunc(m.hcas, hcas, sameHCA)
}

// sameHCA compares what the kernel lists of an RDMA device. One that its driver has made anew has another index.
func sameHCA(a, b device.HCA) bool {
	return a.Index == b.Index && a.Name == b.Name && a.NodeGUID == b.NodeGUID && len(a.Ports) == len(b.Ports)
}

func (m *Memory) keep(l *lists, hcas []device.HCA) {
	if m != nil && m.events != nil {
		m.lists, m.hcas, m.used = l, hcas, 0
	}
}

// remembered is what read has returned for the key at an earlier look, or returns now. Errors are not kept.
func remembered[K comparable, V any](kept *map[K]V, k K, read func() (V, error)) (V, error) {
	if v, ok := (*kept)[k]; ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		if *kept == nil {
			*kept = map[K]V{}
		}
		(*kept)[k] = v
	}
	return v, err
}

// clone is a copy whose netdev and RDMA device can be changed.
func (d *Device) clone() *Device {
	if d == nil {
		return nil
	}
	c := *d
	if d.Netdev != nil {
		c.Netdev = new(*d.Netdev)
	}
	if d.HCA != nil {
		c.HCA = new(*d.HCA)
		c.HCA.Ports = slices.Clone(d.HCA.Ports)
	}
	return &c
}
