package netconf

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	wantMAC = "a unicast MAC address of 6 bytes as 02:00:00:00:00:01"
	wantIP  = "an IP address with or without prefix length, as 192.168.1.5/24"
)

// The readers below return the zero value and false for a field that is absent or, in a lenient parse, bad.

// text reads a string. An empty one counts as absent, as it does for every peer.
func (p *parser) text(v value, allowed string) (string, bool) {
	if !v.ok() {
		return "", false
	}
	if v.raw[0] != '"' {
		p.fail(notAllowed(v, allowed))
		return "", false
	}
	if len(v.raw) > maxText {
		p.fail(notAllowed(v, fmt.Sprintf("at most %d bytes", maxText)))
		return "", false
	}
	s := unquote(v.raw)
	return s, s != ""
}

// textWhere reads a string that fulfils a condition.
func (p *parser) textWhere(v value, allowed string, fits func(string) bool) (string, bool) {
	s, ok := p.text(v, allowed)
	if ok && !fits(s) {
		p.fail(notAllowed(v, allowed))
		return "", false
	}
	return s, ok
}

// choice reads one of some words, in any case where fold is set, and returns it as listed.
func (p *parser) choice(v value, fold bool, words ...string) string {
	allowed := strings.Join(words, ", ")
	s, ok := p.text(v, allowed)
	if !ok {
		return ""
	}
	i := slices.IndexFunc(words, func(w string) bool { return w == s || fold && strings.EqualFold(w, s) })
	if i < 0 {
		p.fail(notAllowed(v, allowed))
		return ""
	}
	return words[i]
}

// whole reads an integer in a range.
func (p *parser) whole(v value, lowest, highest int, note string) *int {
	if !v.ok() {
		return nil
	}
	n, err := strconv.Atoi(string(v.raw))
	if err != nil || n < lowest || n > highest {
		p.fail(notAllowed(v, strconv.Itoa(lowest)+" to "+strconv.Itoa(highest)+note))
		return nil
	}
	return &n
}

// boolean reads true or false.
func (p *parser) boolean(v value) *bool {
	if !v.ok() {
		return nil
	}
	b := string(v.raw) == "true"
	if !b && string(v.raw) != "false" {
		p.fail(notAllowed(v, "true or false"))
		return nil
	}
	return &b
}

// onOff reads "on" or "off", the spelling of ip link.
func (p *parser) onOff(v value) *bool {
	s := p.choice(v, false, "on", "off")
	if s == "" {
		return nil
	}
	on := s == "on"
	return &on
}

// texts reads a list of strings.
func (p *parser) texts(v value) []string {
	if !v.ok() {
		return nil
	}
	const allowed = "a list of strings"
	if v.raw[0] != '[' {
		p.fail(notAllowed(v, allowed))
		return nil
	}
	all := elements(v.raw)
	if !p.short(v.path, len(all)) {
		return nil
	}
	var list []string
	for _, e := range all {
		if e[0] != '"' {
			p.fail(notAllowed(v, allowed))
			return nil
		}
		if len(e) > maxName+len(`""`) {
			p.fail(notAllowed(value{v.path, e}, fmt.Sprintf("at most %d bytes", maxName)))
			return nil
		}
		list = append(list, unquote(e))
	}
	return list
}

// object reads a JSON object. Its keys are not judged.
func (p *parser) object(v value) object {
	if !v.ok() {
		return object{}
	}
	if v.raw[0] != '{' {
		p.fail(notAllowed(v, "an object"))
		return object{}
	}
	return object{v.path, split(v.raw)}
}

// find returns the field with one of some spellings. A field that is there twice with different values is an error:
// whichever wins, another reader of the same file (the IPAM plugin, a person) may take the other one. A lenient parse
// takes the last, as encoding/json does in those readers.
func (p *parser) find(o object, names ...string) value {
	var found member
	for _, m := range o.members {
		if isNull(m.raw) || !slices.Contains(names, m.key) {
			continue
		}
		if found.raw != nil && string(found.raw) != string(m.raw) {
			e := &Error{
				Code:    CodeDecode,
				Field:   o.at(m).path,
				Value:   shown(m.raw),
				Problem: "is there twice, first as " + shown(found.raw),
				Allowed: "it once",
			}
			if found.key != m.key {
				e.Code = CodeConfig
				e.Problem = "contradicts " + strconv.Quote(
					o.at(found).path,
				) + ", which means the same and is " + shown(
					found.raw,
				)
				e.Allowed = "one of the two"
			}
			p.fail(e)
		}
		found = m
	}
	if found.raw == nil {
		return value{}
	}
	return o.at(found)
}

// parseMAC reads a MAC address that a device can be given.
func parseMAC(s string) (net.HardwareAddr, bool) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || isZero(mac) {
		return nil, false
	}
	return mac, true
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// parseIP reads an address; without a prefix length it is a single host.
func parseIP(s string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(s); err == nil {
		return prefix, true
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, addr.BitLen()), true
}
