package result

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	podNetns = "/run/netns/cni-5f1c"
	ipoibMAC = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func ptr(i int) *int               { return &i }

// full has every field that a result can have.
func full() *Result {
	return &Result{
		Interfaces: []Interface{
			{Name: "veth12", MAC: "02:00:00:00:00:01"},
			{Name: "ib0", MAC: ipoibMAC, MTU: 4092, Sandbox: podNetns, PCIID: "0000:3b:00.2"},
			{Name: "vhost0", Sandbox: podNetns, SocketPath: "/run/vhost.sock"},
		},
		Addresses: []Address{
			{Prefix: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1"), Interface: 1},
			{Prefix: prefix("fd00:1::3/64"), Gateway: addr("fd00:1::1"), Interface: 1},
			{Prefix: prefix("192.0.2.9/32"), Interface: NoInterface},
		},
		Routes: []Route{
			{Dst: prefix("0.0.0.0/0"), Gateway: addr("10.1.2.1")},
			{
				Dst:      prefix("fd00:2::/48"),
				Gateway:  addr("fd00:1::1"),
				MTU:      2044,
				AdvMSS:   1984,
				Priority: 7,
				Table:    ptr(100),
				Scope:    ptr(0),
			},
		},
		DNS: netconf.DNS{
			Nameservers: []string{"10.1.0.53"},
			Domain:      "rail.example",
			Search:      []string{"a.example"},
			Options:     []string{"ndots:2"},
		},
	}
}

// as is what of r survives in a spec version.
func as(version string, r *Result) *Result {
	if version < "1.0.0" {
		for i := range r.Interfaces {
			r.Interfaces[i].MTU, r.Interfaces[i].SocketPath, r.Interfaces[i].PCIID = 0, "", ""
		}
	}
	return r
}

func TestGoldenInEveryVersion(t *testing.T) {
	results := map[string]func() *Result{
		"full":  full,
		"empty": func() *Result { return &Result{} },
		"ipv6": func() *Result {
			return &Result{
				Interfaces: []Interface{{Name: "net1", MAC: "02:00:00:00:00:02", MTU: 9000, Sandbox: podNetns}},
				Addresses:  []Address{{Prefix: prefix("fd00::5/128")}},
			}
		},
	}
	for name, build := range results {
		for _, version := range versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				var got bytes.Buffer
				if err := build().Print(&got, version); err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata", name+"-"+version+".json")
				if *update {
					if err := os.WriteFile(golden, append(got.Bytes(), '\n'), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.TrimSpace(string(want)), got.String()); diff != "" {
					t.Errorf("printed (-want +got):\n%s", diff)
				}
				back, err := Parse(want, "")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(as(version, build()), back, compare); diff != "" {
					t.Errorf("parsed back (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestPrintRefusesOtherVersions(t *testing.T) {
	for _, v := range []string{"", "0.1.0", "0.2.0", "1.2.0", "x"} {
		if err := full().Print(&bytes.Buffer{}, v); err == nil {
			t.Errorf("version %q: no error", v)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, raw, version string
		want               *Result
		err                string
	}{
		{name: "version of the configuration", raw: `{"ips":[{"version":"4","address":"10.0.0.1/8"}]}`,
			version: "0.3.1",
			want:    &Result{Addresses: []Address{{prefix("10.0.0.1/8"), netip.Addr{}, NoInterface}}}},
		{name: "no version at all", raw: `{}`, err: `CNI version ""`},
		{name: "version too old", raw: `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8"}}`, version: "0.3.1",
			err: `CNI version "0.2.0"`},
		{name: "null", raw: `null`, version: "1.0.0", want: &Result{}},
		{name: "mapped IPv4", raw: `{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/104",` +
			`"gateway":"::ffff:10.0.0.2"}]}`,
			want: &Result{Addresses: []Address{{prefix("10.0.0.1/8"), addr("10.0.0.2"), NoInterface}}}},
		{name: "mapped IPv4 with an IPv6 prefix", raw: `{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/` +
			`64"}]}`, err: "ips[0]: address"},
		{name: "interface that is not there", raw: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8",` +
			`"interface":0}]}`,
			want: &Result{Addresses: []Address{{prefix("10.0.0.1/8"), netip.Addr{}, NoInterface}}}},
		{name: "negative interface", raw: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8","interface":-5}]}`,
			want: &Result{Addresses: []Address{{prefix("10.0.0.1/8"), netip.Addr{}, NoInterface}}}},
		{name: "empty gateway", raw: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8","gateway":""}]}`,
			want: &Result{Addresses: []Address{{prefix("10.0.0.1/8"), netip.Addr{}, NoInterface}}}},
		{name: "gateway of another family", raw: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8",` +
			`"gateway":"fd00::1"}]}`, err: "another family"},
		{name: "address without a length", raw: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1"}]}`,
			err: "10.0.0.1"},
		{name: "no address", raw: `{"cniVersion":"1.0.0","ips":[{}]}`, err: "ips[0]: address"},
		{name: "no destination", raw: `{"cniVersion":"1.0.0","routes":[{"gw":"10.0.0.1"}]}`, err: "routes[0].dst"},
		{name: "null interface", raw: `{"cniVersion":"0.4.0","interfaces":[null]}`, err: "interfaces[0] is null"},
		{name: "null address", raw: `{"cniVersion":"0.4.0","ips":[null]}`, err: "ips[0] is null"},
		{name: "null route", raw: `{"cniVersion":"0.4.0","routes":[null]}`, err: "routes[0] is null"},
		{name: "list", raw: `[]`, version: "1.0.0", err: "decode CNI result"},
		{name: "no JSON", raw: `hello`, version: "1.0.0", err: "decode CNI result"},
		{name: "two results", raw: `{"cniVersion":"1.0.0"}{}`, err: "decode CNI result"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse([]byte(tc.raw), tc.version)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, compare); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What Parse accepts can be printed in every version: a prevResult comes from outside.
func FuzzParse(f *testing.F) {
	for _, v := range versions {
		raw, err := os.ReadFile(filepath.Join("testdata", "full-"+v+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Parse(raw, "1.1.0")
		if err != nil {
			return
		}
		for _, v := range versions {
			var b bytes.Buffer
			if err := r.Print(&b, v); err != nil {
				t.Fatalf("print as %s: %v", v, err)
			}
			if _, err := Parse(b.Bytes(), v); err != nil {
				t.Fatalf("parse again as %s: %v", v, err)
			}
		}
	})
}
