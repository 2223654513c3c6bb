package device

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// GUID is a 64-bit global identifier of a node or port (IBTA 1.4, section 4.1). The value is in host order: the first
// byte on the wire is the most significant.
type GUID uint64

// String is the field's usual spelling, 00:02:c9:03:00:fa:00:10.
func (g GUID) String() string {
	var b strings.Builder
	for i := 56; i >= 0; i -= 8 {
		if i < 56 {
			b.WriteByte(':')
		}
		v := byte(g >> i)
		b.WriteByte("0123456789abcdef"[v>>4])
		b.WriteByte("0123456789abcdef"[v&15])
	}
	return b.String()
}

// IsUnset recognises a GUID that no subnet manager accepts: zero, or all ones.
func (g GUID) IsUnset() bool { return g == 0 || g == ^GUID(0) }

// MarshalText writes the GUID as String does.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what ParseGUID reads.
func (g *GUID) UnmarshalText(b []byte) error {
	v, err := ParseGUID(string(b))
	if err != nil {
		return err
	}
	*g = v
	return nil
}

// ParseGUID reads 00:02:c9:03:00:fa:00:10, 0002:c903:00fa:0010, 0002c90300fa0010 or 0x0002c90300fa0010.
func ParseGUID(s string) (GUID, error) {
	h := strings.TrimPrefix(strings.ToLower(s), "0x")
	if strings.Contains(h, ":") {
		parts := strings.Split(h, ":")
		for _, p := range parts {
			if n := len(parts[0]); len(p) != n || (n != 2 && n != 4) {
				return 0, fmt.Errorf("GUID %q: want 8 bytes as 00:02:c9:03:00:fa:00:10", s)
			}
		}
		h = strings.Join(parts, "")
	}
	if b, err := hex.DecodeString(h); err != nil || len(b) != 8 {
		return 0, fmt.Errorf("GUID %q: want 8 bytes as 00:02:c9:03:00:fa:00:10", s)
	}
	v, err := strconv.ParseUint(h, 16, 64)
	return GUID(v), err
}

// GUIDOf returns the port GUID in the last 8 bytes of a 20-byte IPoIB hardware address (RFC 4391, section 9.1.1), and
// false for an address of another length. Only these bytes are stable: the QPN in front changes at every recreation.
func GUIDOf(hwaddr []byte) (GUID, bool) {
	if len(hwaddr) != 20 {
		return 0, false
	}
	var g GUID
	for _, b := range hwaddr[12:] {
		g = g<<8 | GUID(b)
	}
	return g, true
}

// QPNOf returns the number of the queue pair in a 20-byte IPoIB hardware address (RFC 4391, section 9.1.1: the three
// bytes behind the flags), and false for an address of another length.
func QPNOf(hwaddr []byte) (uint32, bool) {
	if len(hwaddr) != 20 {
		return 0, false
	}
	return uint32(hwaddr[1])<<16 | uint32(hwaddr[2])<<8 | uint32(hwaddr[3]), true
}

// PKey is a partition key (IBTA 1.4, section 10.9). Bit 15 is full membership.
type PKey uint16

// FullMember is the membership bit of a PKey.
const FullMember PKey = 0x8000

// String is the usual spelling, 0x8001.
func (p PKey) String() string { return fmt.Sprintf("0x%04x", uint16(p)) }

// ParsePKey reads 0x8001, 0x1 or 32769. The membership bit is set in the result, as ib_ipoib does it
// (drivers/infiniband/ulp/ipoib/ipoib_netlink.c). 0 and 0x8000 are refused, as the kernel refuses them.
func ParsePKey(s string) (PKey, error) {
	// Base 0 of strconv would also take octal, binary and digits with underscores.
	digits, base := s, 10
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		digits, base = s[2:], 16
	}
	v, err := strconv.ParseUint(digits, base, 16)
	if err != nil || v&0x7fff == 0 {
		return 0, fmt.Errorf("PKey %q: want 0x0001 to 0x7fff, or 0x8001 to 0xffff with the full-member bit", s)
	}
	return PKey(v) | FullMember, nil
}
