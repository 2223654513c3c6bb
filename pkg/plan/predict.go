package plan

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Preview is the whole way back as far as it can be predicted from one look: what DEL would do, for printing. It ends
// where a face is missing.
func Preview(w Where, h Home) []Step {
	var steps []Step
	for {
		way := Return(w, h)
		if way.Stage == StageHome || way.Await != "" {
			return steps
		}
		steps = append(steps, way.Steps...)
		w = After(w, way.Steps)
		w.Done = way.Stage
	}
}

// After predicts where a device is and what it is like when steps have been carried out on it. What only the kernel
// knows, ifindexes and the addresses that it makes, stays as it was.
func After(w Where, steps []Step) Where {
	if w.HCA != nil {
		w.HCA = new(*w.HCA)
	}
	if w.Netdev != nil {
		w.Netdev = new(*w.Netdev)
	}
	if w.VF != nil {
		w.VF = new(*w.VF)
	}
	for _, s := range steps {
		w.after(s)
	}
	return w
}

// ofPort changes a port of the RDMA device.
func (w *Where) ofPort(number uint32, change func(*device.Port)) {
	w.HCA = new(*w.HCA)
	w.HCA.Ports = slices.Clone(w.HCA.Ports)
	for i := range w.HCA.Ports {
		if p := &w.HCA.Ports[i]; p.Number == number {
			change(p)
		}
	}
}

// after changes its receiver and what that points to.
func (w *Where) after(s Step) {
	switch s := s.(type) {
	case MoveRDMA:
		w.HCA, w.HCASide = new(s.HCA), s.To
		set(&w.HCA.Name, s.Name)
		if w.Netdev != nil && w.Netdev.IsIPoIB() { // on the host up to 6.16, on the RDMA device's side since 6.17
			w.Netdev, w.NetdevSide = recreatedNetdev(w.Netdev), Host
		}
	case RenameRDMA:
		w.HCA = new(s.HCA)
		w.HCA.Name = s.To
	case SetDIM:
		w.HCA = new(*w.HCA)
		w.HCA.DIM = new(s.On)
	case SetAutoCounters:
		w.ofPort(s.Port, func(p *device.Port) { p.AutoCounters = new(s.Mask) })
	case SetCM:
		w.ofPort(s.Port, func(p *device.Port) { p.CM = new(s.To) })
	case SetTrafficClass:
		w.ofPort(s.Port, func(p *device.Port) { p.TrafficClass = new(s.To) })
	case MoveNetdev:
		w.Uppers = nil
		w.Netdev, w.NetdevSide = movedNetdev(w.Netdev, s), s.To
	case DeleteChild:
		w.Netdev = nil
	case DeleteUpper:
		same := func(u device.Netdev) bool { return u.Index == s.Netdev.Index }
		w.Uppers = slices.DeleteFunc(slices.Clone(w.Uppers), same)
	case Revive:
		w.Revived = true
	case DelRule:
		w.Rules = slices.DeleteFunc(slices.Clone(w.Rules), func(r device.Rule) bool { return r == s.Rule })
	case AddRule:
		w.Rules = append(slices.Clone(w.Rules), s.Rule)
	case SetVF:
		if w.VF != nil {
			w.VF.Set(s.Attr, &s.To)
		}
	case Rebind:
		w.rebound(s)
	default:
		if w.Netdev != nil {
			afterStep(w.Netdev, s)
		}
	}
}

// rebound predicts what a driver makes: new faces on the host.
func (w *Where) rebound(s Rebind) {
	if s.HCA != nil {
		w.HCA, w.HCASide = new(*s.HCA), Host
	}
	if w.Netdev != nil && s.Netdev {
		w.Netdev, w.NetdevSide = recreatedNetdev(w.Netdev), Host
	}
	if w.VF != nil {
		w.VF.HCA, w.VF.Netdev, w.VF.Driver = s.HCA, s.Netdev, s.Driver
	}
}

// movedNetdev predicts what a move leaves: the netdev is down, without addresses and routes.
func movedNetdev(n *device.Netdev, s MoveNetdev) *device.Netdev {
	if n == nil {
		n = &s.Netdev
	}
	out := lowered(n)
	out.Name = s.Name
	if s.Up {
		out.Flags |= device.FlagUp
	}
	return out
}

// recreatedNetdev predicts what the kernel makes in place of a netdev that it has destroyed: one with its defaults.
func recreatedNetdev(n *device.Netdev) *device.Netdev {
	out := lowered(n)
	out.AltNames, out.Alias, out.Group = nil, "", 0
	if n.IsIPoIB() {
		out.MTU = 2044 // of the broadcast group's 2048, less the IPoIB header (drivers/infiniband/ulp/ipoib/ipoib.h)
		out.IPoIB = &device.IPoIB{}
		if n.IPoIB != nil {
			out.IPoIB.PKey = n.IPoIB.PKey
		}
	}
	return out
}

// lowered is a netdev that was taken down.
func lowered(n *device.Netdev) *device.Netdev {
	out := *n
	out.Addrs, out.Routes, out.Flags, out.Kept = nil, nil, n.Flags&^device.FlagUp, lostKept(n.Kept)
	return &out
}

func less(names, del []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(del, n) })
}

// afterStep predicts what a step that changes settings leaves.
func afterStep(n *device.Netdev, s Step) {
	switch s := s.(type) {
	case AwaitNetdev:
		n.Name = s.Netdev.Name // unless another device has it
	case SetLink:
		s.on(n)
	case Aside:
		if s.Name != "" {
			n.Name = s.Name // unless another device has it
		}
		n.AltNames = less(n.AltNames, s.Del)
	case AltNames:
		n.AltNames = append(less(n.AltNames, s.Del), s.Add...)
	case AddAddr:
		n.Addrs = append(slices.Clone(n.Addrs), s.Addr)
	case DelAddr:
		n.Addrs = without(n, func(a device.Addr) bool { return a.Prefix == s.Addr.Prefix }).Addrs
	case AddRoute:
		n.Routes = append(slices.Clone(n.Routes), s.Route)
	case DropProgram:
		gone := func(p device.Program) bool { return p == s.Program }
		n.Kept.Programs = slices.DeleteFunc(slices.Clone(n.Kept.Programs), gone)
	}
}

// on sets the attributes on a netdev. Per-netdev sysctls are left as they are.
func (a *Attrs) on(n *device.Netdev) {
	set(&n.Name, a.Name)
	set(&n.MTU, a.MTU)
	if a.HWAddr != nil {
		n.HWAddr = a.HWAddr
	}
	setTo(&n.Alias, a.Alias)
	setTo(&n.TxQueue, a.TxQueue)
	setTo(&n.Group, a.Group)
	setTo(&n.AddrGenMode, a.AddrGen)
	if n.IPoIB != nil {
		n.IPoIB = new(*n.IPoIB)
		setTo(&n.IPoIB.Mode, a.Mode)
		setTo(&n.IPoIB.Umcast, a.Umcast)
	}
	n.Flags = n.Flags&^a.Mask | a.Flags&a.Mask
}

// set leaves what is to have the zero value.
func set[T comparable](have *T, to T) {
	var zero T
	if to != zero {
		*have = to
	}
}

// setTo leaves what is to have no value.
func setTo[T any](have, to *T) {
	if to != nil {
		*have = *to
	}
}
