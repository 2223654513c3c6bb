package rdma

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// HasQP says whether an HCA has a queue pair of this number, the kernel's own included. It asks for the one number: a
// dump leaves out what is of another PID namespace, and can skip one while others come and go.
//
// The kernel's table is by number (drivers/infiniband/core/restrack.c, rdma_restrack_add, since 5.1), and it looks at
// the port only once it has found the queue pair (nldev.c, fill_res_qp_entry: EAGAIN).
func (c *Conn) HasQP(index uint32, qpn uint32) (bool, error) {
	const cmdResQPGet, attrLQPN = 10, 21
	m := nlmsg.Body(nil).Uint32(attrDevIndex, index).Uint32(attrPortIndex, 1).Uint32(attrLQPN, qpn)
	_, err := c.nl.Get(client|cmdResQPGet, m.Bytes())
	switch {
	case err == nil, errors.Is(err, unix.EAGAIN):
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, fmt.Errorf("get queue pair %d of RDMA device with index %d: %w", qpn, index, err)
}
