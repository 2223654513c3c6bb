package nvipam_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

func TestParse(t *testing.T) {
	for section, want := range map[string]string{
		`{"type":"nv-ipam","poolName":"rail-0"}`:                                          "IPPool [rail-0]",
		`{"type":"nv-ipam","poolName":"rail-0","poolType":"ippool"}`:                      "IPPool [rail-0]",
		`{"type":"nv-ipam","poolName":"rail-0.v4,rail-0.v6","poolType":"cidrpool"}`:       "CIDRPool [rail-0.v4 rail-0.v6]",
		`{"type":"nv-ipam","poolName":"a","daemonCallTimeoutSeconds":9,"logFile":"/a/b"}`: "IPPool [a]",
		`{"type":"nv-ipam"}`:                                      `ipam.poolName "": want the name of an IPPool`,
		`{"type":"nv-ipam","poolName":"a,b,c"}`:                   `ipam.poolName "a,b,c": want one pool, or two`,
		`{"type":"nv-ipam","poolName":"a, b"}`:                    `ipam.poolName "a, b": want the name of an IPPool, or two`,
		`{"type":"nv-ipam","poolName":"a,"}`:                      `ipam.poolName "a,": want the name`,
		`{"type":"nv-ipam","poolName":"a,a"}`:                     `names one pool twice`,
		`{"type":"nv-ipam","poolName":"Rail_0"}`:                  `ipam.poolName "Rail_0": want the name`,
		`{"type":"nv-ipam","poolName":"a","poolType":"CIDRPool"}`: `ipam.poolType "CIDRPool": want ippool or cidrpool`,
		`{"type":"nv-ipam","poolname":"a"}`:                       `ipam: "poolname" is unknown, and nv-ipam would ignore it`,
		`{"type":"nv-ipam","poolName":7}`:                         `ipam: json: cannot unmarshal number`,
		`{"type":"nv-ipam","poolName":"a","range":"10.0.0.0/24"}`: `"range" is unknown`,
	} {
		c, err := nvipam.Parse([]byte(section))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(c.Kind, " ", c.Pools)
		}
		if !strings.HasPrefix(got, want) && !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", section, got, want)
		}
	}
}

func TestReadPool(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"IPPool", `{"spec":{"subnet":"192.168.0.0/24","perNodeBlockSize":50,"gateway":"192.168.0.1"},"status":{"allocations":[
			{"nodeName":"a","startIP":"192.168.0.1","endIP":"192.168.0.50"},
			{"nodeName":"b","startIP":"192.168.0.51","endIP":"192.168.0.100"}]}}`,
			"192.168.0.0/24 5 blocks map[a:49 b:50]"},
		{"IPPool", `{"spec":{"subnet":"192.168.0.0/24","perNodeBlockSize":127,
			"exclusions":[{"startIP":"192.168.0.10","endIP":"192.168.0.19"}],"perNodeExclusions":[{"startIndex":0,"endIndex":6}]},
			"status":{"allocations":[{"nodeName":"a","startIP":"192.168.0.1","endIP":"192.168.0.127"}]}}`,
			"192.168.0.0/24 2 blocks map[a:110]"},
		{"IPPool", `{"spec":{"subnet":"fd00::/64","perNodeBlockSize":1000}}`,
			fmt.Sprintf("fd00::/64 %d blocks map[]", pool.Max/1000)},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0/16","perNodeNetworkPrefix":24,"gatewayIndex":1},"status":{"allocations":[
			{"nodeName":"a","prefix":"10.0.0.0/24","gateway":"10.0.0.1"}]}}`, "10.0.0.0/16 256 blocks map[a:253]"},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0/15","perNodeNetworkPrefix":31,"perNodeExclusions":[{"startIndex":1,"endIndex":1}]},
			"status":{"allocations":[{"nodeName":"a","prefix":"10.0.0.2/31"}]}}`, "10.0.0.0/15 65536 blocks map[a:1]"},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0/24","perNodeNetworkPrefix":32},"status":{"allocations":[
			{"nodeName":"a","prefix":"10.0.0.0/32"}]}}`, "10.0.0.0/24 256 blocks map[a:1]"},
		{"CIDRPool", `{"spec":{"cidr":"fd00::/48","perNodeNetworkPrefix":120},"status":{"allocations":[
			{"nodeName":"a","prefix":"fd00::/120"}]}}`, fmt.Sprintf("fd00::/48 %d blocks map[a:255]", pool.Max)},
		{"CIDRPool", `{"spec":{"cidr":"255.255.255.0/24","perNodeNetworkPrefix":25,
			"perNodeExclusions":[{"startIndex":2,"endIndex":4294967295}]},
			"status":{"allocations":[{"nodeName":"a","prefix":"255.255.255.128/25"}]}}`, "255.255.255.0/24 2 blocks map[a:1]"},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0/24","perNodeNetworkPrefix":20}}`, "spec.perNodeNetworkPrefix 20: want"},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0"}}`, "spec.cidr"},
		{"CIDRPool", `{"spec":{"cidr":"10.0.0.0/16","perNodeNetworkPrefix":24},"status":{"allocations":[
			{"nodeName":"a","prefix":"10.1.0.0/24"}]}}`, `allocation of node "a": 10.1.0.1 to 10.1.0.254: not within 10.0.0.0/16`},
		{"IPPool", `{"spec":{"subnet":"10.0.0.0/24"}}`, "spec.perNodeBlockSize 0"},
		{"IPPool", `{"spec":{"subnet":"10.0.0.0/24","perNodeBlockSize":5,"exclusions":[{"startIP":"x"}]}}`,
			"ParseAddr"},
		{"IPPool", `{"spec":{"subnet":"10.0.0.0/24","perNodeBlockSize":5},"status":{"allocations":[{"nodeName":"a"}]}}`,
			"not within"},
	} {
		p, err := nvipam.ReadPool(c.kind, "ns", "p", []byte(c.text))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s %d blocks %v", p.Prefix, p.Blocks, p.Given)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}
