package plan

import (
	"bytes"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Home is where a device belongs and what it was like before ADD, as the journal has it.
type Home struct {
	HCA      *device.HCA    // belongs on the host, under this name; nil: it was not moved
	Attached *device.HCA    // the RDMA device as it went into the pod, where ADD has rebound its driver; nil: as HCA
	Netdev   *device.Netdev // nil: the device has none
	Side     Side           // of the netdev: the host, or the pod when another plugin has put it there
	Child    bool           // the netdev is an IPoIB child that ADD has made: it is deleted
	VF       *VFHome        // nil: no virtual function, or none whose settings were changed
	Elapsed  uint32         // seconds since the snapshot was taken

	PodIndex int // ifindex of the netdev in the pod; 0: not known

	VFs []device.VFAttrs // what the device, a PF, had set for each of its VFs

	Rules []device.Rule // of the host, which ADD has put into the pod as well

	// Keep are the IPoIB children that other attachments have in the pod. The kernel shows the ifindex that a child's
	// parent has in another namespace as if it were one of the child's own: it can be that of this netdev.
	Keep []KeptChild
}

// VFHome is what a virtual function had before ADD.
type VFHome struct {
	VF     *device.VF
	Set    []device.VFAttr // what ADD has changed; the rest is not ours to restore
	Rebind bool            // ADD has rebound the driver, or was about to: for other GUIDs if they are in Set
	HCA    *device.HCA     // its RDMA device, moved or not; nil: none
	Netdev bool            // it had a netdev
}

// Where is what a look at a device has found. A face that is absent is nil.
type Where struct {
	HCA     *device.HCA
	HCASide Side

	// Netdev has its addresses and routes when it is up and where it belongs, its addresses when it is to be taken out
	// of the pod.
	Netdev     *device.Netdev
	NetdevSide Side

	Rules   []device.Rule   // of the pod
	Others  []device.Netdev // what else the pod has; read only if the netdev is not in it
	PodGone bool            // the pod's namespace does not exist any more

	// Uppers are what of the pod sits on the netdev, while that is in the pod and once it is on the host; or IPoIB
	// children that came to the host with it when the pod's namespace was deleted.
	Uppers []device.Netdev

	VF   *VFNow           // nil: unknown, or no virtual function
	VFs  []device.VFAttrs // what the netdev, of a PF that is home, has set for each VF; read only if Home has it
	Lost bool             // the hardware has left the bus or lost its driver: what is missing does not come back

	Missing  int64 // milliseconds for which an IPoIB netdev has been missing although its RDMA device is on the host
	LacksGSI bool  // the RDMA device is on the host without queue pair 1: no management datagram reaches it
	Revived  bool  // the kernel was made to recreate either once before

	Done Stage // the last stage that was carried out
}

// VFNow is what a virtual function has on the host at present.
type VFNow struct {
	device.VFAttrs
	Faces  bool        // the next three are known
	Driver string      // bound to it; empty: none
	HCA    *device.HCA // nil: none on the host
	Netdev bool        // it has a netdev on the host
}

// Stage is a part of the way back. Stages follow each other in the order of their numbers.
type Stage int

// The stages.
const (
	// StageRelease takes addresses and rules out of the pod, and removes what the pod has put on the netdev. After it
	// IPAM may give the addresses to another pod.
	StageRelease Stage = iota + 1
	// StageRebind gives a VF its former GUIDs, and binds its driver again for them to count. The new faces are on the
	// host, wherever the old ones were: nothing is left to be moved.
	StageRebind
	// StageIdentity gives a netdev without a bus address its hardware address back while it is in the pod: on the host
	// that is what it is known by.
	StageIdentity
	// StageRevive makes the kernel recreate an IPoIB netdev, or queue pair 1.
	StageRevive
	// StageMove brings both faces to their sides.
	StageMove
	// StagePlace moves a netdev that the kernel has recreated on the other side.
	StagePlace
	// StageAside takes a name and altnames that the pod chose off a netdev on the host: they are in others' way, and
	// under some names the kernel gives a netdev no settings.
	StageAside
	// StageName gives the RDMA device its name. One that another device has does not keep this one from home.
	StageName
	// StageOrphans removes what of the pod still sits on a netdev that is on the host.
	StageOrphans
	// StageMTU restores an MTU below which the kernel keeps no IPv6 settings.
	StageMTU
	// StageRestore gives back what the snapshot holds.
	StageRestore
	// StageVFMAC gives a VF the hardware address that its PF had for it, and the VFs of a PF what that had set for
	// them: some drivers take a rate only while the PF is up.
	StageVFMAC
	// StageHome is the end: nothing is left to do.
	StageHome
)

// Way is the next part of the way back.
type Way struct {
	Stage Stage
	Steps []Step
	// Look says that only another look at the device shows what is left after the steps. Otherwise it is decided by the
	// same look, with Where.Done set to Stage.
	Look bool
	// Await names a face that has to be there before anything else is done: look again until it is.
	Await string
	// Lost says that the face named by Await does not come back.
	Lost bool
}

// Sequential says that a step is pointless after another one has failed. In the other stages what can't be given back
// does not stop the rest.
func (s Stage) Sequential() bool { return s == StageRebind || s.Essential() }

// Essential says that the device is not home if a step fails. A failure in another stage leaves a device that is home,
// but not as it was.
func (s Stage) Essential() bool { return s == StageMove || s == StagePlace || s == StageRevive }

// Return decides the whole way back of a device, for DEL and GC, for an ADD that failed and for a repair, from any
// state that an interrupted call or the kernel can have left. It returns the next part. The caller carries that out,
// sets Where.Done, looks at the device again if Look is set, and asks again until StageHome. A device that is as it
// should be needs no steps.
func Return(w Where, h Home) Way {
	for s := w.Done + 1; s < StageHome; s++ {
		if s >= StageMove && s < StageVFMAC {
			if way, wait := missing(w, h); wait {
				return way
			}
		}
		if s >= StageMove && h.Side == Pod && w.PodGone {
			w.Netdev, h.Netdev = nil, nil // there is nowhere to put it
		}
		if stages[s] == nil {
			continue
		}
		if steps, look := stages[s](w, h); len(steps) > 0 {
			return Way{Stage: s, Steps: steps, Look: look}
		}
	}
	return Way{Stage: StageHome}
}

// stages decide the steps of each stage, and whether only another look shows what is left after them.
var stages = [StageHome]func(Where, Home) (steps []Step, look bool){
	StageRelease:  release,
	StageRebind:   rebind,
	StageIdentity: identity,
	StageMove:     move,
	StagePlace:    place,
	StageAside:    aside,
	StageName:     name,
	StageOrphans:  orphans,
	StageMTU:      restoreMinMTU,
	StageRestore:  restore,
	StageVFMAC:    restoreVFMAC,
}

// reviveAfter is how many milliseconds an IPoIB netdev may be missing while its RDMA device is on the host: the kernel
// makes it at the end of the same move. A call that was killed inside the move leaves it missing for good.
const reviveAfter = 1000

// missing decides what to do about a face that is not found: the kernel is tearing down the pod's namespace, or between
// the destruction of an IPoIB netdev and its recreation.
func missing(w Where, h Home) (Way, bool) {
	way := Way{Stage: w.Done, Look: true, Lost: w.Lost}
	home := w.HCA != nil && w.HCASide == Host
	alone := w.Netdev == nil && h.Netdev != nil && h.Netdev.IsIPoIB() && w.Missing >= reviveAfter
	switch {
	case home && !w.Revived && (alone || w.LacksGSI):
		return Way{Stage: StageRevive, Steps: []Step{Revive{*w.HCA}}, Look: true}, true
	case h.HCA != nil && w.HCA == nil:
		way.Await = "RDMA device " + h.HCA.Name
	case w.Netdev == nil && h.needsNetdev(w):
		way.Await = "netdev " + h.Netdev.Name
	default:
		return way, false
	}
	return way, true
}

// needsNetdev says whether the netdev has to be there before anything is done. One that the RDMA device's way home will
// recreate anyway need not, nor one of a pod that is gone if it is for the plugin that put it there; but an IPoIB
// netdev returns to the host from such a pod in any case, and has to exist for that plugin to find it.
func (h *Home) needsNetdev(w Where) bool {
	if h.Netdev == nil || h.Side == Pod && w.PodGone && !h.Netdev.IsIPoIB() {
		return false
	}
	return !h.Netdev.IsIPoIB() || w.HCA == nil || w.HCASide != Pod
}

// release is for a netdev that ADD has addressed, not for one of an earlier plugin.
func release(w Where, h Home) ([]Step, bool) {
	switch {
	case h.Side == Pod || w.PodGone:
		return nil, false
	case w.Netdev == nil || w.NetdevSide != Pod: // an earlier call has brought it home, and failed half-way
		return ReleaseOrphans(w.Others, w.Rules, h.Rules), false
	}
	steps := append(deleteUppers(Pod, w.Uppers, h.Keep), ReleaseNetdev(w.Netdev, w.Rules, h.Rules)...)
	if h.Netdev != nil && !h.Child { // once more at home: until it has left, the pod can put another one on it
		steps = append(steps, dropPrograms(Pod, h.Netdev, w.Netdev)...)
	}
	return steps, false
}

// rebind needs no device in its place: binding the driver makes new faces on the host.
func rebind(w Where, h Home) ([]Step, bool) {
	if h.VF == nil || w.VF == nil {
		return nil, false
	}
	if w.Lost && (!h.VF.Rebind || !w.VF.Faces) { // without a driver it is in no pod; its PF has the settings still
		return append(RestoreVF(h.VF.VF, h.VF.Set, &w.VF.VFAttrs), lostVFMAC(w, h)...), false
	}
	if !h.VF.Rebind {
		return nil, false
	}
	guids := slices.DeleteFunc(slices.Clone(h.VF.Set), func(a device.VFAttr) bool { return !a.IsGUID() })
	if len(guids) == 0 && w.VF.Driver != "" { // ADD had it bound again for another tenant, and that is over
		return nil, false
	}
	steps := RestoreVF(h.VF.VF, guids, &w.VF.VFAttrs)
	step := RebindVF(h.VF.VF, h.VF.HCA, h.Netdev)
	step.Netdev = h.VF.Netdev
	if w.VF.Faces && !step.Device.IsZero() && (len(steps) > 0 || !h.VF.whole(w.VF)) {
		steps = append(steps, step)
	}
	return steps, true
}

// lostVFMAC is the last step for a VF that has no netdev any more.
func lostVFMAC(w Where, h Home) []Step {
	if !slices.Contains(h.VF.Set, device.VFMAC) {
		return nil
	}
	return RestoreVFMAC(h.VF.VF, &w.VF.VFAttrs)
}

// identity is for a virtual netdev. In the pod it is known by its ifindex, which may be another one on the host.
func identity(w Where, h Home) ([]Step, bool) {
	n := w.Netdev
	if h.Netdev == nil || n == nil || w.NetdevSide != Pod || h.Side == Pod {
		return nil, false
	}
	virtual := h.Netdev.Address.IsZero() && !n.IsIPoIB()
	if !virtual || len(h.Netdev.HWAddr) == 0 || bytes.Equal(n.HWAddr, h.Netdev.HWAddr) {
		return nil, false
	}
	return newMAC(Pod, h.Netdev.HWAddr, n.Up(), false), true
}

// whole says whether a VF has its driver and the faces that it had before ADD.
func (h *VFHome) whole(now *VFNow) bool {
	hca := h.HCA == nil ||
		now.HCA != nil && now.HCA.NodeGUID == h.HCA.NodeGUID && now.HCA.Name == h.HCA.Name
	return hca && (!h.Netdev || now.Netdev) && now.Driver != ""
}

// move brings both faces to their sides. The RDMA device goes first here too: its move destroys an IPoIB netdev and
// makes a new one, on the host, so that the old one need not be moved at all.
func move(w Where, h Home) ([]Step, bool) {
	if h.Child {
		if w.Netdev == nil {
			return nil, false
		}
		return []Step{DeleteChild{In: w.NetdevSide, Netdev: *w.Netdev}}, false
	}
	var steps []Step
	if w.HCA != nil && w.HCASide != Host {
		steps = append(steps, MoveRDMA{HCA: *w.HCA, To: Host})
		if h.Netdev != nil && h.Netdev.IsIPoIB() {
			return append(steps, AwaitNetdev{*h.Netdev}), true // where it is now, only another look shows
		}
	}
	return append(steps, putNetdev(w, h)...), true
}

// place follows the move of an RDMA device, which makes the netdev anew.
func place(w Where, h Home) ([]Step, bool) {
	steps := putNetdev(w, h)
	return steps, len(steps) > 0
}

// name comes after the moves: in the pod the name may be another device's.
func name(w Where, h Home) ([]Step, bool) {
	if h.HCA == nil || w.HCA == nil || w.HCA.Name == h.HCA.Name {
		return nil, false
	}
	return []Step{RenameRDMA{In: w.HCASide, HCA: *w.HCA, From: w.HCA.Name, To: h.HCA.Name}}, false
}

// ofHCA gives an RDMA device that is on the host back what the pod may have changed of it.
func ofHCA(w Where, h Home) (steps []Step) {
	if h.HCA == nil || w.HCA == nil || w.HCASide != Host {
		return nil
	}
	if was, now := h.HCA.DIM, w.HCA.DIM; was != nil && now != nil && *was != *now {
		steps = append(steps, SetDIM{HCA: *w.HCA, On: *was})
	}
	for i, p := range w.HCA.Ports[:min(len(w.HCA.Ports), len(h.HCA.Ports))] {
		if was, now := h.HCA.Ports[i].AutoCounters, p.AutoCounters; was != nil && now != nil && *was != *now {
			steps = append(steps, SetAutoCounters{HCA: *w.HCA, Port: p.Number, Mask: *was})
		}
		// The move back has reset it again. What it is now is not read: configfs could mean a namesake in a pod.
		if was := h.HCA.Ports[i].CM; !was.Reset() && (p.CM == nil || *p.CM != *was) {
			steps = append(steps, SetCM{In: Host, HCA: *w.HCA, Port: p.Number, To: *was})
		}
		if was, now := h.HCA.Ports[i].TrafficClass, p.TrafficClass; was != nil && now != nil && *was != *now {
			steps = append(steps, SetTrafficClass{In: Host, HCA: *w.HCA, Port: p.Number, To: *was})
		}
	}
	return steps
}

// aside is for a netdev that the kernel has put on the host, when the pod's namespace ended or another one that the pod
// had moved it to. One that is up was on its way home before: plan.Restore renames it.
func aside(w Where, h Home) ([]Step, bool) {
	n := w.Netdev
	if h.Netdev == nil || h.Child || n == nil || h.Side != Host || w.NetdevSide != Host {
		return nil, false
	}
	s := Aside{In: Host, Del: extraNames(h.Netdev, n)}
	if n.Name != h.Netdev.Name && !n.Up() {
		s.Name = h.Netdev.Name
	}
	if s.Name == "" && len(s.Del) == 0 {
		return nil, false
	}
	return []Step{s}, true
}

// putNetdev moves a netdev to its side under the name it had. Its altnames have to go before: the kernel takes the
// netdev's own altnames for taken names, and refuses the move when one of them, which the pod may have chosen, is taken
// on the other side (net/core/dev.c, __dev_change_net_namespace and dev_change_name). Restore puts the right ones back.
// See kernel fact 14.
func putNetdev(w Where, h Home) []Step {
	if h.Netdev == nil || w.Netdev == nil || w.NetdevSide == h.Side {
		return nil
	}
	var steps []Step
	if len(w.Netdev.AltNames) > 0 {
		steps = append(steps, AltNames{In: w.NetdevSide, Del: w.Netdev.AltNames})
	}
	return append(steps, MoveNetdev{Netdev: *w.Netdev, To: h.Side, Name: h.Netdev.Name})
}

func restoreMinMTU(w Where, h Home) ([]Step, bool) {
	if h.Netdev == nil || w.Netdev == nil {
		return nil, false
	}
	return RestoreMinMTU(h.Side, h.Netdev, w.Netdev), true
}

// restore gives a VF its settings back only when it has left the pod: it must not see the fabric without its VLAN.
func restore(w Where, h Home) ([]Step, bool) {
	var steps []Step
	if h.VF != nil && w.VF != nil && !w.Lost {
		done := func(a device.VFAttr) bool { return h.VF.Rebind && a.IsGUID() }
		steps = RestoreVF(h.VF.VF, slices.DeleteFunc(slices.Clone(h.VF.Set), done), &w.VF.VFAttrs)
	}
	steps = append(steps, ofHCA(w, h)...)
	look := slices.ContainsFunc(steps, func(s Step) bool { return s.Kind() == SetVF{Attr: device.VFMAC}.Kind() })
	if h.Netdev != nil && w.Netdev != nil {
		steps = append(steps, Restore(h.Side, h.Netdev, w.Netdev, h.Elapsed)...)
	}
	return steps, look
}

// restoreVFMAC comes after the netdev has its own address back, which a driver refuses to change while the PF has
// another one for it.
func restoreVFMAC(w Where, h Home) ([]Step, bool) {
	if h.VF == nil || w.VF == nil || w.Lost || !slices.Contains(h.VF.Set, device.VFMAC) {
		return restoreVFs(w, h), false
	}
	return RestoreVFMAC(h.VF.VF, &w.VF.VFAttrs), false
}
