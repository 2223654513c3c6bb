package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// renumber runs f, which makes the kernel register an RDMA device anew: when it moves between namespaces, and when its
// driver is bound. Its character devices (uverbsN, umadN) and, with its driver, its name are then given out again, each
// the lowest number that is free (drivers/infiniband/core/uverbs_main.c, ib_uverbs_add_one): of two devices that are
// registered at once each can get the other's. So that happens one at a time on the whole node.
//
// A device plugin has given the pod /dev/infiniband/uverbsN before ADD. forPod wants the same numbers as before.
// An idle device keeps its numbers whatever others do, so that those which the device plugin has read of a device that
// was home are those of now. See kernel facts 11 and 29 in docs/kernel.md.
func (h hcaSteps) renumber(ctx context.Context, at device.Address, forPod bool, f func() error) error {
	if h.r.Renumbering != nil {
		done, err := h.r.Renumbering(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	if !forPod || at.IsZero() {
		return f()
	}
	before, err := h.r.Host.Chars(at)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := h.r.Host.Chars(at)
	if err != nil || slices.Equal(before, after) {
		return err
	}
	return fmt.Errorf(
		"the character devices of %s were %s and are %s now, as lower numbers were free: those that the pod was "+
			"given are another device's",
		at,
		strings.Join(before, " "),
		strings.Join(after, " "),
	)
}
