package guest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// takeAddrs describes the addresses of each link, without the state of duplicate address detection.
func takeAddrs(names map[int]string) (map[string][]string, error) {
	messages, err := dumpRaw(
		unix.RTM_GETADDR,
		unix.RTM_NEWADDR,
		func() nl.NetlinkRequestData { return nl.NewIfInfomsg(unix.AF_UNSPEC) },
	)
	if err != nil {
		return nil, err
	}
	fields := map[uint16]field{
		unix.IFA_ADDRESS: {
			"address",
			ipForm,
		},
		unix.IFA_LOCAL:       {"local", ipForm},
		unix.IFA_BROADCAST:   {"broadcast", ipForm},
		unix.IFA_LABEL:       {"label", nameForm},
		unix.IFA_RT_PRIORITY: {"metric", u32Form},
		unix.IFA_FLAGS: {"flags", func(v []byte) string {
			volatile := uint32(unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC)
			return fmt.Sprintf("%#x", binary.NativeEndian.Uint32(v)&^volatile)
		}},
		unix.IFA_CACHEINFO: {"valid", func(v []byte) string {
			if binary.NativeEndian.Uint32(v[4:]) == 0xffffffff {
				return "forever"
			}
			return "for a while"
		}},
	}
	addrs := make(map[string][]string)
	for _, m := range messages {
		a, err := parseAttrs(m[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, err
		}
		name := names[int(binary.NativeEndian.Uint32(m[4:]))]
		addrs[name] = append(addrs[name], fmt.Sprintf("/%d scope %d%s", m[1], m[3], describe(a, fields)))
	}
	for _, list := range addrs {
		slices.Sort(list)
	}
	return addrs, nil
}

// takeRoutes describes the routes of all tables, without what depends on the carrier or on use.
func takeRoutes(names map[int]string) ([]string, error) {
	link := func(v []byte) string { return names[int(binary.NativeEndian.Uint32(v))] }
	fields := map[uint16]field{
		unix.RTA_DST: {"to", ipForm}, unix.RTA_SRC: {"from", ipForm}, unix.RTA_GATEWAY: {"via", ipForm},
		unix.RTA_PREFSRC: {"src", ipForm}, unix.RTA_OIF: {"dev", link}, unix.RTA_IIF: {"iif", link},
		unix.RTA_PRIORITY: {"metric", u32Form}, unix.RTA_TABLE: {"table", u32Form},
		unix.RTA_MULTIPATH: {"nexthops", func(v []byte) string { return nextHops(v, names) }},
		unix.RTA_CACHEINFO: {}, unix.RTA_EXPIRES: {},
	}
	var routes []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		messages, err := dumpRaw(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, func() nl.NetlinkRequestData {
			return &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}}
		})
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			h := nl.DeserializeRtMsg(m)
			if h.Flags&unix.RTM_F_CLONED != 0 {
				continue
			}
			a, err := parseAttrs(m[h.Len():])
			if err != nil {
				return nil, err
			}
			routes = append(
				routes,
				fmt.Sprintf(
					"inet%d /%d/%d tos %d type %d scope %d proto %d flags %#x%s",
					family,
					h.Dst_len,
					h.Src_len,
					h.Tos,
					h.Type,
					h.Scope,
					h.Protocol,
					h.Flags&(unix.RTNH_F_ONLINK|unix.RTNH_F_PERVASIVE),
					describe(a, fields),
				),
			)
		}
	}
	slices.Sort(routes)
	return routes, nil
}

// nextHops describes the next hops of a multipath route.
func nextHops(data []byte, names map[int]string) string {
	var hops []string
	for len(data) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(data))
		if length < unix.SizeofRtNexthop || length > len(data) {
			break
		}
		a, err := parseAttrs(data[unix.SizeofRtNexthop:length])
		if err != nil {
			break
		}
		index := int(binary.NativeEndian.Uint32(data[4:]))
		hops = append(
			hops,
			fmt.Sprintf(
				"[dev %s weight %d%s]",
				names[index],
				data[3]+1,
				describe(a, map[uint16]field{unix.RTA_GATEWAY: {"via", ipForm}}),
			),
		)
		data = data[min(len(data), (length+3)&^3):]
	}
	return strings.Join(hops, " ")
}

// takeRules describes the policy rules of both families.
func takeRules() ([]string, error) {
	fields := map[uint16]field{
		nl.FRA_DST: {"to", ipForm}, nl.FRA_SRC: {"from", ipForm}, nl.FRA_IIFNAME: {"iif", nameForm},
		nl.FRA_OIFNAME: {"oif", nameForm}, nl.FRA_PRIORITY: {"priority", u32Form}, nl.FRA_TABLE: {"table", u32Form},
	}
	var rules []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		messages, err := dumpRaw(unix.RTM_GETRULE, unix.RTM_NEWRULE, func() nl.NetlinkRequestData {
			return &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}}
		})
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			h := nl.DeserializeRtMsg(m)
			a, err := parseAttrs(m[h.Len():])
			if err != nil {
				return nil, err
			}
			rules = append(
				rules,
				fmt.Sprintf(
					"inet%d /%d/%d tos %d action %d flags %#x%s",
					family,
					h.Dst_len,
					h.Src_len,
					h.Tos,
					h.Type,
					h.Flags,
					describe(a, fields),
				),
			)
		}
	}
	slices.Sort(rules)
	return rules, nil
}
