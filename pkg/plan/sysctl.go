package plan

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Per-netdev IPv4 settings that a rail changes, by IPV4_DEVCONF_* (include/uapi/linux/ip.h).
const (
	rpFilter    = 8
	arpAnnounce = 18
	arpIgnore   = 19
	arpNotify   = 22
)

// disableIPv6 is DEVCONF_DISABLE_IPV6 (include/uapi/linux/ipv6.h).
const disableIPv6 = 26

// ipv4ConfNames are the sysctl names of IPV4_DEVCONF_*, which count from 1. Settings added by later kernels are
// restored by number all the same.
var ipv4ConfNames = [...]string{
	1: "forwarding",
	"mc_forwarding",
	"proxy_arp",
	"accept_redirects",
	"secure_redirects",
	"send_redirects",
	"shared_media",
	"rp_filter",
	"accept_source_route",
	"bootp_relay",
	"log_martians",
	"tag",
	"arp_filter",
	"medium_id",
	"disable_xfrm",
	"disable_policy",
	"force_igmp_version",
	"arp_announce",
	"arp_ignore",
	"promote_secondaries",
	"arp_accept",
	"arp_notify",
	"accept_local",
	"src_valid_mark",
	"proxy_arp_pvlan",
	"route_localnet",
	"igmpv2_unsolicited_report_interval",
	"igmpv3_unsolicited_report_interval",
	"ignore_routes_with_linkdown",
	"drop_unicast_in_l2_multicast",
	"drop_gratuitous_arp",
	"bc_forwarding",
	"arp_evict_nocarrier",
}

func ipv4ConfName(k int) string {
	if k > 0 && k < len(ipv4ConfNames) {
		return ipv4ConfNames[k]
	}
	return fmt.Sprint(k)
}

// readOnlyIPv4 are IPV4_DEVCONF_* that follow from something else: mc_forwarding belongs to the multicast routing
// daemon.
func readOnlyIPv4(k int) bool { return k == 2 }

// ipv6Conf names the per-netdev IPv6 settings an administrator sets, by DEVCONF_* (include/uapi/linux/ipv6.h), which
// rtnetlink can read but not write. Those the kernel computes (mtu, timers, addr_gen_mode) are not among them.
var ipv6Conf = []struct {
	index int
	name  string
}{
	{0, "forwarding"},
	{1, "hop_limit"},
	{3, "accept_ra"},
	{4, "accept_redirects"},
	{5, "autoconf"},
	{6, "dad_transmits"},
	{7, "router_solicitations"},
	{10, "use_tempaddr"},
	{17, "accept_ra_defrtr"},
	{18, "accept_ra_pinfo"},
	{22, "proxy_ndp"},
	{24, "accept_source_route"},
	{26, "disable_ipv6"},
	{27, "accept_dad"},
	{28, "force_tllao"},
	{29, "ndisc_notify"},
	{32, "suppress_frag_ndisc"},
	{35, "accept_ra_mtu"},
	{39, "ignore_routes_with_linkdown"},
	{40, "drop_unicast_in_l2_multicast"},
	{42, "keep_addr_on_down"},
}

// confDiff returns the settings in which have differs from want.
func confDiff(want, have *device.Netdev) (v4 map[int]uint32, v6 map[string]int32) {
	for i := range min(len(want.IPv4Conf), len(have.IPv4Conf)) {
		if want.IPv4Conf[i] != have.IPv4Conf[i] && !readOnlyIPv4(i+1) {
			if v4 == nil {
				v4 = map[int]uint32{}
			}
			v4[i+1] = want.IPv4Conf[i]
		}
	}
	for _, c := range ipv6Conf {
		if c.index < len(want.IPv6Conf) && c.index < len(have.IPv6Conf) &&
			want.IPv6Conf[c.index] != have.IPv6Conf[c.index] {
			if v6 == nil {
				v6 = map[string]int32{}
			}
			v6[c.name] = want.IPv6Conf[c.index]
		}
	}
	return v4, v6
}
