package netconf

import (
	"fmt"
	"strings"
)

// Limits of what is read. All are far above anything real, and keep a hostile configuration, or a hostile answer of an
// IPAM plugin, from costing the node memory or time.
const (
	maxStdin = 1 << 20   // bytes, of DEL and of GC, which lists all attachments of the network
	maxConf  = 256 << 10 // bytes, of the others: the journal keeps the configuration of ADD on a tmpfs
	maxDepth = 64        // nested objects and arrays
	maxList  = 1024      // entries of each list, and fields of each object, that has no limit of its own
	maxText  = 4096      // bytes of a string
	maxName  = 255       // bytes of a domain name, a resolver's address or option
)

// limits are the lists with a limit of their own. Those of a result hold for prevResult, and for what IPAM answers.
var limits = [...]struct {
	list string
	most int
}{
	{"dns.nameservers", 16},
	{"dns.search", 64},
	{"dns.options", 64},
	{"runtimeConfig.ips", 64},
	{"CNI_ARGS IP", 64},
	{"cni.dev/valid-attachments", 20000},
	{"interfaces", 256},
	{"ips", 256},
	{"routes", 1024},
}

// TooLong is the error for a list of n entries if it may not have as many; nil otherwise. The list is named as in the
// configuration or in a result.
func TooLong(list string, n int) *Error {
	most := maxList
	for _, l := range limits {
		if l.list == list {
			most = l.most
		}
	}
	if n <= most {
		return nil
	}
	return &Error{
		Code: CodeConfig, Field: list,
		Problem: fmt.Sprintf("has %d entries", n), Allowed: fmt.Sprintf("at most %d", most),
	}
}

// lists refuses lists that no other step has read and counted, such as those in the section of the IPAM plugin.
func (p *parser) lists() {
	for _, m := range p.top.members {
		if p.err == nil && !p.lenient {
			p.short(p.top.at(m).path, longest(m.raw))
		}
	}
}

// longest counts the entries of the longest list or object in a valid JSON text.
func longest(text []byte) int {
	most := 0
	var open []int // entries of each list that is not closed yet
	for i := 0; i < len(text); i++ {
		c := text[i]
		if last := len(open) - 1; last >= 0 && open[last] == 0 && c != ']' && c != '}' &&
			strings.IndexByte(jsonSpace, c) < 0 {
			open[last] = 1
		}
		switch c {
		case '"':
			i = stringEnd(text, i) - 1
		case '[', '{':
			open = append(open, 0)
		case ',':
			open[len(open)-1]++
		case ']', '}':
			most = max(most, open[len(open)-1])
			open = open[:len(open)-1]
		}
	}
	return most
}
