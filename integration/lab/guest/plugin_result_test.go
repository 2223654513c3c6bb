//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// printed is a result as any version prints it.
type printed struct {
	CNIVersion string
	Interfaces []struct {
		Name, Mac, Sandbox, PciID string
		Mtu                       int
	}
	IPs []struct {
		Version, Address, Gateway string
		Interface                 *int
	}
	Routes []struct{ Dst, GW string }
	DNS    struct {
		Nameservers, Search []string
		Domain              string
	}
}

// Every version that the plugin speaks, for a device, a child and a netdev alone.
func TestPluginResultVersions(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		for _, fields := range []config{{"device": "ibs108"}, {"mode": "ipoib", "master": "ibs112"}} {
			t.Run(fmt.Sprint(version, len(fields)), func(t *testing.T) {
				fields["cniVersion"] = version
				ipam := static("10.0.0.5/24 via 10.0.0.1", "fd00::5/64")
				ipam["routes"], ipam["dns"] = []config{
					{"dst": "10.77.0.0/16"},
					{"dst": "fd77::/16", "gw": "fd00::1"},
				}, config{
					"nameservers": []string{"10.0.0.53", "10.0.0.54"},
					"search":      []string{"b"},
				}
				fields["ipam"], fields["dns"] = ipam, config{
					"nameservers": []string{"10.0.0.54"},
					"domain":      "a.example",
				}
				a := interfaceOf(pod, "net1", network(fields))
				var r printed
				if err := json.Unmarshal([]byte(a.add(t).Stdout), &r); err != nil {
					t.Fatal(err)
				}
				link := pod.link(t, "net1").Attrs()
				if len(r.Interfaces) != 1 || r.Interfaces[0].Name != "net1" || r.Interfaces[0].Sandbox != pod.Path ||
					r.Interfaces[0].Mac != link.HardwareAddr.String() {
					t.Errorf("interfaces: %+v", r.Interfaces)
				} else if mtu := r.Interfaces[0].Mtu; version == "1.1.0" && mtu != link.MTU ||
					version < "1.0.0" && mtu != 0 {
					t.Errorf("MTU %d in version %s", mtu, version)
				}
				if len(r.IPs) != 2 || r.IPs[0].Address != "10.0.0.5/24" || r.IPs[0].Gateway != "10.0.0.1" ||
					r.IPs[1].Address != "fd00::5/64" ||
					r.IPs[0].Interface == nil ||
					*r.IPs[0].Interface != 0 {
					t.Errorf("ips: %+v", r.IPs)
				} else if v := r.IPs[0].Version; version < "1.0.0" &&
					v != "4" ||
					version >= "1.0.0" && v != "" {
					t.Errorf("IP version %q in version %s", v, version)
				}
				if r.CNIVersion != version || len(r.Routes) != 2 || r.DNS.Domain != "a.example" ||
					!slices.Equal(r.DNS.Nameservers, []string{"10.0.0.54", "10.0.0.53"}) ||
					!slices.Equal(r.DNS.Search, []string{"b"}) {
					t.Errorf("result: %+v", r)
				}
				pod.has(t, "net1", "10.0.0.5/24", "fd00::5/64")
				if version >= "0.4.0" {
					a.call("CHECK").Must(t)
				}
				a.del(t)
			})
		}
	}
}

// Addresses of one family, of both, several, none at all.
func TestPluginFamilies(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, addresses := range map[string][]string{
		"none": nil, "IPv4": {"10.0.0.5/24"}, "IPv6": {"fd00::5/64"}, "both": {"10.0.0.5/24", "fd00::5/64"},
		"a host": {"10.0.0.5/32"},
		"point to point": {
			"10.0.0.5/31"}, "several": {"10.0.0.5/24", "10.0.0.6/24", "10.1.0.5/24", "fd00::5/64", "fd00::6/64"},
	} {
		for _, based := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", based), func(t *testing.T) {
				fields := config{"device": "ibs110", "routing": config{"sourceBased": based}}
				if addresses != nil {
					fields["ipam"] = static(addresses...)
				}
				a := interfaceOf(pod, "net1", network(fields))
				a.add(t)
				pod.has(t, "net1", slices.Clone(addresses)...)
				a.call("CHECK").Must(t)
				a.del(t)
				if out := pod.sh(t, "ip rule; ip -6 rule"); containsAll(out, "20000") {
					t.Errorf("rules are left in the pod: %s", out)
				}
			})
		}
	}
}

// An IPv6 address is usable at once: IPAM has made sure that no other pod has it.
func TestPluginIPv6AtOnce(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("fd00::5/64")}))
	a.add(t)
	if out := pod.sh(
		t,
		"ip -6 address show dev net1 scope global",
	); containsAll(out, "tentative") ||
		!containsAll(out, "fd00::5") {
		t.Errorf("right after ADD: %s", out)
	}
	a.del(t)
}

// A plugin that gets its address through the interface is called when that is in the pod and up; any other may run
// before.
func TestPluginDHCPComesAfterTheInterface(t *testing.T) {
	S1(t)
	for _, mode := range []config{{"device": "ibs108"}, {"mode": "ipoib", "master": "ibs112"}} {
		t.Run(fmt.Sprint(len(mode)), func(t *testing.T) {
			S1(t)
			Unchanged(t)
			seen := filepath.Join(t.TempDir(), "seen")
			mode["ipam"] = config{"type": "dhcp"}
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(mode))
			a.path = plugins(t, map[string]string{"dhcp": `
if [ $CNI_COMMAND = ADD ]; then
	nsenter --net=$CNI_NETNS ip -o link show $CNI_IFNAME up >` + seen + ` || exit 1
	[ -s ` + seen + ` ] || { echo '{"code":100,"msg":"no interface"}'; exit 1; }
	echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.77/24"}]}'
fi`})
			a.add(t)
			pod.has(t, "net1", "10.0.0.77/24")
			a.del(t)
		})
	}
}
