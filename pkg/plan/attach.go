package plan

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Attach returns the steps that bring the device into the pod and up, ready for Configure.
//
// The RDMA device goes first: its move destroys the IPoIB netdev, in whatever namespace, and makes a new one, on the
// host up to Linux 6.16 and in the pod since 6.17. The new netdev is then moved and named in one message: one grace
// period, no moment under a wrong name in the pod, nothing for udev to race with.
// See kernel facts 1 to 4 in docs/kernel.md.
func Attach(cfg *netconf.Config, ifName string, hca *device.HCA, netdev *device.Netdev) []Step {
	var steps []Step
	if hca != nil {
		move := MoveRDMA{HCA: *hca, To: Pod}
		if cfg.RDMAName != hca.Name {
			move.Name = cfg.RDMAName
		}
		steps = append(steps, move)
		steps = append(steps, roce(cfg, hca)...)
		if netdev != nil && netdev.IsIPoIB() {
			steps = append(steps, AwaitNetdev{*netdev})
		}
	}
	if netdev != nil {
		// With the host's addresses it comes up only when it takes no default route.
		steps = append(steps, MoveNetdev{Netdev: *netdev, To: Pod, Name: ifName, Up: !cfg.HostAddresses})
	}
	return steps
}

// roce gives the RDMA device in the pod the connection manager's defaults that it had on the host, which the move has
// reset, or those that the configuration asks for. The driver's traffic class is not affected by a move.
func roce(cfg *netconf.Config, hca *device.HCA) (steps []Step) {
	there := *hca
	set(&there.Name, cfg.RDMAName)
	for _, p := range hca.Ports {
		if p.LinkLayer != device.Ethernet {
			continue
		}
		var to device.CM
		if p.CM != nil {
			to = *p.CM
		}
		asked := cfg.TOS != nil || cfg.RoCEMode != ""
		if cfg.TOS != nil {
			to.TOS = *cfg.TOS
		}
		set(&to.RoCE, roceModes[cfg.RoCEMode])
		if asked || !to.Reset() {
			steps = append(steps, SetCM{In: Pod, HCA: there, Port: p.Number, To: to})
		}
		if cfg.Class != nil && p.TrafficClass != nil && int(*cfg.Class) != *p.TrafficClass {
			steps = append(steps, SetTrafficClass{In: Pod, HCA: there, Port: p.Number, To: int(*cfg.Class)})
		}
	}
	return steps
}

// roceModes are the modes of the configuration as the kernel writes them.
var roceModes = map[string]string{"v1": device.RoCEv1, "v2": device.RoCEv2}

// Configure returns the steps that give the netdev in the pod (have) the settings it had on the host (was) and those
// that the configuration asks for. was is nil for a new IPoIB child, vf for what is no virtual function, host without
// the addresses of the host.
func Configure(cfg *netconf.Config, was, have *device.Netdev, vf *device.VF, host *OnHost) []Step {
	var a Attrs
	var steps []Step
	if host != nil {
		steps = advertisements(was, host)
		have = new(*have)
		have.Flags |= device.FlagUp
	}
	mtu := cfg.MTU
	if was != nil {
		if mtu == 0 {
			mtu = was.MTU
		}
		if was.IPoIB != nil && have.IPoIB != nil {
			a.Mode = differs(was.IPoIB.Mode, have.IPoIB.Mode)
			a.Umcast = differs(was.IPoIB.Umcast, have.IPoIB.Umcast)
		}
		a.TxQueue = differs(was.TxQueue, have.TxQueue)
	}
	if mtu != 0 && (mtu != have.MTU || a.Mode != nil) { // a new mode brings its own
		a.MTU = mtu
	}
	if cfg.SourceBased {
		a.IPv4Conf = railConf(have)
	}
	if have.ARPType == ethernet && vf != nil {
		notify(&a, have)
	}
	if mac := cfg.VF.MAC; mac != nil && vf == nil && !bytes.Equal(mac, have.HWAddr) {
		steps = append(steps, newMAC(Pod, mac, have.Up(), true)...)
	}
	if !a.isZero() {
		steps = append(steps, SetLink{In: Pod, Attrs: a})
	}
	if was != nil {
		// The host's name comes last: where the journal is lost, this is how it is recognised.
		if add := missingNames(append(slices.Clone(was.AltNames), was.Name), have); len(add) > 0 {
			steps = append(steps, AltNames{In: Pod, Add: add})
		}
	}
	return steps
}

