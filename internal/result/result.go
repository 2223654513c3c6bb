// Package result holds a CNI result as plain values: what an IPAM plugin answers, what an earlier plugin of a chain has
// done (prevResult), and what this plugin prints. It reads and writes every spec version from 0.3.0 to 1.1.0, and does
// no I/O but writing to the writer it is given.
package result

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Result is a CNI result, or a part of one.
type Result struct {
	Interfaces []Interface
	Addresses  []Address
	Routes     []Route
	DNS        netconf.DNS
}

// Interface is a netdev that a plugin made or moved.
type Interface struct {
	Name       string
	MAC        string // as net.HardwareAddr.String writes it: 6 bytes, or 20 for IPoIB
	MTU        int    // bytes; 0: not told (the spec has it since 1.1.0)
	Sandbox    string // path of the network namespace; empty: on the host
	SocketPath string // since 1.1.0, for devices without a netdev; passed on only
	PCIID      string // since 1.1.0: bus address of the device
}

// NoInterface is the Interface of an Address that belongs to none of Result.Interfaces.
const NoInterface = -1

// Address is an address with its prefix length, as in 10.1.2.3/24.
type Address struct {
	Prefix    netip.Prefix
	Gateway   netip.Addr // zero: none
	Interface int        // index into Result.Interfaces, or NoInterface
}

// Route is a route as the CNI spec has it. A nil pointer leaves the choice to the plugin that sets the route.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // zero: none given; plugins use the gateway of an address of the same family then
	MTU      int        // bytes; 0: not set
	AdvMSS   int        // bytes; 0: not set
	Priority int        // metric; 0: the kernel's default
	Table    *int
	Scope    *int // RT_SCOPE_*
}

// The shapes of a result are the same in all of these; a version only adds fields.
var versions = [...]string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func checkVersion(v string) error {
	if slices.Contains(versions[:], v) {
		return nil
	}
	return fmt.Errorf("CNI version %q: want one of %q", v, versions)
}

// Parse reads a result. One that does not name its version has that of the configuration (containernetworking/cni
// issue 895). An address that points to an interface which is not there is kept, as belonging to no interface.
func Parse(raw []byte, confVersion string) (*Result, error) {
	var in types100.Result
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("decode CNI result: %w", err)
	}
	if in.CNIVersion == "" {
		in.CNIVersion = confVersion
	}
	if err := checkVersion(in.CNIVersion); err != nil {
		return nil, fmt.Errorf("decode CNI result: %w", err)
	}
	for list, n := range map[string]int{
		"interfaces": len(in.Interfaces), "ips": len(in.IPs), "routes": len(in.Routes),
		"dns.nameservers": len(in.DNS.Nameservers), "dns.search": len(in.DNS.Search),
		"dns.options": len(in.DNS.Options),
	} {
		if e := netconf.TooLong(list, n); e != nil {
			return nil, fmt.Errorf("decode CNI result: %w", e)
		}
	}
	out, err := fromCNI(&in)
	if err != nil {
		return nil, fmt.Errorf("decode CNI result: %w", err)
	}
	return out, nil
}

func fromCNI(in *types100.Result) (*Result, error) {
	out := &Result{DNS: netconf.DNS(in.DNS)}
	for i, f := range in.Interfaces {
		if f == nil {
			return nil, fmt.Errorf("interfaces[%d] is null", i)
		}
		out.Interfaces = append(out.Interfaces, Interface{f.Name, f.Mac, f.Mtu, f.Sandbox, f.SocketPath, f.PciID})
	}
	for i, p := range in.IPs {
		if p == nil {
			return nil, fmt.Errorf("ips[%d] is null", i)
		}
		a, err := addressOf(p, len(in.Interfaces))
		if err != nil {
			return nil, fmt.Errorf("ips[%d]: %w", i, err)
		}
		out.Addresses = append(out.Addresses, a)
	}
	for i, r := range in.Routes {
		if r == nil {
			return nil, fmt.Errorf("routes[%d] is null", i)
		}
		dst, err := prefixOf(r.Dst)
		if err != nil {
			return nil, fmt.Errorf("routes[%d].dst: %w", i, err)
		}
		out.Routes = append(out.Routes, Route{dst, addrOf(r.GW), r.MTU, r.AdvMSS, r.Priority, r.Table, r.Scope})
	}
	return out, nil
}

func addressOf(p *types100.IPConfig, interfaces int) (Address, error) {
	prefix, err := prefixOf(p.Address)
	if err != nil {
		return Address{}, fmt.Errorf("address: %w", err)
	}
	a := Address{prefix, addrOf(p.Gateway), NoInterface}
	if a.Gateway.IsValid() && a.Gateway.Is4() != prefix.Addr().Is4() {
		return Address{}, fmt.Errorf("gateway %s is of another family than address %s", a.Gateway, prefix)
	}
	if p.Interface != nil && *p.Interface >= 0 && *p.Interface < interfaces {
		a.Interface = *p.Interface
	}
	return a, nil
}

// addrOf gives the zero Addr for an absent address.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// prefixOf keeps the host bits. An IPv4 address may come with a mask of 4 or of 16 bytes.
func prefixOf(n net.IPNet) (netip.Prefix, error) {
	a := addrOf(n.IP)
	ones, bits := n.Mask.Size()
	if a.Is4() && bits == 128 {
		ones -= 96
	}
	p := netip.PrefixFrom(a, ones)
	if !p.IsValid() || bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%q is no address with a prefix length", n.String())
	}
	return p, nil
}

// Print writes the result as indented JSON in the given spec version. Below 1.0.0 interfaces have no MTU, socket path
// and bus address; 1.0.0 has them here as in containernetworking/cni, where its types are those of 1.1.0.
func (r *Result) Print(w io.Writer, version string) error {
	if err := checkVersion(version); err != nil {
		return fmt.Errorf("print CNI result: %w", err)
	}
	out, err := r.toCNI().GetAsVersion(version)
	if err != nil {
		return fmt.Errorf("print CNI result: %w", err)
	}
	if err := out.PrintTo(w); err != nil {
		return fmt.Errorf("print CNI result: %w", err)
	}
	return nil
}

func (r *Result) toCNI() *types100.Result {
	out := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: types.DNS(r.DNS)}
	for _, f := range r.Interfaces {
		out.Interfaces = append(out.Interfaces, &types100.Interface{
			Name: f.Name, Mac: f.MAC, Mtu: f.MTU, Sandbox: f.Sandbox, SocketPath: f.SocketPath, PciID: f.PCIID,
		})
	}
	for _, a := range r.Addresses {
		p := &types100.IPConfig{Address: ipNet(a.Prefix), Gateway: a.Gateway.AsSlice()}
		if a.Interface >= 0 && a.Interface < len(r.Interfaces) {
			p.Interface = types100.Int(a.Interface)
		}
		out.IPs = append(out.IPs, p)
	}
	for _, t := range r.Routes {
		out.Routes = append(out.Routes, &types.Route{
			Dst: ipNet(
				t.Dst,
			),
			GW:       t.Gateway.AsSlice(),
			MTU:      t.MTU,
			AdvMSS:   t.AdvMSS,
			Priority: t.Priority,
			Table:    t.Table,
			Scope:    t.Scope,
		})
	}
	return out
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
