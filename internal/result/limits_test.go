package result

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/growth"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// What an IPAM plugin or an earlier plugin of the chain answers is bounded, too.
func TestResultLimits(t *testing.T) {
	list := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	for _, tt := range []struct {
		name, format, entry string
		most                int
	}{
		{"interfaces", `"interfaces":[%s]`, `{"name":"a"}`, 256},
		{"ips", `"ips":[%s]`, `{"address":"10.0.0.1/24"}`, 256},
		{"routes", `"routes":[%s]`, `{"dst":"10.0.0.0/24"}`, 1024},
		{"dns.search", `"dns":{"search":[%s]}`, `"a.example"`, 64},
		{"dns.nameservers", `"dns":{"nameservers":[%s]}`, `"10.0.0.1"`, 16},
	} {
		parse := func(n int) error {
			_, err := Parse([]byte(`{"cniVersion":"1.1.0",`+fmt.Sprintf(tt.format, list(n, tt.entry))+`}`), "1.1.0")
			return err
		}
		if err := parse(tt.most); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("field %q: has %d entries: want at most %d", tt.name, tt.most+1, tt.most)
		if err := parse(tt.most + 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Merging takes time in proportion to what is merged.
func TestMergeIsLinear(t *testing.T) {
	many := func(n int) (r *Result) {
		r = &Result{}
		for i := range n {
			a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			p := netip.PrefixFrom(a, 32)
			r.Addresses = append(r.Addresses, Address{Prefix: p, Interface: NoInterface})
			r.Routes = append(r.Routes, Route{Dst: p})
			r.DNS.Search = append(r.DNS.Search, a.String())
		}
		return r
	}
	growth.Linear(t, "merge", 4000, func(n int) {
		r := many(n)
		out := Extend(r, Interface{}, r, netconf.DNS{Search: r.DNS.Search})
		if len(out.Addresses) != n || len(out.Routes) != n || len(out.DNS.Search) != n {
			t.Fatalf("%d addresses, %d routes and %d search domains of %d",
				len(out.Addresses), len(out.Routes), len(out.DNS.Search), n)
		}
	})
}
