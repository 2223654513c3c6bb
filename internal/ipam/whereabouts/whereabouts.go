// Package whereabouts judges the ipam section of a network as the IPAM plugin whereabouts would, before a pod has to:
// by the plugin's own types, and by its own rules for the first and last address of a range. It reads nothing but what
// it is given, and is for the agent and fabricctl: the CNI binary calls the plugin and has no need of it.
package whereabouts

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/iphelpers"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/types"
	"go4.org/netipx"
)

// Type is the type of an ipam section that is whereabouts's.
const Type = "whereabouts"

// Config is an ipam section that whereabouts can work with.
type Config struct {
	NetworkName string // keeps pools of one range apart; empty: there is one for the range
	Ranges      []Range
	// SliceBits is the prefix length of the part that each node gets of a range (node_slice_size); 0 without parts.
	SliceBits int
}

// Range is one pool: an address of each goes to every interface.
type Range struct {
	Field  string       // where it is written, for messages: "range", "ipRanges[0].range"
	Prefix netip.Prefix // as interfaces get it
	Free   *netipx.IPSet
}

// sliceField came with whereabouts v0.9.0. Older ones take no notice of it.
const sliceField = "node_slice_size"

// otherFields are what older and newer whereabouts know beside the fields of these types.
var otherFields = []string{
	"datastore",
	"etcd_host",
	"etcd_username",
	"etcd_password",
	"etcd_key_file",
	"etcd_cert_file",
	"etcd_ca_cert_file",
	"exclude_gateway",
	"optimistic_ipam",
}

// Parse reads an ipam section. It refuses what whereabouts refuses when the first pod starts, and what it takes no
// notice of: a key that is misspelt, a range_start that is no address or outside of its range. Errors name the field,
// its value and what is allowed.
func Parse(ipam []byte) (*Config, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(ipam, &raw); err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	var slice string
	for key, v := range raw {
		if key == sliceField {
			if err := json.Unmarshal(v, &slice); err != nil {
				return nil, fmt.Errorf("ipam.%s: want a string, as in \"/26\"", key)
			}
			continue
		}
		if err := known(key, reflect.TypeFor[types.IPAMConfig](), otherFields...); err != nil {
			return nil, fmt.Errorf("ipam: %w", err)
		}
	}
	var c types.IPAMConfig
	if err := json.Unmarshal(ipam, &c); err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	if c.Type != Type {
		return nil, fmt.Errorf("ipam.type %q: want %s", c.Type, Type)
	}
	if err := addresses(raw); err != nil {
		return nil, err
	}
	out := &Config{NetworkName: c.NetworkName}
	if !poolName.MatchString("a" + c.NetworkName) {
		return nil, fmt.Errorf(
			"ipam.network_name %q: want a-z, 0-9, - and ., as it becomes the name of an IPPool",
			c.NetworkName,
		)
	}
	list, err := ranges(&c, raw)
	if err != nil {
		return nil, err
	}
	out.Ranges = list
	return out, out.slices(slice)
}

var poolName = regexp.MustCompile(`^[a-z0-9.-]*$`)

// known looks for a key among the fields of whereabouts's type. Its decoder does not care for case, but a reader would.
func known(key string, t reflect.Type, more ...string) error {
	more = slices.Clone(more)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" {
			more = append(more, name)
		}
	}
	for _, name := range more {
		if name == key {
			return nil
		}
	}
	return fmt.Errorf(
		"%q is unknown, and whereabouts would take no notice of it; it knows %s",
		key,
		strings.Join(more, ", "),
	)
}

// addresses checks what whereabouts replaces by nothing when it is no address.
func addresses(raw map[string]json.RawMessage) error {
	for _, field := range []string{"range_start", "range_end", "gateway"} {
		var s string
		if raw[field] == nil {
			continue
		}
		if err := json.Unmarshal(raw[field], &s); err != nil {
			return fmt.Errorf("ipam.%s: %w", field, err)
		}
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Errorf("ipam.%s %q: want an address", field, s)
		}
	}
	return nil
}

