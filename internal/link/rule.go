package link

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Rules returns the policy routing rules that look at a source address and name a table.
func (c *Conn) Rules() ([]device.Rule, error) { return c.rules(func([]byte) bool { return true }) }

// SourceRules returns those of them that look at nothing else.
func (c *Conn) SourceRules() ([]device.Rule, error) { return c.rules(looksAtSourceOnly) }

func (c *Conn) rules(want func([]byte) bool) ([]device.Rule, error) {
	msgs, err := c.nl.Dump(unix.RTM_GETRULE, make([]byte, sizeofRuleHdr))
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var out []device.Rule
	for _, b := range msgs {
		if len(b) < sizeofRuleHdr || !want(b) {
			continue
		}
		r := device.Rule{Table: uint32(b[4])}
		for a := range nlmsg.Attrs(b[sizeofRuleHdr:]) {
			switch a.Type {
			case unix.FRA_SRC:
				if src, ok := netip.AddrFromSlice(a.Value); ok {
					r.Src = netip.PrefixFrom(src, int(b[2]))
				}
			case unix.FRA_TABLE:
				r.Table = a.Uint32()
			case unix.FRA_PRIORITY:
				r.Priority = a.Uint32()
			}
		}
		if r.Src.IsValid() {
			out = append(out, r)
		}
	}
	return out, nil
}

// looksAtSourceOnly reads an RTM_NEWRULE payload (net/core/fib_rules.c, fib_nl_fill_rule): the header's destination,
// type of service and flags are empty, and so is every attribute that would narrow the rule.
func looksAtSourceOnly(b []byte) bool {
	if b[1] != 0 || b[3] != 0 || b[7] != unix.FR_ACT_TO_TBL || binary.NativeEndian.Uint32(b[8:]) != 0 {
		return false
	}
	for a := range nlmsg.Attrs(b[sizeofRuleHdr:]) {
		switch a.Type {
		case unix.FRA_SRC, unix.FRA_TABLE, unix.FRA_PRIORITY, unix.FRA_PROTOCOL:
		case unix.FRA_SUPPRESS_PREFIXLEN:
			if a.Uint32() != ^uint32(0) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// AddRule adds a rule. It fails with unix.EEXIST when the namespace has it.
func (c *Conn) AddRule(r device.Rule) error {
	return c.rule(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", r)
}

// DelRule removes a rule. It fails with unix.ENOENT when it is missing.
func (c *Conn) DelRule(r device.Rule) error { return c.rule(unix.RTM_DELRULE, 0, "remove", r) }

func (c *Conn) rule(typ, flags uint16, verb string, r device.Rule) error {
	h := make([]byte, sizeofRuleHdr)
	h[0], h[2], h[7] = family(r.Src.Addr()), uint8(r.Src.Bits()), unix.FR_ACT_TO_TBL
	binary.NativeEndian.PutUint32(h[8:], 0)
	m := nlmsg.Body(h).Put(unix.FRA_SRC, r.Src.Addr().AsSlice()).
		Uint32(unix.FRA_TABLE, r.Table).Uint32(unix.FRA_PRIORITY, r.Priority)
	if _, err := c.nl.Do(typ, flags, m.Bytes()); err != nil {
		return fmt.Errorf("%s rule %s: %w", verb, r, err)
	}
	return nil
}
