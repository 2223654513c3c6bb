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
	unit  int32 // what rtnetlink counts in milliseconds and the file in seconds: 1000; 0: no difference
}{
	{0, "forwarding", 0},
	{1, "hop_limit", 0},
	{3, "accept_ra", 0},
	{4, "accept_redirects", 0},
	{5, "autoconf", 0},
	{6, "dad_transmits", 0},
	{7, "router_solicitations", 0},
	{8, "router_solicitation_interval", 1000},
	{9, "router_solicitation_delay", 1000},
	{10, "use_tempaddr", 0},
	{11, "temp_valid_lft", 0},
	{12, "temp_pre" + "fered_lft", 0}, // so the kernel spells it
	{13, "regen_max_retry", 0},
	{14, "max_desync_factor", 0},
	{15, "max_addresses", 0},
	{16, "force_mld_version", 0},
	{17, "accept_ra_defrtr", 0},
	{18, "accept_ra_pinfo", 0},
	{19, "accept_ra_rtr_pref", 0},
	{20, "router_probe_interval", 1000},
	{21, "accept_ra_rt_info_max_plen", 0},
	{22, "proxy_ndp", 0},
	{23, "optimistic_dad", 0},
	{24, "accept_source_route", 0},
	{26, "disable_ipv6", 0},
	{27, "accept_dad", 0},
	{28, "force_tllao", 0},
	{29, "ndisc_notify", 0},
	{30, "mldv1_unsolicited_report_interval", 0},
	{31, "mldv2_unsolicited_report_interval", 0},
	{32, "suppress_frag_ndisc", 0},
	{33, "accept_ra_from_local", 0},
	{34, "use_optimistic", 0},
	{35, "accept_ra_mtu", 0},
	{37, "use_oif_addrs_only", 0},
	{38, "accept_ra_min_hop_limit", 0},
	{39, "ignore_routes_with_linkdown", 0},
	{40, "drop_unicast_in_l2_multicast", 0},
	{41, "drop_unsolicited_na", 0},
	{42, "keep_addr_on_down", 0},
	{43, "router_solicitation_max_interval", 1000},
	{44, "seg6_enabled", 0},
	{45, "seg6_require_hmac", 0},
	{46, "enhanced_dad", 0},
	{48, "disable_policy", 0},
	{49, "accept_ra_rt_info_min_plen", 0},
	{50, "ndisc_tclass", 0},
	{51, "rpl_seg_enabled", 0},
	{52, "ra_defrtr_metric", 0},
	{53, "ioam6_enabled", 0},
	{54, "ioam6_id", 0},
	{55, "ioam6_id_wide", 0},
	{56, "ndisc_evict_nocarrier", 0},
	{57, "accept_untracked_na", 0},
	{58, "accept_ra_min_lft", 0},
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
			v6[c.name] = want.IPv6Conf[c.index] / max(c.unit, 1)
		}
	}
	return v4, v6
}