// ranges are the pools in the order in which whereabouts asks them: range before ipRanges.
func ranges(c *types.IPAMConfig, raw map[string]json.RawMessage) (out []Range, err error) {
	list, fields := c.IPRanges, []string{}
	for i := range list {
		fields = append(fields, fmt.Sprintf("ipRanges[%d]", i))
	}
	if c.Range != "" {
		first := types.RangeConfiguration{
			OmitRanges: c.OmitRanges,
			Range:      c.Range,
			RangeStart: c.RangeStart,
			RangeEnd:   c.RangeEnd,
		}
		list, fields = append([]types.RangeConfiguration{first}, list...), append([]string{""}, fields...)
	}
	if len(list) == 0 && len(c.Addresses) == 0 {
		return nil, fmt.Errorf("ipam.range is missing: without a range (or ipRanges) whereabouts gives no address")
	}
	var inner []map[string]json.RawMessage
	if raw["ipRanges"] != nil {
		if err := json.Unmarshal(raw["ipRanges"], &inner); err != nil {
			return nil, fmt.Errorf("ipam.ipRanges: %w", err)
		}
	}
	for i, m := range inner {
		for key := range m {
			if err := known(key, reflect.TypeFor[types.RangeConfiguration]()); err != nil {
				return nil, fmt.Errorf("ipam.ipRanges[%d]: %w", i, err)
			}
		}
	}
	for i := range list {
		field := "ipam." + strings.TrimPrefix(fields[i]+".", ".")
		r, err := newRange(field, &list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// newRange works out which addresses whereabouts gives: never those of network and broadcast.
func newRange(field string, c *types.RangeConfiguration) (Range, error) {
	start, cidr, isSpan := strings.Cut(c.Range, "-") // 192.168.2.225-192.168.2.229/28
	if !isSpan {
		cidr = c.Range
	}
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return Range{}, fmt.Errorf(
			"%srange %q: want an address with a prefix length, as in 192.168.10.0/24",
			field,
			c.Range,
		)
	}
	from, to := c.RangeStart, c.RangeEnd
	if isSpan {
		if _, err := netip.ParseAddr(start); err != nil {
			return Range{}, fmt.Errorf("%srange %q: want an address before the -", field, c.Range)
		}
		from, to = net.ParseIP(start), p.Addr().AsSlice()
	}
	r := Range{Field: field + "range", Prefix: p.Masked()}
	first, last, err := bounds(field, r.Prefix, from, to)
	if err != nil {
		return r, err
	}
	var b netipx.IPSetBuilder
	b.AddRange(netipx.IPRangeFrom(first, last))
	for _, text := range c.OmitRanges {
		e, err := excluded(text)
		if err != nil {
			return r, fmt.Errorf("%sexclude %q: want a range or an address, as in 192.168.10.0/28", field, text)
		}
		b.RemovePrefix(e)
	}
	if r.Free, err = b.IPSet(); err != nil {
		return r, fmt.Errorf("%srange %s: %w", field, r.Prefix, err)
	}
	if len(r.Free.Ranges()) == 0 {
		return r, fmt.Errorf("%srange %s: nothing is left of it after exclude", field, r.Prefix)
	}
	return r, nil
}

// bounds asks whereabouts for the first and last address that it gives of a range. A start or end outside of the range
// it would ignore.
func bounds(field string, p netip.Prefix, from, to net.IP) (first, last netip.Addr, err error) {
	for name, ip := range map[string]net.IP{"range_start": from, "range_end": to} {
		if a, ok := netip.AddrFromSlice(ip); len(ip) > 0 && (!ok || !p.Contains(a.Unmap())) {
			return first, last, fmt.Errorf("%s%s %s: not in the range %s", field, name, ip, p)
		}
	}
	lo, hi, err := iphelpers.GetIPRange(*netipx.PrefixIPNet(p), from, to)
	if err != nil {
		return first, last, fmt.Errorf("%srange %s: %w", field, p, err)
	}
	first, _ = netipx.FromStdIP(lo)
	last, _ = netipx.FromStdIP(hi)
	if last.Less(first) {
		return first, last, fmt.Errorf("%srange_end %s: before range_start %s", field, last, first)
	}
	return first, last, nil
}

// excluded reads one of the list exclude.
func excluded(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// slices reads node_slice_size: "/26" or "26".
func (c *Config) slices(text string) error {
	if text == "" {
		return nil
	}
	bits, err := strconv.Atoi(strings.TrimPrefix(text, "/"))
	for _, r := range c.Ranges {
		if err != nil || bits < r.Prefix.Bits() || bits > r.Prefix.Addr().BitLen()-2 {
			return fmt.Errorf(
				"ipam.%s %q: want a prefix length from /%d, which is that of the range %s, to /%d",
				sliceField,
				text,
				r.Prefix.Bits(),
				r.Prefix,
				r.Prefix.Addr().BitLen()-2,
			)
		}
	}
	c.SliceBits = bits
	return nil
}
