package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// DropProgram takes a BPF program off the netdev.
type DropProgram struct {
	In      Side
	Program device.Program
}

// SetLinkAttr sets one of the attributes that a move keeps.
type SetLinkAttr struct {
	In   Side
	Attr device.LinkAttr
	To   uint32
}

// SetFeatures switches offloads on or off.
type SetFeatures struct {
	In   Side
	Want device.Features
	Bits []int
}

// SetQueues writes settings of NAPI and of the queues.
type SetQueues struct {
	In    Side
	Files map[string]string // by path below /sys/class/net/NAME
}

// SetSysctls writes sysctls that rtnetlink does not know.
type SetSysctls struct {
	In    Side
	Files map[string]string // by path below /proc/sys/net, with % for the name
}

// AddQdisc puts a queueing discipline back.
type AddQdisc struct {
	In    Side
	Qdisc device.Qdisc
}

// AddNeighbour makes an entry in the table of neighbours again.
type AddNeighbour struct {
	In        Side
	Neighbour device.Neighbour
}

// AddNexthop makes a nexthop object again.
type AddNexthop struct {
	In      Side
	Nexthop device.Nexthop
}

func (DropProgram) Kind() string  { return "drop-program" }
func (SetLinkAttr) Kind() string  { return "set-link-attribute" }
func (SetFeatures) Kind() string  { return "set-features" }
func (SetQueues) Kind() string    { return "set-queues" }
func (SetSysctls) Kind() string   { return "set-sysctls" }
func (AddQdisc) Kind() string     { return "add-qdisc" }
func (AddNeighbour) Kind() string { return "add-neighbour" }
func (AddNexthop) Kind() string   { return "add-nexthop" }

func (s DropProgram) String() string {
	if s.Program.Hook.IsXDP() {
		return in(s.In, fmt.Sprintf("ip link set dev $DEV %s off", s.Program.Hook))
	}
	return in(s.In, fmt.Sprintf("bpftool net detach %s id %d dev $DEV", s.Program.Hook, s.Program.ID))
}

func (s SetLinkAttr) String() string { return in(s.In, "ip link set dev $DEV "+s.Attr.Text(s.To)) }

func (s SetFeatures) String() string {
	var b strings.Builder
	for _, bit := range s.Bits {
		b.WriteString(" " + s.Want.Name(bit))
		if s.Want.On(bit) {
			b.WriteString(" on")
		} else {
			b.WriteString(" off")
		}
	}
	return in(s.In, "ethtool -K $DEV"+b.String())
}

func (s SetQueues) String() string {
	var lines []string
	for _, f := range slices.Sorted(maps.Keys(s.Files)) {
		lines = append(lines, in(s.In, fmt.Sprintf("echo %s >/sys/class/net/$DEV/%s", s.Files[f], f)))
	}
	return strings.Join(lines, "\n")
}

func (s SetSysctls) String() string {
	var lines []string
	for _, f := range slices.Sorted(maps.Keys(s.Files)) {
		value := s.Files[f]
		if f == device.StableSecret { // errors end up where everybody reads them
			value = "$SECRET"
		}
		name := strings.ReplaceAll(strings.Replace(f, "%", "$DEV", 1), "/", ".")
		lines = append(lines, in(s.In, "sysctl -w net."+name+"="+value))
	}
	return strings.Join(lines, "\n")
}

func (s AddQdisc) String() string { return in(s.In, "tc qdisc add dev $DEV "+s.Qdisc.String()) }
func (s AddNeighbour) String() string {
	return in(s.In, "ip neigh add "+s.Neighbour.String()+" dev $DEV")
}
func (s AddNexthop) String() string {
	return in(s.In, "ip nexthop add "+s.Nexthop.String()+" dev $DEV")
}