// railConf makes rails on one subnet answer for themselves: arp_ignore 1 (answer only for addresses of the interface
// that was asked), arp_announce 2 (ask with the interface's own address), rp_filter 2 (loose: the way back may look as
// if it went over another rail). Documentation/networking/ip-sysctl.rst.
func railConf(have *device.Netdev) map[int]uint32 {
	conf := map[int]uint32{}
	for k, v := range map[int]uint32{arpIgnore: 1, arpAnnounce: 2, rpFilter: 2} {
		if k > len(have.IPv4Conf) || have.IPv4Conf[k-1] != v {
			conf[k] = v
		}
	}
	return conf
}

// Addressing is what IPAM has decided, in plain values.
type Addressing struct {
	Addrs    []netip.Prefix
	Gateways []netip.Addr // beside Addrs; invalid without one
	Routes   []device.Route

	// Of an interface that keeps the host's: the addresses beside Addrs with all that the host has of them, and rules.
	Full  []device.Addr
	Rules []device.Rule
}

// gateway returns the first gateway of the route's family: it serves the routes that name none, as in CNI's
// ipam.ConfigureIface.
func (a *Addressing) gateway(like netip.Addr) netip.Addr {
	for _, g := range a.Gateways {
		if g.IsValid() && g.Is4() == like.Is4() {
			return g
		}
	}
	return netip.Addr{}
}

// Address returns the steps that put addresses, routes and rules on the netdev in the pod, and announce the addresses.
func Address(cfg *netconf.Config, ip *Addressing, have *device.Netdev) []Step {
	var steps []Step
	var addrs []device.Addr
	if slices.ContainsFunc(ip.Addrs, isIPv6) && len(have.IPv6Conf) > disableIPv6 && have.IPv6Conf[disableIPv6] != 0 {
		// That is the runtime's default for IPv4-only pods.
		steps = append(steps, SetLink{In: Pod, Attrs: Attrs{IPv6Conf: map[string]int32{"disable_ipv6": 0}}})
	}
	if cfg.DetectConflicts && len(ip.Addrs) > 0 {
		// After IPv6 is on, which joins the group that answers go to, and before any address: who has none is not
		// believed to have it, and its packets are not answered.
		var probe Probe
		for _, p := range ip.Addrs {
			probe.Addrs = append(probe.Addrs, p.Addr())
		}
		steps = append(steps, probe)
	}
	for i, p := range ip.Addrs {
		a := NewAddr(p)
		if i < len(ip.Full) {
			a = ip.Full[i]
		}
		addrs = append(addrs, a)
		steps = append(steps, AddAddr{In: Pod, Addr: a})
	}
	for _, r := range MainRoutes(cfg.SourceBased, ip) {
		steps = append(steps, AddRoute{In: Pod, Route: r})
	}
	if cfg.SourceBased {
		table := Table(have.Index)
		for _, r := range RailRoutes(ip, table) {
			steps = append(steps, AddRoute{In: Pod, Route: r})
		}
		for _, r := range RailRules(ip, table) {
			steps = append(steps, AddRule{r})
		}
	}
	for _, r := range ip.Rules {
		steps = append(steps, AddRule{r})
	}
	if len(addrs) > 0 {
		steps = append(steps, Announce{addrs})
	}
	return steps
}

const ethernet = 1 // ARPHRD_ETHER

// Flags and protocols of what we add (include/uapi/linux/{if_addr,rtnetlink}.h).
const (
	addrNoDAD    = 0x02
	protoBoot    = 3
	scopeUniv    = 0
	scopeLink    = 253
	typeUnicast  = 1
	tableMain    = 254
	protoKernel  = 2
	rulePriority = 20000
)

