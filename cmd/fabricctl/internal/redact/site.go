package redact

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Site hides what tells which site a text is from: addresses of networks and hardware, GUIDs, and the names of its
// hosts. What was one address is one number in all texts of a Site, so that they can still be compared.
type Site struct {
	names []*regexp.Regexp
	seen  map[string]string
	count map[string]int
}

// NewSite hides these names of hosts, with and without their domain, beside addresses.
func NewSite(hosts ...string) *Site {
	s := &Site{seen: map[string]string{}, count: map[string]int{}}
	for _, h := range hosts {
		short, _, _ := strings.Cut(h, ".")
		for _, name := range []string{h, short} {
			if name != "" && name != "localhost" {
				s.names = append(s.names, regexp.MustCompile(`(?i)(^|[^\w-])`+regexp.QuoteMeta(name)+`($|[^\w-])`))
			}
		}
	}
	return s
}

// identities are forms of addresses, in the order in which they are looked for: what has been found is not looked at
// again. A form that others share has a function that knows its own.
var identities = []struct {
	kind    string
	pattern *regexp.Regexp
	is      func(string) bool
}{
	{"hardware address", regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,19}\b`), nil},
	{"GUID", regexp.MustCompile(`(?i)\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?:(?::[0-9a-f]{4}){4})?\b`), nil},
	{"GUID", regexp.MustCompile(`(?i)\b(?:0x)?[0-9a-f]{16}\b`), nil},
	{"address", regexp.MustCompile(`(?i)[0-9a-f]*:[0-9a-f:]*(?:\d+\.\d+\.\d+\.\d+)?`), isAddress},
	{"address", regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`), isAddress},
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// Text is a text without what it should not tell, and without the secrets that the function Text finds.
func (s *Site) Text(text string) string {
	text = string(plain([]byte(text)))
	for _, n := range s.names {
		text = n.ReplaceAllString(text, "${1}(host)${2}")
	}
	for _, f := range identities {
		text = f.pattern.ReplaceAllStringFunc(text, func(found string) string {
			// Of a list "address: value" the colon is taken for a part of the address.
			end := found
			for f.is != nil && !f.is(end) {
				if !strings.HasSuffix(end, ":") {
					return found
				}
				end = end[:len(end)-1]
			}
			return s.number(f.kind, strings.ToLower(end)) + found[len(end):]
		})
	}
	return text
}

func (s *Site) number(kind, value string) string {
	key := kind + " " + value
	if s.seen[key] == "" {
		s.count[kind]++
		s.seen[key] = fmt.Sprintf("(%s %d)", kind, s.count[kind])
	}
	return s.seen[key]
}