// dropPrograms returns the steps that take off the netdev the BPF programs that it did not have before: those of a pod
// stay on it wherever it goes, and would see or drop what the host sends and receives, and the next pod. See kernel
// fact 30 in docs/kernel.md. Of a netdev whose programs were not recorded nothing is known.
func dropPrograms(side Side, was, have *device.Netdev) []Step {
	if was.Kept.Attrs == nil {
		return nil
	}
	var steps []Step
	for _, p := range have.Kept.Programs {
		same := func(w device.Program) bool { return w.Hook == p.Hook && w.ID == p.ID }
		if !slices.ContainsFunc(was.Kept.Programs, same) {
			steps = append(steps, DropProgram{In: side, Program: p})
		}
	}
	return steps
}

// keptDown returns the steps for what has to be set before the netdev comes up: an address that IPv6 makes depends on
// the secret, whether it is up for others on the link mode.
func keptDown(side Side, was, have *device.Netdev) []Step {
	var steps []Step
	w, h := was.Kept, have.Kept
	for _, a := range device.LinkAttrsToSet(w.Attrs, h.Attrs) {
		steps = append(steps, SetLinkAttr{In: side, Attr: a, To: w.Attrs[a]})
	}
	if bits := w.Features.Differing(h.Features); len(bits) > 0 {
		want := *w.Features
		want.Names = h.Features.Names
		steps = append(steps, SetFeatures{In: side, Want: want, Bits: bits})
	}
	conf := device.FilesToSet(w.Sysctls, h.Sysctls, "")
	if secret, ok := w.Sysctls[device.StableSecret]; ok && was.AddrGenMode != have.AddrGenMode {
		if conf == nil {
			conf = map[string]string{}
		}
		conf[device.StableSecret] = secret
	}
	if len(conf) > 0 {
		steps = append(steps, SetSysctls{In: side, Files: conf})
	}
	// Alone: a mode that is refused must not hold up the rest. A secret has set the mode stable-privacy already.
	if _, secret := conf[device.StableSecret]; len(was.IPv6Conf) > 0 && was.AddrGenMode != have.AddrGenMode &&
		(!secret || was.AddrGenMode != device.StablePrivacy) {
		steps = append(steps, SetLink{In: side, Attrs: Attrs{AddrGen: &was.AddrGenMode}})
	}
	return steps
}

// restoredNexthops come before the routes that use them.
func restoredNexthops(side Side, was, have *device.Netdev) []Step {
	if !was.Up() {
		return nil // there can't have been any
	}
	var steps []Step
	for _, n := range was.Kept.Nexthops {
		same := func(h device.Nexthop) bool { return h.ID == n.ID }
		if !slices.ContainsFunc(have.Kept.Nexthops, same) {
			steps = append(steps, AddNexthop{In: side, Nexthop: n})
		}
	}
	return steps
}

// keptUp returns the steps for what a netdev that is down does not have, or its driver sets when it comes up.
func keptUp(side Side, was, have *device.Netdev) []Step {
	var steps []Step
	w, h := was.Kept, have.Kept
	for _, n := range w.Neighbours {
		same := func(o device.Neighbour) bool { return o.Dst == n.Dst && o.Proxy == n.Proxy }
		if was.Up() && !slices.ContainsFunc(h.Neighbours, same) {
			steps = append(steps, AddNeighbour{In: side, Neighbour: n})
		}
	}
	for _, q := range w.Qdiscs {
		same := func(o device.Qdisc) bool { return o.Parent == q.Parent && o.Kind == q.Kind }
		if !slices.ContainsFunc(h.Qdiscs, same) {
			steps = append(steps, AddQdisc{In: side, Qdisc: q})
		}
	}
	if files := device.FilesToSet(w.Queues, h.Queues, "0"); len(files) > 0 {
		steps = append(steps, SetQueues{In: side, Files: files})
	}
	return steps
}

// lostKept is what is left of it after a move: the kernel keeps nothing that is not the netdev's own.
func lostKept(k device.Kept) device.Kept {
	if k.Sysctls != nil {
		k.Sysctls = map[string]string{}
	}
	k.Qdiscs, k.Neighbours, k.Nexthops = nil, nil, nil
	return k
}