// NewAddr is an address as we add it: IPv6 without duplicate address detection, because IPAM has made sure and the pod
// is to use it at once.
func NewAddr(p netip.Prefix) device.Addr {
	a := device.Addr{Prefix: p, Valid: ^uint32(0), Preferred: ^uint32(0)}
	if p.Addr().Is6() {
		a.Flags = addrNoDAD
		return a
	}
	if p.Bits() < 31 { // RFC 3021: no broadcast on point-to-point prefixes
		a.Broadcast = broadcast(p)
	}
	return a
}

func isIPv6(p netip.Prefix) bool { return p.Addr().Is6() }

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

// Table is the routing table of a rail. ifindexes are unique in a namespace, so that rails attached at the same time
// need not agree.
func Table(ifindex int) uint32 { return uint32(20000 + ifindex) }

// MainRoutes are the routes from IPAM for the main table. With source-based routing a default route is for the rail's
// own table only: in main it would compete with the pod's.
func MainRoutes(sourceBased bool, ip *Addressing) []device.Route {
	var out []device.Route
	for _, r := range ip.Routes {
		if sourceBased && r.Dst.Bits() == 0 && r.Table == 0 {
			continue
		}
		out = append(out, resolve(r, ip))
	}
	return out
}

func resolve(r device.Route, ip *Addressing) device.Route {
	if !r.Gateway.IsValid() && r.Scope != scopeLink {
		r.Gateway = ip.gateway(r.Dst.Addr())
	}
	if !r.Gateway.IsValid() && r.Dst.Addr().Is4() {
		r.Scope = scopeLink
	}
	if r.Table == 0 {
		r.Table = tableMain
	}
	r.Dst, r.Protocol, r.Type = r.Dst.Masked(), protoBoot, typeUnicast // as the kernel keeps it
	return r
}

// RailRoutes are the routes of a rail's own table: its subnets, a default route through its gateway, and IPAM's routes.
func RailRoutes(ip *Addressing, table uint32) []device.Route {
	var out []device.Route
	for i, p := range ip.Addrs {
		if i < len(ip.Full) && ip.Full[i].NoRoute { // its prefix is not on the link
			continue
		}
		connected := device.Route{Dst: p.Masked(), Table: table, Protocol: protoBoot, Type: typeUnicast}
		if p.Addr().Is4() {
			connected.Scope, connected.Src = scopeLink, p.Addr()
		}
		out = append(out, connected)
		if i < len(ip.Gateways) && ip.Gateways[i].IsValid() {
			def := device.Route{
				Dst:      defaultOf(p.Addr()),
				Gateway:  ip.Gateways[i],
				Table:    table,
				Protocol: protoBoot,
				Type:     typeUnicast,
			}
			out = append(out, def)
		}
	}
	for _, r := range ip.Routes {
		if r.Table != 0 {
			continue // IPAM has chosen a table itself
		}
		r = resolve(r, ip)
		r.Table, r.Raw = table, nil // the message names its table
		if !slices.ContainsFunc(out, func(o device.Route) bool { return o.Dst == r.Dst && o.Priority == r.Priority }) {
			out = append(out, r)
		}
	}
	return out
}

// RailRules send what comes from the rail's addresses to the rail's table.
func RailRules(ip *Addressing, table uint32) []device.Rule {
	var out []device.Rule
	for _, p := range ip.Addrs {
		src := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		out = append(out, device.Rule{Src: src, Table: table, Priority: rulePriority})
	}
	return out
}

func defaultOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func differs[T comparable](want, have T) *T {
	if want == have {
		return nil
	}
	return &want
}

func missingNames(want []string, have *device.Netdev) []string {
	var out []string
	for _, n := range want {
		if n != have.Name && !slices.Contains(have.AltNames, n) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (a *Attrs) isZero() bool {
	return a.Name == "" && a.HWAddr == nil && a.Alias == nil && a.MTU == 0 && a.TxQueue == nil && a.Group == nil &&
		a.Mask == 0 && a.Mode == nil && a.Umcast == nil && a.AddrGen == nil && !a.Token.IsValid() &&
		len(a.IPv4Conf) == 0 && len(a.IPv6Conf) == 0
}
