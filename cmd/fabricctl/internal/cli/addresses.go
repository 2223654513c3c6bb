package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// guess says which addresses an IPAM plugin would give, without asking it. It returns nil where that can't be known
// from here: whereabouts and dhcp decide elsewhere.
func guess(cfg *netconf.Config, env netconf.Env) (*plan.Addressing, error) {
	switch cfg.IPAM.Type {
	case "static":
		return static(cfg.Raw)
	case "host-local":
		return hostLocal(cfg.Raw, env)
	}
	return nil, nil
}

// route is one of the IPAM configuration, as static and host-local have it.
type route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw"`
}

func routes(list []route) (out []device.Route) {
	for _, r := range list {
		out = append(out, device.Route{Dst: r.Dst, Gateway: r.GW})
	}
	return out
}

// static has its addresses in the configuration. Those of runtimeConfig and CNI_ARGS go before them, and leave the plan
// open.
func static(conf []byte) (*plan.Addressing, error) {
	var c struct {
		Runtime struct {
			IPs []string `json:"ips"`
		} `json:"runtimeConfig"`
		IPAM struct {
			Addresses []struct {
				Address netip.Prefix `json:"address"`
				Gateway netip.Addr   `json:"gateway"`
			} `json:"addresses"`
			Routes []route `json:"routes"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, fmt.Errorf("ipam of type static: %w", err)
	}
	if len(c.Runtime.IPs) > 0 || len(c.IPAM.Addresses) == 0 {
		return nil, nil
	}
	out := &plan.Addressing{Routes: routes(c.IPAM.Routes)}
	for _, a := range c.IPAM.Addresses {
		out.Addrs, out.Gateways = append(out.Addrs, a.Address), append(out.Gateways, a.Gateway)
	}
	return out, nil
}

// hostLocal runs host-local's own search over a view of its directory that is never written to.
func hostLocal(conf []byte, env netconf.Env) (*plan.Addressing, error) {
	c, _, err := allocator.LoadIPAMConfig(conf, env.Args)
	if err != nil {
		return nil, fmt.Errorf("ipam of type host-local: %w", err)
	}
	var more struct {
		IPAM struct {
			Routes []route `json:"routes"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(conf, &more); err != nil {
		return nil, fmt.Errorf("ipam of type host-local: %w", err)
	}
	out := &plan.Addressing{Routes: routes(more.IPAM.Routes)}
	store := leases(filepath.Join(cmp.Or(c.DataDir, "/var/lib/cni/networks"), c.Name))
	for i := range c.Ranges {
		var wanted net.IP
		for _, ip := range c.IPArgs {
			if c.Ranges[i].Contains(ip) {
				wanted = ip
			}
		}
		got, err := allocator.NewIPAllocator(&c.Ranges[i], store, i).Get(env.ContainerID, env.IfName, wanted)
		if err != nil {
			return nil, fmt.Errorf("ipam of type host-local: %w", err)
		}
		addr, _ := netip.AddrFromSlice(got.Address.IP)
		bits, _ := got.Address.Mask.Size()
		gw, _ := netip.AddrFromSlice(got.Gateway)
		out.Addrs, out.Gateways = append(
			out.Addrs,
			netip.PrefixFrom(addr.Unmap(), bits),
		), append(
			out.Gateways,
			gw.Unmap(),
		)
	}
	return out, nil
}

// leases is host-local's directory of a network, read only: what the allocator takes is not kept, and no lock is
// needed.
type leases string

// Lock does nothing.
func (leases) Lock() error { return nil }

// Unlock does nothing.
func (leases) Unlock() error { return nil }

// Close does nothing.
func (leases) Close() error { return nil }

// ReleaseByID does nothing.
func (leases) ReleaseByID(string, string) error { return nil }

// GetByID finds none: a plan may be for an attachment that is there.
func (leases) GetByID(string, string) []net.IP { return nil }

func (d leases) path(name string) string { return disk.GetEscapedPath(string(d), name) }

// Reserve tells whether the address is free.
func (d leases) Reserve(_, _ string, ip net.IP, _ string) (bool, error) {
	_, err := os.Stat(d.path(ip.String()))
	switch {
	case os.IsNotExist(err):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, nil
}

// LastReservedIP is where the search goes on.
func (d leases) LastReservedIP(rangeID string) (net.IP, error) {
	b, err := os.ReadFile(d.path("last_reserved_ip." + rangeID))
	if err != nil {
		return nil, err
	}
	return net.ParseIP(strings.TrimSpace(string(b))), nil
}
