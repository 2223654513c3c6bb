package ranges_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
)

func TestRead(t *testing.T) {
	for section, want := range map[string]string{
		`{"type":"whereabouts","range":"10.0.0.0/24","exclude":["10.0.0.0/25"]}`: "ipam.range 10.0.0.0/24 127",
		`{"type":"host-local","subnet":"10.0.0.7/24"}`:                           "ipam: subnet 10.0.0.0/24 256",
		`{"type":"host-local","subnet":"10.0.0.0/24","ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.2.0.0/24"}],` +
			`[{"subnet":"fd00::/120"}]]}`: "ipam: subnet 10.0.0.0/24 256, ipam: subnet 10.1.0.0/24 256, " +
			"ipam: subnet 10.2.0.0/24 256, ipam: subnet fd00::/120 256",
		`{"type":"other","range":"10.0.0.0/24"}`: "ipam: subnet 10.0.0.0/24 256",
		`{"type":"nv-ipam","poolName":"p"}`:      "",
		`{"type":"static","addresses":[]}`:       "",
		`{"type":"host-local","ranges":5}`:       "",
		`null`:                                   "",
		`5`:                                      "",
		`{"type":"host-local","subnet":"x"}`:     `error: ipam: subnet "x": want an address`,
		`{"type":"whereabouts","range":"x"}`:     `error: ipam.range "x": want an address with a prefix`,
		`{"type":"whereabouts","range":"10.0.0.0/24","subnt":1}`: `error: ipam: "subnt" is unknown`,
	} {
		s, err := ranges.Read([]byte(section))
		if err != nil {
			if text := "error: " + err.Error(); want == "" || !strings.HasPrefix(text, want) {
				t.Errorf("%s: %s, want %s", section, text, want)
			}
			continue
		}
		var got []string
		for _, r := range s.Ranges {
			got = append(got, fmt.Sprintf("%s %s %d", r.Field, r.Prefix, pool.Count(r.Free)))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %s", section, got, want)
		}
	}
}

func TestCapacity(t *testing.T) {
	s, err := ranges.Read([]byte(`{"type":"whereabouts","range":"10.0.0.0/28","network_name":"ib"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckCapacity(14, 4); err != nil {
		t.Error(err)
	}
	if err := s.CheckCapacity(15, 4); err == nil || !strings.Contains(err.Error(), "has 14 addresses to give") {
		t.Errorf("%v", err)
	}
	of := netip.MustParsePrefix("10.0.0.0/28")
	if n, ok := s.PoolCapacity("ib-10.0.0.0-28", of); !s.HasPools() || !ok || n != 14 {
		t.Errorf("%d, %v", n, ok)
	}
	if n, ok := s.PoolCapacity("storage-10.0.0.0-28", of); ok {
		t.Errorf("another network's: %d", n)
	}
	if s, err = ranges.Read([]byte(`{"type":"host-local","subnet":"10.0.0.0/28"}`)); err != nil {
		t.Fatal(err)
	}
	if n, ok := s.PoolCapacity("ib-10.0.0.0-28", of); ok || s.HasPools() || s.CheckCapacity(100, 100) != nil {
		t.Errorf("%d, %v", n, ok)
	}
}
