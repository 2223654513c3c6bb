package rdma

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// Commands and attributes of nldev about the objects of a device (include/uapi/rdma/rdma_netlink.h).
const (
	cmdResQP   = 10
	cmdResCMID = 11

	attrResQP       = 19
	attrResQPEntry  = 20
	attrResLQPN     = 21
	attrResType     = 26
	attrResPID      = 28
	attrResKernName = 29
	attrResCMID     = 30
	attrResCMIDItem = 31
)

// QPType is the type of a queue pair, as the kernel numbers it (enum ib_qp_type, include/rdma/ib_verbs.h).
type QPType uint8

// GSI is the type of queue pair 1, which carries a port's management datagrams.
const GSI QPType = 1

// QP is a queue pair.
type QP struct {
	Number uint32
	Type   QPType
	// Module is the kernel module that has made it; empty: a process has. Those of rdma_create_qp have the name
	// rdma_cm, whichever module asked for them (drivers/infiniband/core/cma.c): see CMModules.
	Module string
	// PID is the process that has made it, as the PID namespace of the caller counts; 0: it is in another PID
	// namespace, or has ended and left the queue pair to another process.
	PID int
}

// QPs returns the queue pairs of an RDMA device, the kernel's own included. It returns fs.ErrNotExist when the device
// is not in the namespace.
func (c *Conn) QPs(index uint32) (out []QP, err error) {
	err = c.objects(cmdResQP, index, attrResQP, attrResQPEntry, func(entry []byte) {
		var q QP
		for a := range nlmsg.Attrs(entry) {
			switch a.Type {
			case attrResLQPN:
				q.Number = a.Uint32()
			case attrResType:
				q.Type = QPType(a.Uint8())
			case attrResKernName:
				q.Module = a.String()
			case attrResPID:
				q.PID = int(a.Uint32())
			}
		}
		out = append(out, q)
	})
	return out, err
}

// LacksGSI says whether an RDMA device has no queue pair 1 although its ports are managed by datagrams, as those of
// InfiniBand and RoCE are. See kernel fact 46 in docs/kernel.md. The kernel numbers the queue pairs 1 of a device with
// two ports alike before Linux 6.6, and then shows the first one only: so one for all ports is enough.
func (c *Conn) LacksGSI(index uint32) (bool, error) {
	qps, err := c.QPs(index)
	if err != nil || slices.ContainsFunc(qps, func(q QP) bool { return q.Type == GSI }) {
		return false, err
	}
	b, err := c.nl.Get(client|cmdGet, nlmsg.Body(nil).Uint32(attrDevIndex, index).Bytes())
	if err != nil {
		return false, notFound(err)
	}
	for a := range nlmsg.Attrs(b) {
		if a.Type == attrProtocol {
			return slices.Contains([]string{"ib", "opa", "roce"}, a.String()), nil
		}
	}
	return false, nil
}

// CMModules returns which kernel modules have queue pairs by the RDMA connection manager, by their numbers.
func (c *Conn) CMModules(index uint32) (map[uint32]string, error) {
	out := map[uint32]string{}
	err := c.objects(cmdResCMID, index, attrResCMID, attrResCMIDItem, func(entry []byte) {
		var qpn uint32
		var module string
		for a := range nlmsg.Attrs(entry) {
			switch a.Type {
			case attrResLQPN:
				qpn = a.Uint32()
			case attrResKernName:
				module = a.String()
			}
		}
		if qpn != 0 && module != "" {
			out[qpn] = module
		}
	})
	return out, err
}

// objects calls f with each entry of a dump of one device's objects.
func (c *Conn) objects(cmd uint16, index uint32, table, entry uint16, f func([]byte)) error {
	msgs, err := c.nl.Dump(client|cmd, nlmsg.Body(nil).Uint32(attrDevIndex, index).Bytes())
	if errors.Is(err, unix.ECONNREFUSED) {
		return ErrNoRDMA
	}
	if err != nil {
		return notFound(fmt.Errorf("list what uses RDMA device with index %d: %w", index, err))
	}
	for _, b := range msgs {
		for t := range nlmsg.Attrs(b) {
			if t.Type != table {
				continue
			}
			for e := range nlmsg.Attrs(t.Value) {
				if e.Type == entry {
					f(e.Value)
				}
			}
		}
	}
	return nil
}
