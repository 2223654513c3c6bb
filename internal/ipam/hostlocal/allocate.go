package hostlocal

import (
	"fmt"
	"iter"
	"net"
	"strconv"

	current "github.com/containernetworking/cni/pkg/types/100"
)

// store is what keeps the addresses: the directory of a network, locked, or a view of it that is never written to.
type store interface {
	Reserve(who claim, ip net.IP, rangeID string) (bool, error)
	LastReservedIP(rangeID string) net.IP // where the search begins
	GetByID(who claim) []net.IP
}

// claim is who gets an address.
type claim struct{ id, ifname string }

// allocate reserves an address of the set: the wanted one, or else the first free one after the last that was given, so
// that an address is given again as late as possible. number is that of the set in its configuration.
func allocate(s store, set RangeSet, number int, who claim, wanted net.IP) (*current.IPConfig, error) {
	rangeID := strconv.Itoa(number)
	if wanted != nil {
		return reserveWanted(s, set, rangeID, who, wanted)
	}
	for _, ip := range s.GetByID(who) {
		if set.find(ip) != nil {
			return nil, fmt.Errorf("%s has been allocated to %s, duplicate allocation is not allowed", ip, who.id)
		}
	}
	for ip, r := range set.from(s.LastReservedIP(rangeID)) {
		ok, err := s.Reserve(who, ip, rangeID)
		if err != nil {
			return nil, err
		}
		if ok {
			return &current.IPConfig{Address: net.IPNet{IP: ip, Mask: r.Subnet.Mask}, Gateway: r.Gateway}, nil
		}
	}
	return nil, fmt.Errorf("no IP addresses available in range set: %s", set)
}

func reserveWanted(s store, set RangeSet, rangeID string, who claim, wanted net.IP) (*current.IPConfig, error) {
	r := set.find(wanted)
	if r == nil {
		return nil, fmt.Errorf("%s not in range set %s", wanted, set)
	}
	if wanted.Equal(r.Gateway) {
		return nil, fmt.Errorf("requested ip %s is subnet's gateway", wanted)
	}
	ok, err := s.Reserve(who, wanted, rangeID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("requested IP address %s is not available in range set %s", wanted, set)
	}
	return &current.IPConfig{Address: net.IPNet{IP: wanted, Mask: r.Subnet.Mask}, Gateway: r.Gateway}, nil
}

// from yields every address of the set once, except gateways, in a circle that begins behind last, or with the first
// range if last is of none.
func (s RangeSet) from(last net.IP) iter.Seq2[net.IP, *Range] {
	at := 0
	cur := s[0].RangeStart
	for i := range s {
		if s[i].contains(last) {
			at, cur = s.after(i, last)
			break
		}
	}
	return func(yield func(net.IP, *Range) bool) {
		for begin := cur; ; {
			if r := &s[at]; !cur.Equal(r.Gateway) && !yield(cur, r) {
				return
			}
			if at, cur = s.after(at, cur); cur.Equal(begin) {
				return
			}
		}
	}
}

// after returns the address behind one of range i, and its range.
func (s RangeSet) after(i int, ip net.IP) (int, net.IP) {
	if !ip.Equal(s[i].RangeEnd) {
		return i, next(canonical(ip))
	}
	i = (i + 1) % len(s)
	return i, s[i].RangeStart
}
