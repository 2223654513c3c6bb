package plan

import (
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// plans are all the plans of testdata: name of the file to steps.
func plans() map[string][]Step {
	pf, vf := ipoibPF(), roceVF()
	pfHCA, vfHCA := hca("mlx5_0", pf.Address), hca("mlx5_4", vf.Address)
	plain := roceVF()
	plain.Address = device.Address{}
	none := &Addressing{}
	pod := moved(vf, "net1")
	pod.Index = 3
	renamed := moved(pf, "ib0")
	renamed.AltNames = []string{"rail0", "podname"}
	mode, umcast := device.ModeConnected, uint16(1)
	inPod := recreated("net1")
	inPod.AltNames = []string{"ibs108"}
	at := func(h *device.HCA, hs Side, n *device.Netdev, ns Side) Where {
		return Where{HCA: h, HCASide: hs, Netdev: n, NetdevSide: ns, Done: StageRebind}
	}
	podWith := *pod
	podWith.Addrs = []device.Addr{
		NewAddr(netip.MustParsePrefix("192.168.10.7/24")),
		{Prefix: netip.MustParsePrefix("fe80::7/64"), Scope: scopeLink},
	}
	rules := append(
		RailRules(dualStack(), Table(pod.Index)),
		device.Rule{Src: netip.MustParsePrefix("10.0.0.0/8"), Table: 9, Priority: 1},
	)

	out := map[string][]Step{
		"add-ipoib-exclusive": add(netconf.Config{}, pfHCA, pf, recreated("net1"), dualStack()),
		"add-ipoib-rdma-name": add(netconf.Config{RDMAName: "mlx5_rail0"}, pfHCA, pf, recreated("net1"), none),
		"add-ipoib-shared":    add(netconf.Config{MTU: 2044}, nil, pf, moved(pf, "net1"), dualStack()),
		"add-roce-vf":         add(netconf.Config{SourceBased: true}, vfHCA, vf, pod, dualStack()),
		"add-roce-vf-no-rdma": add(netconf.Config{MTU: 1500}, nil, vf, pod, none),
		"add-plain":           add(netconf.Config{}, nil, plain, moved(plain, "net1"), dualStack()),
		"add-rdma-only":       add(netconf.Config{RDMAName: "mlx5_rail0"}, vfHCA, nil, nil, nil),
		"add-rdma-same-name":  add(netconf.Config{RDMAName: "mlx5_4"}, vfHCA, nil, nil, nil),
		"add-child": {
			CreateChild{Master: *pf, Name: "net1", PKey: 0x8001, Group: 1 << 30, Mode: &mode, Umcast: &umcast},
		},
		"add-child-defaults": append(
			[]Step{CreateChild{Master: *pf, Name: "net1", PKey: 0xffff, Group: 1 << 30}},
			Configure(&netconf.Config{MTU: 4092}, nil, recreated("net1"), nil, nil)...),
		"add-chained-ipoib": append(
			Attach(&netconf.Config{}, "net1", pfHCA, pf),
			Restore(Pod, moved(pf, "net1"), recreated("net1"), 0)...),
		"add-ipv6-disabled":       Address(&netconf.Config{}, dualStack(), noIPv6(pod)),
		"add-probed":              Address(&netconf.Config{DetectConflicts: true}, dualStack(), noIPv6(pod)),
		"bring-ipoib":             bring(at(pfHCA, Pod, inPod, Pod), Host, pf),
		"bring-ipoib-rdma-home":   bring(at(pfHCA, Host, inPod, Pod), Host, pf),
		"bring-ipoib-home":        bring(at(pfHCA, Host, recreated("ib0"), Host), Host, pf),
		"bring-roce":              bring(at(vfHCA, Pod, pod, Pod), Host, vf),
		"bring-roce-netdev-home":  bring(at(vfHCA, Pod, vf, Host), Host, vf),
		"bring-chained":           bring(at(pfHCA, Pod, inPod, Pod), Pod, pf),
		"bring-nothing-found":     bring(Where{}, Host, pf),
		"bring-plain":             bring(at(nil, Host, moved(plain, "net1"), Pod), Host, plain),
		"restore-recreated":       Restore(Host, pf, recreated("ib0"), 1000),
		"restore-no-prefix-route": Restore(Host, bareAddrs(vf), vf, 1000),
		"restore-aged":            Restore(Host, pf, recreated("ib0"), 5000),
		"restore-same":            Restore(Host, pf, pf, 0),
		"restore-up-other-name":   Restore(Host, pf, renamed, 0),
		"restore-was-down":        Restore(Host, down(vf), vf, 0),
		"restore-conf":            Restore(Host, vf, otherConf(vf), 0),
		"restore-flags":           Restore(Host, vf, flagged(vf), 0),
		"restore-multipath":       Restore(Host, multipath(vf), down(vf), 0),
		"restore-order-of-addrs":  Restore(Host, manyAddrs(vf), vf, 0),
		"release":                 ReleaseNetdev(&podWith, rules, nil),
		"delete-child":            append(ReleaseNetdev(inPod, nil, nil), DeleteChild{In: Pod, Netdev: *inPod}),
		"add-rail-without-gateway": Address(&netconf.Config{SourceBased: true}, &Addressing{
			Addrs: []netip.Prefix{
				netip.MustParsePrefix("10.5.0.1/31"),
				netip.MustParsePrefix("10.6.0.1/32"),
			},
			Gateways: make([]netip.Addr, 2),
			Routes:   []device.Route{{Dst: netip.MustParsePrefix("10.7.0.0/16")}},
		}, pod),
	}
	maps.Copy(out, returns())
	return out
}

// bring is the part of the way back that moves the faces.
func bring(w Where, side Side, was *device.Netdev) []Step {
	if way := Return(w, Home{HCA: w.HCA, Netdev: was, Side: side}); way.Stage == StageMove {
		return way.Steps
	}
	return nil
}

// returns are whole ways back, as DEL goes them.
func returns() map[string][]Step {
	pf, vf := ipoibPF(), roceVF()
	pfHCA, vfHCA := hca("mlx5_0", pf.Address), hca("mlx5_4", vf.Address)
	inPod := recreated("net1")
	inPod.AltNames, inPod.Addrs = []string{"ibs108"}, []device.Addr{NewAddr(netip.MustParsePrefix("192.168.10.7/24"))}
	renamed := *pfHCA
	renamed.Name = "rail0"
	vfInPod := moved(vf, "net1")
	vfInPod.HWAddr, vfInPod.MTU = mustMAC("02:00:00:00:00:99"), 1000
	ether, ib := etherVF(), ibVF()
	ibHCA := hca("mlx5_4", device.Address{Bus: "pci", Name: "0000:3b:00.2"})
	etherNow, ibNow := ether.VFAttrs, ib.VFAttrs
	etherNow.MAC, etherNow.VLAN = mustMAC("02:00:00:00:00:99"), 7
	ibNow.NodeGUID, ibNow.PortGUID, ibNow.LinkState = new(newGUID), new(newGUID), device.VFLinkEnable
	guids := &VFHome{
		VF: ib, Set: []device.VFAttr{device.VFLinkState, device.VFNodeGUID, device.VFPortGUID},
		Rebind: true, HCA: ibHCA, Netdev: true,
	}
	tenant := &VFHome{VF: ib, Rebind: true, HCA: ibHCA, Netdev: true}
	attached := *ibHCA
	attached.NodeGUID = newGUID
	rules := RailRules(dualStack(), Table(inPod.Index))

	return map[string][]Step{
		"return-ipoib": Preview(
			Where{HCA: &renamed, HCASide: Pod, Netdev: inPod, NetdevSide: Pod, Rules: rules},
			Home{HCA: pfHCA, Netdev: pf}),
		"return-chained": Preview(
			Where{HCA: pfHCA, HCASide: Pod, Netdev: inPod, NetdevSide: Pod},
			Home{HCA: pfHCA, Netdev: pf, Side: Pod}),
		"return-vf": Preview(
			Where{HCA: vfHCA, HCASide: Pod, Netdev: vfInPod, NetdevSide: Pod, VF: &VFNow{VFAttrs: etherNow}},
			Home{HCA: vfHCA, Netdev: vf, VF: &VFHome{VF: ether, Set: []device.VFAttr{device.VFVLAN, device.VFMAC}}}),
		"return-vf-guid": Preview(
			Where{
				HCA: &attached, HCASide: Pod, Netdev: inPod, NetdevSide: Pod,
				VF: &VFNow{VFAttrs: ibNow, Faces: true, Driver: "mlx5_core"},
			},
			Home{HCA: ibHCA, Attached: &attached, Netdev: pf, VF: guids}),
		"return-vf-tenant": Preview(
			Where{
				HCA: ibHCA, HCASide: Pod, Netdev: inPod, NetdevSide: Pod, VF: &VFNow{Faces: true, Driver: "mlx5_core"},
			},
			Home{HCA: ibHCA, Attached: ibHCA, Netdev: pf, VF: tenant}),
		"return-vf-tenant-unbound": Preview(
			Where{VF: &VFNow{Faces: true}, Lost: true}, Home{HCA: ibHCA, Netdev: pf, VF: tenant}),
		"return-revive": Preview(
			Where{HCA: pfHCA, Missing: reviveAfter},
			Home{HCA: pfHCA, Netdev: pf}),
		"return-orphans": Preview(
			Where{Netdev: pf, Rules: rules, Others: []device.Netdev{*vfInPod}},
			Home{Netdev: pf}),
		"return-uppers": Preview(
			Where{Netdev: vfInPod, NetdevSide: Pod, Uppers: []device.Netdev{
				{Index: 8, Name: "net1.7", Kind: "vlan"}, {Index: 9, Name: "$(reboot)", Kind: "macvlan"},
			}},
			Home{Netdev: vf}),
		"return-ipoib-children": Preview(
			Where{PodGone: true, Netdev: pf, Uppers: []device.Netdev{
				{Index: 8, Name: "dev8", ARPType: 32}, {Index: 9, Name: "other", ARPType: 32, Group: 1<<30 + 7},
			}},
			Home{Netdev: pf, Keep: []KeptChild{{Group: 1<<30 + 7}}}),
		"return-child": Preview(
			Where{Netdev: inPod, NetdevSide: Pod, Rules: rules},
			Home{Child: true}),
		"return-lost": Preview(Where{HCA: pfHCA, HCASide: Host, Lost: true}, Home{HCA: pfHCA, Netdev: pf}),
	}
}

func down(n *device.Netdev) *device.Netdev {
	out := *n
	out.Flags &^= device.FlagUp
	return &out
}

func noIPv6(n *device.Netdev) *device.Netdev {
	out := *n
	out.IPv6Conf = make([]int32, 60)
	out.IPv6Conf[disableIPv6] = 1
	return &out
}

func otherConf(n *device.Netdev) *device.Netdev {
	out := noIPv6(n)
	out.IPv4Conf = make([]uint32, 33)
	out.IPv4Conf[arpIgnore-1], out.IPv4Conf[rpFilter-1], out.IPv4Conf[1] = 1, 2, 1
	out.IPv6Conf[1], out.IPv6Conf[0], out.IPv6Conf[2] = 77, 1, 5
	return out
}

func flagged(n *device.Netdev) *device.Netdev {
	out := *n
	out.Flags |= device.FlagPromisc | device.FlagAllMulti | device.FlagNoARP
	out.AddrGenMode, out.Group, out.Alias, out.TxQueue, out.MTU = 1, 7, "pod's", 5, 1500
	return &out
}

// bareAddrs are two addresses of one prefix, to which there is no route, and a route with a lifetime.
func bareAddrs(n *device.Netdev) *device.Netdev {
	out := *n
	for _, s := range []string{"2001:db8::2/64", "2001:db8::1/64", "10.1.0.1/24"} {
		out.Addrs = append(out.Addrs, device.Addr{
			Prefix: netip.MustParsePrefix(s), Valid: 3600, Preferred: 1800, NoRoute: true,
		})
	}
	out.Routes = []device.Route{
		{Dst: netip.MustParsePrefix("2001:db8:8::/48"), Table: tableMain, Expires: 3000},
		{Dst: netip.MustParsePrefix("2001:db8:9::/48"), Table: tableMain, Expires: 900},
	}
	return &out
}

func multipath(n *device.Netdev) *device.Netdev {
	out := *n
	out.Routes = []device.Route{{Dst: netip.MustParsePrefix("10.8.0.0/16"), Multipath: true, Table: tableMain}}
	return &out
}

func manyAddrs(n *device.Netdev) *device.Netdev {
	out := *n
	// As the kernel lists them.
	for _, s := range []string{"10.1.0.1/24", "10.1.0.2/24", "2001:db8::2/64", "2001:db8::1/64"} {
		out.Addrs = append(out.Addrs, device.Addr{Prefix: netip.MustParsePrefix(s), Valid: forever, Preferred: forever})
	}
	return &out
}

func TestGolden(t *testing.T) {
	for name, steps := range plans() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".golden")
			got := Print(steps)
			golden.Check(t, file, got)
		})
	}
}

