package result

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// laterMTU is the full result with an MTU that a later plugin has seen.
func laterMTU() *Result {
	r := full()
	r.Interfaces[1].MTU = 2044
	return r
}

func TestExtend(t *testing.T) {
	net1 := Interface{Name: "net1", MAC: "02:00:00:00:00:09", MTU: 1500, Sandbox: podNetns, PCIID: "0000:3b:00.3"}
	ipam := &Result{
		Addresses: []Address{{Prefix: prefix("10.7.0.2/16"), Interface: NoInterface}},
		Routes:    []Route{{Dst: prefix("10.8.0.0/16"), Gateway: addr("10.7.0.1")}},
		DNS:       netconf.DNS{Nameservers: []string{"10.7.0.53"}},
	}
	for _, tc := range []struct {
		name  string
		prev  *Result
		iface Interface
		ipam  *Result
		conf  netconf.DNS
		want  func() *Result
	}{
		{"nothing", nil, Interface{}, nil, netconf.DNS{}, func() *Result { return &Result{} }},
		{"first of a chain", nil, net1, ipam, netconf.DNS{Nameservers: []string{"9.9.9.9"}}, func() *Result {
			return &Result{
				Interfaces: []Interface{net1},
				Addresses:  []Address{{Prefix: prefix("10.7.0.2/16"), Interface: 0}},
				Routes:     ipam.Routes,
				DNS:        netconf.DNS{Nameservers: []string{"9.9.9.9", "10.7.0.53"}},
			}
		}},
		{"mode rdma: passed on", full(), Interface{}, nil, netconf.DNS{}, full},
		{"addresses without an interface", nil, Interface{}, ipam, netconf.DNS{}, func() *Result {
			return &Result{Addresses: ipam.Addresses, Routes: ipam.Routes, DNS: ipam.DNS}
		}},
		{"second interface", full(), net1, ipam, netconf.DNS{}, func() *Result {
			r := full()
			r.Interfaces = append(r.Interfaces, net1)
			r.Addresses = append(r.Addresses, Address{Prefix: prefix("10.7.0.2/16"), Interface: 3})
			r.Routes = append(r.Routes, ipam.Routes...)
			r.DNS.Nameservers = append(r.DNS.Nameservers, "10.7.0.53")
			return r
		}},
		{"seen later", full(), Interface{Name: "ib0", Sandbox: podNetns, MTU: 2044}, nil, netconf.DNS{}, laterMTU},
		{"fills what is missing", full(),
			Interface{Name: "vhost0", Sandbox: podNetns, MAC: "02:00:00:00:00:07",
				PCIID: "0000:3b:00.7"}, nil, netconf.DNS{},
			func() *Result {
				r := full()
				r.Interfaces[2].MAC, r.Interfaces[2].PCIID = "02:00:00:00:00:07", "0000:3b:00.7"
				return r
			}},
		{"same name on the host is another", full(), Interface{Name: "veth12", Sandbox: podNetns}, nil, netconf.DNS{},
			func() *Result {
				r := full()
				r.Interfaces = append(r.Interfaces, Interface{Name: "veth12", Sandbox: podNetns})
				return r
			}},
		{"nothing twice", full(), Interface{Name: "ib0", Sandbox: podNetns}, &Result{
			Addresses: []Address{{Prefix: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1"), Interface: NoInterface}},
			Routes: []Route{
				{Dst: prefix("fd00:2::/48"), Gateway: addr("fd00:1::1"), MTU: 2044, AdvMSS: 1984, Priority: 7,
					Table: ptr(100), Scope: ptr(0)},
				{Dst: prefix("fd00:2::/48"), Gateway: addr("fd00:1::1"), MTU: 2044, AdvMSS: 1984, Priority: 7,
					Table: ptr(101), Scope: ptr(0)},
			},
		}, netconf.DNS{}, func() *Result {
			r := full()
			other := r.Routes[1]
			other.Table = ptr(101)
			r.Routes = append(r.Routes, other)
			return r
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Extend(tc.prev, tc.iface, tc.ipam, tc.conf)
			if diff := cmp.Diff(tc.want(), got, compare); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if tc.prev != nil {
				if diff := cmp.Diff(full(), tc.prev, compare); diff != "" {
					t.Errorf("prev changed (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestMergeDNS(t *testing.T) {
	got := MergeDNS(
		netconf.DNS{Nameservers: []string{"1.1.1.1", "1.1.1.1"}, Options: []string{"ndots:5"}},
		netconf.DNS{Domain: "a.example", Nameservers: []string{"2.2.2.2", "1.1.1.1"}, Search: []string{"a.example"}},
		netconf.DNS{
			Domain:  "b.example",
			Search:  []string{"b.example", "a.example"},
			Options: []string{"ndots:5", "rotate"},
		},
	)
	want := netconf.DNS{
		Nameservers: []string{"1.1.1.1", "2.2.2.2"}, Domain: "a.example",
		Search: []string{"a.example", "b.example"}, Options: []string{"ndots:5", "rotate"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestExpect(t *testing.T) {
	onLink := Route{Dst: prefix("192.168.0.0/16")}
	two := full()
	two.Addresses[2].Interface = 2
	two.Routes = append(two.Routes, onLink)
	for _, tc := range []struct {
		name, iface, sandbox string
		in                   *Result
		found                bool
		want                 Expected
	}{
		{"all of the only addressed one", "ib0", podNetns, full(), true,
			Expected{full().Interfaces[1], full().Addresses[:2], full().Routes}},
		{"path spelled differently", "ib0", "/proc/77/ns/net", full(), true,
			Expected{full().Interfaces[1], full().Addresses[:2], full().Routes}},
		{"routes through its own prefix only", "ib0", podNetns, two, true,
			Expected{full().Interfaces[1], full().Addresses[:2], full().Routes}},
		{"no route of the other", "vhost0", podNetns, two, true, Expected{two.Interfaces[2], two.Addresses[2:3], nil}},
		{"no addresses, no routes", "vhost0", podNetns, full(), true, Expected{full().Interfaces[2], nil, nil}},
		{"on the host", "veth12", podNetns, full(), false, Expected{}},
		{"unknown", "net7", podNetns, full(), false, Expected{}},
		{"ambiguous", "a", "/n/3",
			&Result{Interfaces: []Interface{{Name: "a", Sandbox: "/n/1"},
				{Name: "a", Sandbox: "/n/2"}}}, false, Expected{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found := tc.in.Expect(tc.iface, tc.sandbox)
			if found != tc.found {
				t.Fatalf("found = %v", found)
			}
			if diff := cmp.Diff(tc.want, got, compare); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestInSandbox(t *testing.T) {
	r := &Result{Interfaces: []Interface{{Name: "h"}, {Name: "a", Sandbox: "/n/1"}, {Name: "b", Sandbox: "/n/2"}}}
	for sandbox, want := range map[string]string{"/n/1": "a", "/n/2": "b", "/n/3": "ab", "": "ab"} {
		var got string
		for _, f := range r.InSandbox(sandbox) {
			got += f.Name
		}
		if got != want {
			t.Errorf("InSandbox(%q) = %q, want %q", sandbox, got, want)
		}
	}
}
