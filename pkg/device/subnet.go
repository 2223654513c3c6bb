package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// SubnetPrefix is the prefix of an InfiniBand subnet: the upper 8 bytes of the GIDs of all its ports (IBTA 1.4, section
// 4.1.1). The subnet manager sets it; sysfs shows it in GID 0 of a port. The value is in host order. Zero: not known,
// or the port is not an InfiniBand port.
type SubnetPrefix uint64

// DefaultSubnetPrefix is what subnet managers set by default: fe80::.
const DefaultSubnetPrefix SubnetPrefix = 0xfe80 << 48

// String spells the prefix as an IPv6 address with no interface identifier, fe80::. It is empty for an unknown prefix.
func (p SubnetPrefix) String() string {
	if p == 0 {
		return ""
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(p))
	return netip.AddrFrom16(b).String()
}

// SubnetPrefixOf returns the prefix of a GID.
func SubnetPrefixOf(gid netip.Addr) SubnetPrefix {
	b := gid.As16()
	return SubnetPrefix(binary.BigEndian.Uint64(b[:8]))
}

// ParseSubnetPrefix reads every spelling that tools and subnet managers use for one prefix: fe80::, fe80::/64,
// fe80:0000:0000:0000, 0xfe80000000000000 and fe80000000000000. The error of a GID names the prefix of the GID.
func ParseSubnetPrefix(s string) (SubnetPrefix, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	p, err := parsePrefix(text)
	if err != nil {
		return 0, fmt.Errorf("subnet prefix %q: %w", s, err)
	}
	if p == 0 {
		return 0, fmt.Errorf("subnet prefix %q: no subnet has it; fe80:: is the default of subnet managers", s)
	}
	return p, nil
}

func parsePrefix(s string) (SubnetPrefix, error) {
	const example = "want the upper 8 bytes of GID 0, such as fe80:: by default"
	if digits := strings.TrimPrefix(s, "0x"); len(digits) == 16 && !strings.Contains(digits, ":") {
		v, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return 0, errors.New(example)
		}
		return SubnetPrefix(v), nil
	}
	text, bits, cut := strings.Cut(s, "/")
	if strings.Count(text, ":") == 3 && !strings.Contains(text, "::") { // the upper half alone
		text += "::"
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || !a.Is6() || a.Zone() != "":
		return 0, errors.New(example)
	case cut && bits != "64":
		return 0, fmt.Errorf("has %s bits: want 64", bits)
	}
	b := a.As16()
	if [8]byte(b[8:]) != [8]byte{} {
		return 0, fmt.Errorf("that is a GID: its subnet prefix is %s", SubnetPrefixOf(a))
	}
	return SubnetPrefixOf(a), nil
}

// MarshalText writes the prefix as String does.
func (p SubnetPrefix) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParseSubnetPrefix reads. An empty text is the unknown prefix.
func (p *SubnetPrefix) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = 0
		return nil
	}
	v, err := ParseSubnetPrefix(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}

// UnmarshalJSON reads a string as UnmarshalText does, and a number as its value: in YAML 0xfe80000000000000 without
// quotes is a number.
func (p *SubnetPrefix) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if v, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*p = SubnetPrefix(v)
		return nil
	}
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("subnet prefix %s: want a string, as in \"fe80::\"", b)
	}
	return p.UnmarshalText([]byte(text))
}
