package hostlocal

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// RangeSet is a list of ranges of one family of which an attachment gets one address.
type RangeSet []Range

// Range is a subnet and the part of it that is given. Addresses are four bytes long in IPv4 once complete has run.
type Range struct {
	RangeStart net.IP      `json:"rangeStart,omitempty"` // first address; default: the second of the subnet
	RangeEnd   net.IP      `json:"rangeEnd,omitempty"`   // last address; default: the last, in IPv4 before broadcast
	Subnet     types.IPNet `json:"subnet"`
	Gateway    net.IP      `json:"gateway,omitempty"` // never given; default: the second of the subnet
}

// complete checks a range and fills in its defaults.
func (r *Range) complete() error {
	if r.Subnet.IP = canonical(r.Subnet.IP); r.Subnet.IP == nil {
		return errNoIP
	}
	ones, bits := r.Subnet.Mask.Size()
	if ones > bits-2 {
		//nolint:staticcheck // the plugin's words
		return fmt.Errorf("Network %s too small to allocate from", r.subnet())
	}
	if len(r.Subnet.IP) != len(r.Subnet.Mask) {
		return errors.New("IPNet IP and Mask version mismatch")
	}
	if network := r.Subnet.IP.Mask(r.Subnet.Mask); !r.Subnet.IP.Equal(network) {
		//nolint:staticcheck // the plugin's words
		return fmt.Errorf("Network has host bits set. For a subnet mask of length %d the network address is %s",
			ones, network)
	}
	if r.Gateway == nil {
		r.Gateway = next(r.Subnet.IP)
	} else {
		r.Gateway = canonical(r.Gateway)
	}
	if r.RangeStart == nil {
		r.RangeStart = next(r.Subnet.IP)
	} else if r.RangeStart = canonical(r.RangeStart); !r.contains(r.RangeStart) {
		return fmt.Errorf("RangeStart %s not in network %s", r.RangeStart, r.subnet())
	}
	if r.RangeEnd == nil {
		r.RangeEnd = r.last()
	} else if r.RangeEnd = canonical(r.RangeEnd); !r.contains(r.RangeEnd) {
		return fmt.Errorf("RangeEnd %s not in network %s", r.RangeEnd, r.subnet())
	}
	return nil
}

func (r *Range) subnet() *net.IPNet { return (*net.IPNet)(&r.Subnet) }

// last is the last address of the subnet, in IPv4 the one before the broadcast address.
func (r *Range) last() net.IP {
	end := bytes.Clone(r.Subnet.IP)
	for i := range end {
		end[i] |= ^r.Subnet.Mask[i]
	}
	if len(end) == net.IPv4len {
		end[3]--
	}
	return end
}

// contains reports whether an address can be given. Bounds that are not filled in yet do not count.
func (r *Range) contains(ip net.IP) bool {
	ip = canonical(ip)
	if len(ip) != len(r.Subnet.IP) || !r.subnet().Contains(ip) {
		return false
	}
	return (r.RangeStart == nil || compare(ip, r.RangeStart) >= 0) &&
		(r.RangeEnd == nil || compare(ip, r.RangeEnd) <= 0)
}

func (r *Range) overlaps(o *Range) bool {
	return len(r.RangeStart) == len(o.RangeStart) &&
		(r.contains(o.RangeStart) || r.contains(o.RangeEnd) || o.contains(r.RangeStart) || o.contains(r.RangeEnd))
}

func (r *Range) String() string { return r.RangeStart.String() + "-" + r.RangeEnd.String() }

// complete checks a set and fills in its defaults.
func (s RangeSet) complete() error {
	if len(s) == 0 {
		return errors.New("empty range set")
	}
	for i := range s {
		if err := s[i].complete(); err != nil {
			return err
		}
		if len(s[i].RangeStart) != len(s[0].RangeStart) {
			return errors.New("mixed address families")
		}
	}
	for i := range s {
		for j := i + 1; j < len(s); j++ {
			if s[i].overlaps(&s[j]) {
				return fmt.Errorf("subnets %s and %s overlap", &s[i], &s[j])
			}
		}
	}
	return nil
}

// find returns the range that an address is of, or nil.
func (s RangeSet) find(ip net.IP) *Range {
	for i := range s {
		if s[i].contains(ip) {
			return &s[i]
		}
	}
	return nil
}

func (s RangeSet) overlaps(o RangeSet) bool {
	for i := range s {
		for j := range o {
			if s[i].overlaps(&o[j]) {
				return true
			}
		}
	}
	return false
}

func (s RangeSet) String() string {
	var out []string
	for i := range s {
		out = append(out, s[i].String())
	}
	return strings.Join(out, ",")
}

// canonical returns the short form of an address, nil if invalid.
func canonical(ip net.IP) net.IP {
	if short := ip.To4(); short != nil {
		return short
	}
	return ip.To16()
}

var errNoIP = errors.New("IP <nil> not v4 nor v6")

// next is the address after one that is not the last of its family.
func next(ip net.IP) net.IP {
	out := net.IP(bytes.Clone(ip))
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			break
		}
	}
	return out
}

// compare orders two addresses of one family; it returns -2 for those of different ones, as the plugin does.
func compare(a, b net.IP) int {
	if a, b = canonical(a), canonical(b); len(a) != len(b) {
		return -2
	}
	return bytes.Compare(a, b)
}