func TestGoldenFilesAreUsed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	known := plans()
	for _, f := range files {
		if _, ok := known[f[len("testdata/"):len(f)-len(".golden")]]; !ok {
			t.Errorf("%s belongs to no plan", f)
		}
	}
}

// The same values give the same plan and the same text, whatever order maps are walked in.
func TestDeterministic(t *testing.T) {
	first := plans()
	for range 20 {
		for name, steps := range plans() {
			if diff := cmp.Diff(
				first[name],
				steps,
				cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
			); diff != "" {
				t.Fatalf("%s: -first +again:\n%s", name, diff)
			}
			if Print(first[name]) != Print(steps) {
				t.Fatalf("%s: printed in another order", name)
			}
		}
	}
}

// What went in is as it was: a plan may be made again from the same values.
func TestArgumentsAreKept(t *testing.T) {
	was, have := ipoibPF(), recreated("ib0")
	Restore(Host, was, have, 1000)
	Configure(&netconf.Config{}, was, have, nil, nil)
	if diff := cmp.Diff(ipoibPF(), was, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if diff := cmp.Diff(recreated("ib0"), have, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// Failpoints and metrics know steps by their kind: no two share one.
func TestKinds(t *testing.T) {
	kinds := map[string]reflect.Type{}
	for _, steps := range plans() {
		for _, s := range steps {
			if old, ok := kinds[s.Kind()]; ok && old != reflect.TypeOf(s) {
				t.Errorf("%s is the kind of %v and of %T", s.Kind(), old, s)
			}
			kinds[s.Kind()] = reflect.TypeOf(s)
		}
	}
	if len(kinds) != 25 { // each VF setting is a kind of its own
		t.Errorf("the plans use %d kinds of steps, want all 20 and five settings of VFs", len(kinds))
	}
}
