package apply

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// withoutUppers removes all netdevs that the steps would remove one by one, in the time that one takes, and returns the
// other steps. Where that fails it returns all of them: then each is tried, and an error names the one it is about.
func (j *journey) withoutUppers(steps []plan.Step) []plan.Step {
	var uppers []device.Netdev
	var indexes []int
	var in plan.Side
	var others []plan.Step
	for _, s := range steps {
		if u, ok := s.(plan.DeleteUpper); ok {
			uppers, indexes, in = append(uppers, u.Netdev), append(indexes, u.Netdev.Index), u.In
		} else {
			others = append(others, s)
		}
	}
	if len(uppers) < 2 {
		return steps
	}
	side, err := j.side(in)
	if err != nil || side.Link.DeleteAll(indexes) != nil {
		return steps
	}
	j.removed(uppers...)
	return others
}

func (j *journey) removed(uppers ...device.Netdev) {
	if j.on.Removed != nil {
		j.on.Removed(uppers)
	}
}

// lookForOrphans reads what still sits on a netdev that is on the host: IPoIB children that have come with it from a
// pod whose namespace is gone, if its RDMA device was not there; or what has been made in the pod between the look and
// the move, or could not be removed.
func (j *journey) lookForOrphans(w *plan.Where) (err error) {
	n := w.Netdev
	switch {
	case n == nil || w.NetdevSide != plan.Host || j.home.Side != plan.Host || w.Done >= plan.StageOrphans:
	case n.IsIPoIB() && w.PodGone && j.home.HCA == nil:
		w.Uppers, err = j.Host.ChildrenOf(n)
	case !n.IsIPoIB() && !w.PodGone:
		w.Uppers, err = j.leftInPod(n)
	}
	return err
}

// leftInPod returns what of the pod is made on a netdev of the host.
func (j *journey) leftInPod(n *device.Netdev) ([]device.Netdev, error) {
	host, err := j.Pod.Link.NSID(j.Host.NS.FD())
	if err != nil || host < 0 {
		return nil, err
	}
	all, err := j.Pod.Link.List("")
	return slices.DeleteFunc(all, func(u device.Netdev) bool {
		return u.Kind == "" || u.Kind == "veth" || u.Kind == "netkit" || u.Kind == "vxcan" || u.Parent != n.Index ||
			u.ParentIn == nil || *u.ParentIn != host
	}), err
}

// DeleteStray removes a netdev that a pod has made on its own and moved into the network namespace of l. It succeeds if
// it is gone.
func DeleteStray(l *link.Conn, index int) error { return ignoreMissing(l.Delete(index)) }
