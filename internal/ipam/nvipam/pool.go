package nvipam

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// Pool is an IPPool or a CIDRPool, as far as others can tell: which pod has which address is known to the nodes only.
type Pool struct {
	Kind, Namespace, Name string

	Prefix netip.Prefix   // all addresses of it
	Blocks int            // how many nodes it has blocks for, at most pool.Max
	Given  map[string]int // how many addresses each node with a block has to give
}

// object is what both kinds have.
type object struct {
	Spec struct {
		Subnet           string // IPPool
		PerNodeBlockSize int
		Gateway          string

		CIDR                 string // CIDRPool
		PerNodeNetworkPrefix int

		Exclusions        []struct{ StartIP, EndIP netip.Addr }
		PerNodeExclusions []struct{ StartIndex, EndIndex uint32 }
	}
	Status struct {
		Allocations []allocation
	}
}

// allocation is a node's block.
type allocation struct {
	NodeName string

	StartIP, EndIP netip.Addr // of an IPPool

	Prefix  string // of a CIDRPool
	Gateway string
}

// ReadPool reads an IPPool or a CIDRPool.
func ReadPool(kind, namespace, name string, text []byte) (*Pool, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
	}
	p := &Pool{Kind: kind, Namespace: namespace, Name: name, Given: map[string]int{}}
	size := p.ofSubnet
	if kind == CIDRPool {
		size = p.ofCIDR
	}
	if err := size(&o); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
	}
	for i := range o.Status.Allocations {
		a := &o.Status.Allocations[i]
		n, err := p.usable(&o, a)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: allocation of node %.253q: %w", kind, namespace, name, a.NodeName, err)
		}
		p.Given[a.NodeName] = n
	}
	return p, nil
}

// ofSubnet counts the blocks of an IPPool, which begin behind the address of the network.
func (p *Pool) ofSubnet(o *object) (err error) {
	if p.Prefix, err = netip.ParsePrefix(o.Spec.Subnet); err != nil {
		return fmt.Errorf("spec.subnet: %w", err)
	}
	p.Prefix = p.Prefix.Masked()
	if o.Spec.PerNodeBlockSize < 1 {
		return fmt.Errorf("spec.perNodeBlockSize %d: want 1 or more", o.Spec.PerNodeBlockSize)
	}
	first, last := inner(p.Prefix)
	p.Blocks = pool.Between(first, last) / o.Spec.PerNodeBlockSize
	return nil
}

// ofCIDR counts the subnets of a CIDRPool.
func (p *Pool) ofCIDR(o *object) (err error) {
	if p.Prefix, err = netip.ParsePrefix(o.Spec.CIDR); err != nil {
		return fmt.Errorf("spec.cidr: %w", err)
	}
	p.Prefix = p.Prefix.Masked()
	own := o.Spec.PerNodeNetworkPrefix
	if own < p.Prefix.Bits() || own > p.Prefix.Addr().BitLen() || own == 0 {
		return fmt.Errorf("spec.perNodeNetworkPrefix %d: want a prefix length from that of %s to %d", own, p.Prefix,
			p.Prefix.Addr().BitLen())
	}
	p.Blocks = pool.Max
	if more := own - p.Prefix.Bits(); more < 31 {
		p.Blocks = 1 << more
	}
	return nil
}

// inner are the first and the last address of a subnet that a pod may have: neither the one of the network nor, with
// IPv4, the one for broadcasts. A subnet of one or two addresses has neither.
func inner(p netip.Prefix) (first, last netip.Addr) {
	first, last = p.Masked().Addr(), netipx.PrefixLastIP(p)
	if p.Addr().BitLen()-p.Bits() < 2 {
		return first, last
	}
	if p.Addr().Is4() {
		last = last.Prev()
	}
	return first.Next(), last
}

// usable is how many addresses a node has to give.
func (p *Pool) usable(o *object, a *allocation) (int, error) {
	first, last, zero, gateway := a.StartIP, a.EndIP, a.StartIP, o.Spec.Gateway
	if p.Kind == CIDRPool {
		own, err := netip.ParsePrefix(a.Prefix)
		if err != nil {
			return 0, err
		}
		first, last = inner(own)
		zero, gateway = own.Masked().Addr(), a.Gateway
	}
	if !p.Prefix.Contains(first) || !p.Prefix.Contains(last) || last.Less(first) {
		return 0, fmt.Errorf("%s to %s: not within %s", first, last, p.Prefix)
	}
	var b netipx.IPSetBuilder
	b.AddRange(netipx.IPRangeFrom(first, last))
	for _, e := range o.Spec.Exclusions {
		b.RemoveRange(netipx.IPRangeFrom(e.StartIP, e.EndIP))
	}
	for _, e := range o.Spec.PerNodeExclusions {
		b.RemoveRange(netipx.IPRangeFrom(plus(zero, e.StartIndex), plus(zero, e.EndIndex)))
	}
	if g, err := netip.ParseAddr(gateway); err == nil {
		b.Remove(g)
	}
	s, err := b.IPSet()
	if err != nil {
		return 0, errors.Join(errors.New("exclusions"), err)
	}
	return pool.Count(s), nil
}

// plus is an address that comes so much later, or the last one that there is.
func plus(a netip.Addr, n uint32) netip.Addr {
	if a.Is4() {
		b := a.As4()
		sum, carry := bits.Add32(binary.BigEndian.Uint32(b[:]), n, 0)
		if carry != 0 {
			sum = 1<<32 - 1
		}
		binary.BigEndian.PutUint32(b[:], sum)
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	low, carry := bits.Add64(binary.BigEndian.Uint64(b[8:]), uint64(n), 0)
	high, over := bits.Add64(binary.BigEndian.Uint64(b[:8]), 0, carry)
	if over != 0 {
		low, high = 1<<64-1, 1<<64-1
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	return netip.AddrFrom16(b)
}
