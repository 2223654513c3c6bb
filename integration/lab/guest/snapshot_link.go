package guest

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Link is the state of a netdev.
type Link struct {
	AltNames  []string
	Alias     string
	MTU       uint32
	TxQueue   uint32
	Flags     []string
	Kind      string
	IPoIB     map[string]uint16 // pkey, mode, umcast
	HWAddr    string            // of IPoIB only the port GUID: the rest is the queue pair, new at each creation
	Device    string            // "platform fakeib.0"
	Parent    string            // name of the link it is on
	Master    string
	Group     uint32
	IPv4      map[string]uint32 // devconf, by the kernel's number
	IPv6      map[string]uint32
	GenMode   uint8 // of IPv6 addresses
	ProtoDown bool
	Kept      map[string]string // what else a pod can leave there
}

// flags that mean configuration; the others follow the carrier or the type of the device.
var linkFlags = []struct {
	bit  uint32
	name string
}{
	{unix.IFF_UP, "up"}, {unix.IFF_PROMISC, "promisc"}, {unix.IFF_ALLMULTI, "allmulti"}, {unix.IFF_NOARP, "noarp"},
	{unix.IFF_MULTICAST, "multicast"}, {unix.IFF_DEBUG, "debug"}, {unix.IFF_NOTRAILERS, "notrailers"},
	{unix.IFF_DYNAMIC, "dynamic"}, {unix.IFF_PORTSEL, "portsel"}, {unix.IFF_AUTOMEDIA, "automedia"},
}

type rawLink struct {
	link           Link
	name           string
	parent, master int
}

// takeLinks fills names by interface index. It parses the messages itself: the netlink library drops most of them.
func takeLinks(names map[int]string) (map[string]Link, error) {
	messages, err := dumpRaw(
		unix.RTM_GETLINK,
		unix.RTM_NEWLINK,
		func() nl.NetlinkRequestData { return nl.NewIfInfomsg(unix.AF_UNSPEC) },
	)
	if err != nil {
		return nil, err
	}
	var raws []rawLink
	for _, m := range messages {
		info := nl.DeserializeIfInfomsg(m)
		attrs, err := parseAttrs(m[info.Len():])
		if err != nil {
			return nil, fmt.Errorf("parse link %d: %w", info.Index, err)
		}
		raw, err := parseLink(info, attrs)
		if err != nil {
			return nil, fmt.Errorf("parse link %d: %w", info.Index, err)
		}
		names[int(info.Index)] = raw.name
		raws = append(raws, raw)
	}
	links := make(map[string]Link)
	for _, raw := range raws {
		raw.link.Parent, raw.link.Master = names[raw.parent], names[raw.master]
		links[raw.name] = raw.link
	}
	return links, nil
}

func parseLink(info *nl.IfInfomsg, a attrMap) (rawLink, error) {
	raw := rawLink{
		name:   text(a, unix.IFLA_IFNAME),
		parent: int(u32(a, unix.IFLA_LINK)),
		master: int(u32(a, unix.IFLA_MASTER)),
	}
	l := &raw.link
	l.Alias, l.MTU, l.TxQueue = text(a, unix.IFLA_IFALIAS), u32(a, unix.IFLA_MTU), u32(a, unix.IFLA_TXQLEN)
	l.Group = u32(a, unix.IFLA_GROUP)
	l.Device = strings.TrimSpace(text(a, unix.IFLA_PARENT_DEV_BUS_NAME) + " " + text(a, unix.IFLA_PARENT_DEV_NAME))
	l.ProtoDown = len(a[unix.IFLA_PROTO_DOWN]) > 0 && a[unix.IFLA_PROTO_DOWN][0] == 1
	for _, f := range linkFlags {
		if info.Flags&f.bit != 0 {
			l.Flags = append(l.Flags, f.name)
		}
	}
	hw := a[unix.IFLA_ADDRESS]
	if len(hw) == 20 {
		hw = hw[12:]
	}
	l.HWAddr = net.HardwareAddr(hw).String()
	// Several attributes of one type: not for a map.
	props, err := nl.ParseRouteAttr(a[unix.IFLA_PROP_LIST])
	if err != nil {
		return raw, err
	}
	for _, p := range props {
		if p.Attr.Type == unix.IFLA_ALT_IFNAME {
			l.AltNames = append(l.AltNames, nl.BytesToString(p.Value))
		}
	}
	slices.Sort(l.AltNames)
	if err := parseKind(l, a[unix.IFLA_LINKINFO]); err != nil {
		return raw, err
	}
	if err := parseKept(l, a); err != nil {
		return raw, err
	}
	return raw, parseFamilies(l, a[unix.IFLA_AF_SPEC])
}

func parseKind(l *Link, data []byte) error {
	info, err := parseAttrs(data)
	if err != nil {
		return err
	}
	if l.Kind = text(info, nl.IFLA_INFO_KIND); l.Kind != "ipoib" {
		return nil
	}
	ipoib, err := parseAttrs(info[nl.IFLA_INFO_DATA])
	if err != nil {
		return err
	}
	l.IPoIB = make(map[string]uint16)
	for kind, name := range map[uint16]string{
		nl.IFLA_IPOIB_PKEY: "pkey", nl.IFLA_IPOIB_MODE: "mode", nl.IFLA_IPOIB_UMCAST: "umcast",
	} {
		if v := ipoib[kind]; len(v) >= 2 {
			l.IPoIB[name] = binary.NativeEndian.Uint16(v)
		}
	}
	return nil
}

// Attributes of IFLA_AF_SPEC, from linux/if_link.h.
const (
	inetConf    = 1
	inet6Conf   = 2
	inet6GenMod = 8
)

func parseFamilies(l *Link, data []byte) error {
	families, err := parseAttrs(data)
	if err != nil {
		return err
	}
	v4, err := parseAttrs(families[unix.AF_INET])
	if err != nil {
		return err
	}
	v6, err := parseAttrs(families[unix.AF_INET6])
	if err != nil {
		return err
	}
	// IPV4_DEVCONF_* counts from 1, DEVCONF_* of IPv6 from 0.
	l.IPv4, l.IPv6 = numbers(v4[inetConf], "IPV4_DEVCONF", 1), numbers(v6[inet6Conf], "DEVCONF", 0)
	if v := v6[inet6GenMod]; len(v) > 0 {
		l.GenMode = v[0]
	}
	return nil
}

func numbers(data []byte, name string, first int) map[string]uint32 {
	conf := make(map[string]uint32)
	for i := 0; i+4 <= len(data); i += 4 {
		conf[fmt.Sprintf("%s %d", name, i/4+first)] = binary.NativeEndian.Uint32(data[i:])
	}
	return conf
}
