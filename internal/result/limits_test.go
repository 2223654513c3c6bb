package result

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

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

// Merging takes time in proportion to what is merged. Twice as much that took four times as long would be quadratic.
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
	took := func(r *Result) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			out := Extend(r, Interface{}, r, netconf.DNS{Search: r.DNS.Search})
			best = min(best, time.Since(began))
			if n := len(r.Addresses); len(out.Addresses) != n || len(out.Routes) != n || len(out.DNS.Search) != n {
				t.Fatalf("%d addresses, %d routes and %d search domains of %d",
					len(out.Addresses), len(out.Routes), len(out.DNS.Search), n)
			}
		}
		return best
	}
	const n = 4000
	// A small part of the machine may be somebody else's at any time: the best of some tries counts.
	ratio := 0.0
	for range 5 {
		if ratio = float64(took(many(4*n))) / float64(took(many(n))); ratio < 8 {
			return
		}
	}
	t.Errorf("four times as much took %.1f times as long; 16 is quadratic", ratio)
}
