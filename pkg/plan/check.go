package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Problem is one difference between what an attachment should be and what it is.
type Problem struct{ Field, Want, Got string }

func (p Problem) String() string { return fmt.Sprintf("%s: want %s, got %s", p.Field, p.Want, p.Got) }

// Want is what the journal and the prevResult promise.
type Want struct {
	Kind     string // of the journal entry
	Address  device.Address
	Netdev   *device.Netdev // snapshot of the host; nil for a child and for an RDMA device without a netdev
	HCA      *device.HCA    // nil: not moved
	RDMAName string
	PKey     device.PKey // of a child; 0 otherwise
	MAC      string
	MTU      int
	IP       *Addressing // nil: unknown
}

// Now is what the pod has.
type Now struct {
	NetnsOK bool
	IfName  string
	Netdev  *device.Netdev // with addresses and routes; nil: no interface of the name
	HCA     *device.HCA    // nil: not in the pod
	Rules   []device.Rule
}

// Check lists every difference.
func Check(sourceBased bool, want Want, now Now) []Problem {
	var out []Problem
	add := func(field string, want, got any) {
		if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
			out = append(out, Problem{field, w, g})
		}
	}
	if !now.NetnsOK {
		out = append(out, Problem{"network namespace", "the one of ADD", "another one"})
	}
	if want.HCA != nil {
		name := want.HCA.Name
		if want.RDMAName != "" {
			name = want.RDMAName
		}
		if now.HCA == nil {
			out = append(out, Problem{"RDMA device", name, "not in the pod"})
		} else {
			add("RDMA device", name, now.HCA.Name)
		}
	}
	if want.Netdev == nil && want.PKey == 0 {
		return out
	}
	n := now.Netdev
	if n == nil {
		return append(out, Problem{"interface", now.IfName, "none of this name in the pod"})
	}
	if !want.Address.IsZero() && !n.Address.IsZero() { // before 5.14 the kernel does not report it in a pod
		add("device", want.Address, n.Address)
	}
	if n.Name != now.IfName {
		add("interface name", now.IfName, n.Name)
	}
	if !n.Up() {
		out = append(out, Problem{"interface state", "up", "down"})
	}
	if want.MTU != 0 {
		add("mtu", want.MTU, n.MTU)
	}
	if want.MAC != "" {
		add("hardware address", want.MAC, n.HWAddr)
	}
	if want.PKey != 0 && n.IPoIB != nil {
		add("pkey", want.PKey|device.FullMember, n.IPoIB.PKey|device.FullMember)
	}
	if want.IP != nil {
		out = append(out, checkIP(sourceBased, want.IP, now)...)
	}
	return out
}

func checkIP(sourceBased bool, ip *Addressing, now Now) []Problem {
	var out []Problem
	n := now.Netdev
	for _, p := range ip.Addrs {
		if !slices.ContainsFunc(n.Addrs, func(a device.Addr) bool { return a.Prefix == p }) {
			out = append(out, Problem{"address", p.String(), "missing"})
		}
	}
	routes := MainRoutes(sourceBased, ip)
	if sourceBased {
		routes = append(routes, RailRoutes(ip, Table(n.Index))...)
		for _, r := range RailRules(ip, Table(n.Index)) {
			if !slices.Contains(now.Rules, r) {
				out = append(out, Problem{"rule", r.String(), "missing"})
			}
		}
		conf := railConf(n)
		for _, k := range slices.Sorted(maps.Keys(conf)) {
			if k <= len(n.IPv4Conf) {
				out = append(
					out,
					Problem{
						"net.ipv4.conf." + n.Name + "." + ipv4ConfName(k),
						fmt.Sprint(conf[k]),
						fmt.Sprint(n.IPv4Conf[k-1]),
					},
				)
			}
		}
	}
	for _, r := range routes {
		if !slices.ContainsFunc(n.Routes, func(h device.Route) bool {
			return h.Dst == r.Dst && h.Gateway == r.Gateway && h.Table == r.Table
		}) {
			out = append(out, Problem{"route", r.String(), "missing"})
		}
	}
	return out
}
