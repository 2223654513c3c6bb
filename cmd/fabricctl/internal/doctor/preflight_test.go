package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const preflightDaemons = `[{"metadata":{"name":"kube-multus-ds","namespace":"kube-system"},"spec":{"template":{"spec":{
"containers":[{"image":"example.com/multus-cni:v4.2.0","args":["/thin_entrypoint"]}]}}},
"status":{"desiredNumberScheduled":3,"numberReady":3}}]`

// ready is a cluster in which nothing is to be done: two nodes with HCAs, in exclusive mode, and one without.
func ready(t *testing.T) *Preflight {
	t.Helper()
	p := &Preflight{
		Mode: "exclusive", Version: "v1.36.0", Listed: map[string]bool{"nodes": true, "pods": true, "daemonsets": true},
		Features: map[string][]string{featureValidating: {"v1"}, featureMutating: {"v1"}, featureServices: {"v1"},
			featureDRA: {"v1"}, featureNetworks: {"v1"}},
		DaemonSets: decode[[]DaemonSet](t, preflightDaemons),
		Nodes: decode[[]corev1.Node](t, `[
 {"metadata":{"name":"g1","labels":{"feature.node.kubernetes.io/pci-0207_15b3.present":"true"}}},
 {"metadata":{"name":"g2","labels":{"feature.node.kubernetes.io/rdma.capable":"true"}}},
 {"metadata":{"name":"cp","labels":{"feature.node.kubernetes.io/rdma.capable":"false"}}}]`),
		States: decode[[]SriovState](t, `[{"metadata":{"name":"g1"},"status":{"system":{"rdmaMode":"exclusive"}}},
 {"metadata":{"name":"g2"},"status":{"system":{"rdmaMode":"exclusive"}}}]`),
	}
	for i := range p.Nodes {
		p.Nodes[i].Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: "6.8.0", OSImage: "Ubuntu 24.04",
			KubeletVersion: "v1.36.0"}
		p.Nodes[i].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8")}
	}
	return p
}

// allText is text, and the findings that are OK.
func allText(list []Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s %s %s\n", f.Status, f.ID, f.Evidence)
	}
	return b.String()
}

func TestPreflightReady(t *testing.T) {
	const want = `OK preflight-nodes 2 of 3 nodes have HCAs: g1, g2
OK preflight-kubernetes the API server is v1.36.0
OK preflight-features served: ValidatingAdmissionPolicy, resource.k8s.io, MutatingAdmissionPolicy, ServiceCIDR
OK preflight-kernel Linux 6.8.0 (Ubuntu 24.04) on g1, g2
OK preflight-multus kube-system/kube-multus-ds (multus-cni:v4.2.0, thin)
OK preflight-driver no driver container
OK preflight-rdma-mode exclusive on g1, g2
OK preflight-shared-plugin no RDMA shared device plugin, and no node offers rdma/...
OK preflight-device-plugins no node offers HCAs of another device plugin
OK preflight-ipam neither whereabouts nor nv-ipam: addresses.nodeRanges needs neither
OK preflight-rdma-pods none of 0 workloads asks for rdma/...
OK preflight-host-users none of 0 workloads can open the HCAs of the host
`
	if d := cmp.Diff(want, allText(CheckPreflight(ready(t)))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What could not be looked at is not in order: without a list there is no finding of it.
func TestPreflightUnknown(t *testing.T) {
	for what, ids := range map[string]string{
		"nodes":      "preflight-nodes preflight-kernel preflight-device-plugins preflight-shared-plugin",
		"pods":       "preflight-rdma-pods preflight-host-users",
		"daemonsets": "preflight-multus preflight-driver preflight-shared-plugin",
	} {
		p := ready(t)
		p.Listed[what], p.Missing = false, []string{"list " + what + ": forbidden"}
		switch what {
		case "nodes":
			p.Nodes = nil
		case "daemonsets":
			p.DaemonSets = nil
		}
		list := CheckPreflight(p)
		if got := found(list, "preflight-access"); got != "WARN" {
			t.Errorf("%s: preflight-access %q", what, got)
		}
		for id := range strings.FieldsSeq(ids) {
			if got := found(list, id); got != "" {
				t.Errorf("without %s %s is %s", what, id, got)
			}
		}
	}
	spoil(t, ready, CheckPreflight, []change[*Preflight]{
		{"no Node", func(p *Preflight) { p.Nodes = nil }, "WARN preflight-nodes the cluster has no Node\n"},
		{"no labels, no agent", func(p *Preflight) {
			p.States = nil
			for i := range p.Nodes {
				p.Nodes[i].Labels = nil
			}
		}, "WARN preflight-nodes nothing tells which of 3 nodes have HCAs\nWARN preflight-local RDMA mode, driver " +
			"and programs of the host are not known of cp, g1, g2\n"},
		{"a mode that no kernel has", func(p *Preflight) { p.States[1].Status.System.RDMAMode = "x" },
			"WARN preflight-local RDMA mode, driver and programs of the host are not known of g2\n"},
		{"no version", func(p *Preflight) { p.Version = "" },
			"WARN preflight-kubernetes the API server does not tell a version 1.x: none\n"},
	})
}

func TestPreflightCluster(t *testing.T) {
	spoil(t, ready, CheckPreflight, []change[*Preflight]{
		{"old", func(p *Preflight) { p.Version = "v1.31.9" },
			"FAIL preflight-kubernetes the API server is v1.31.9\n"},
		{"old kubelet", func(p *Preflight) { p.Nodes[1].Status.NodeInfo.KubeletVersion = "v1.30.1" },
			"FAIL preflight-kubernetes kubelet: v1.30.1 on g2\n"},
		{"no admission policies", func(p *Preflight) { delete(p.Features, featureValidating) },
			"FAIL preflight-features the API server does not serve ValidatingAdmissionPolicy\n"},
		{"features that only some need", func(p *Preflight) {
			p.Features = map[string][]string{featureValidating: {"v1"},
				featureDRA: {"v1beta1"}, featureNetworks: {"v1"}}
		}, ""},
		{"no Multus", func(p *Preflight) { delete(p.Features, featureNetworks) },
			"FAIL preflight-multus the API server does not serve NetworkAttachmentDefinition\n"},
		{"no DaemonSet of Multus", func(p *Preflight) { p.DaemonSets = nil },
			"WARN preflight-multus no DaemonSet of Multus\n"},
		{"Multus not ready", func(p *Preflight) { p.DaemonSets[0].Status.NumberReady = 2 }, "WARN preflight-multus " +
			"kube-system/kube-multus-ds (multus-cni:v4.2.0, thin) is ready on 2 of 3 nodes\n"},
		{"Multus not wanted", func(p *Preflight) {
			p.DaemonSets[0].Status.NumberReady, p.DaemonSets[0].Status.DesiredNumberScheduled = 1, 1
		}, "WARN preflight-multus kube-system/kube-multus-ds (multus-cni:v4.2.0, thin) is wanted on 1 node, and HCAs " +
			"are in 2\n"},
		{"another device plugin", func(p *Preflight) {
			p.Nodes[0].Status.Allocatable["nvidia.com/hostdev"] = resource.MustParse("4")
			p.Nodes[0].Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8")
			p.Nodes[1].Status.Allocatable["fabric.dev/ib"] = resource.MustParse("4")
			p.Nodes[1].Status.Allocatable["nvidia.com/old_vf"] = resource.MustParse("0")
		}, "WARN preflight-device-plugins nodes offer nvidia.com/hostdev (1 node)\n"},
		{"the shared device plugin by its resource", func(p *Preflight) {
			p.Nodes[0].Status.Allocatable["rdma/a"] = resource.MustParse("63")
		}, "FAIL preflight-shared-plugin nodes offer rdma/a (1 node)\n"},
		{"the shared device plugin with a prefix of its own", func(p *Preflight) {
			p.Policies = decode[[]NicPolicy](t, `[{"metadata":{"name":"n"},"spec":{"rdmaSharedDevicePlugin":{
"config":"{\"configList\":[{\"resourceName\":\"x\",\"resourcePrefix\":\"example.com\"}]}"}}}]`)
			p.Nodes[0].Status.Allocatable["example.com/x"] = resource.MustParse("63")
			p.AddPod(runningPod(t, `{"metadata":{"name":"a","namespace":"ml"},"spec":{"containers":[{"resources":{
"requests":{"example.com/x":"1"}}}]}}`))
		}, "FAIL preflight-shared-plugin nodes offer example.com/x (1 node)\n" +
			"FAIL preflight-rdma-pods ml/a (Pod) asks for example.com/x\n"},
	})
}

func TestPreflightMode(t *testing.T) {
	shared := func(p *Preflight) {
		for i := range p.States {
			p.States[i].Status.System.RDMAMode = "shared"
		}
	}
	const mode = "WARN preflight-rdma-mode shared on g1, g2, wanted is exclusive\n"
	const local = "WARN preflight-local driver and programs of the host are not known of g1, g2\n"
	spoil(t, ready, CheckPreflight, []change[*Preflight]{
		{"shared", shared, mode + local},
		{"shared, as wanted", func(p *Preflight) { shared(p); p.Mode = "shared" }, ""},
		{"mixed", func(p *Preflight) { p.States[1].Status.System.RDMAMode = "shared" },
			"WARN preflight-rdma-mode exclusive on g1; shared on g2, wanted is exclusive\n" +
				"WARN preflight-local driver and programs of the host are not known of g2\n"},
		{"the agent knows better", func(p *Preflight) {
			shared(p)
			for _, name := range []string{"g1", "g2"} {
				f := FabricNode{}
				f.Name, f.Status.RDMAMode = name, "exclusive"
				p.FabricNodes = append(p.FabricNodes, f)
			}
		}, ""},
		{"an agent that has gone knows nothing", func(p *Preflight) {
			f := FabricNode{}
			f.Name, f.Status.RDMAMode, f.Spec.Gone = "g1", "shared", &metav1.Time{}
			p.FabricNodes = append(p.FabricNodes, f)
		}, ""},
		{"a driver container", func(p *Preflight) {
			shared(p)
			p.DaemonSets = append(p.DaemonSets, driverContainer(t))
		}, "WARN preflight-driver driver container nvidia-network-operator/mofed-ds (doca-driver:25.04), on 2 nodes\n" +
			mode + local},
		{"a driver container, and the mode is right", func(p *Preflight) {
			p.DaemonSets = append(p.DaemonSets, driverContainer(t))
		}, ""},
		{"a driver container that is to come", func(p *Preflight) {
			shared(p)
			p.Policies = decode[[]NicPolicy](t, `[{"metadata":{"name":"n"},"spec":{"ofedDriver":{
"image":"doca-driver","version":"25.04"}}}]`)
			p.Policies[0].Kind = "NicClusterPolicy"
		}, "WARN preflight-driver NicClusterPolicy n has a driver container (doca-driver 25.04)\n" + mode + local},
		{"driver containers of other nodes", func(p *Preflight) {
			shared(p)
			d := driverContainer(t)
			d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "storage"}
			p.DaemonSets = append(p.DaemonSets, d)
			p.Policies = decode[[]NicPolicy](t, `[{"metadata":{"name":"n"},"spec":{"nodeSelector":{"pool":"storage"},
"ofedDriver":{"image":"doca-driver","version":"25.04"}}}]`)
		}, mode + local},
		{"driver containers of nodes that are not known", func(p *Preflight) {
			shared(p)
			d := driverContainer(t)
			d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "storage"}
			p.DaemonSets = append(p.DaemonSets, d)
			p.Listed["nodes"] = false
		}, "WARN preflight-driver driver container nvidia-network-operator/mofed-ds (doca-driver:25.04), on 2 nodes\n" +
			mode + local},
		{"an operator that sets the other mode", func(p *Preflight) {
			p.Pools = decode[[]SriovPool](t, `[{"metadata":{"name":"p","namespace":"s"},"spec":{"rdmaMode":"shared"}},
 {"metadata":{"name":"q","namespace":"s"},"spec":{"rdmaMode":"exclusive"}},{"metadata":{"name":"r"},"spec":{}}]`)
		}, "WARN preflight-mode-owner SriovNetworkPoolConfig s/p sets shared, wanted is exclusive\n"},
		{"OpenShift", func(p *Preflight) { shared(p); p.Features[featureMachines] = []string{"v1"} },
			mode + "WARN preflight-mode-owner the machine config operator writes the files of nodes, and no " +
				"MachineConfig sets the RDMA mode\n" + local},
		{"OpenShift, set", func(p *Preflight) {
			shared(p)
			p.Features[featureMachines] = []string{"v1"}
			p.MachineConfigs = decode[[]MachineConfig](t, `[{"metadata":{"name":"m"},"spec":{
"kernelArguments":["quiet","ib_core.netns_mode=0"]}}]`)
		}, mode + local},
		{"a system with a sealed initramfs", func(p *Preflight) {
			shared(p)
			p.Nodes[0].Status.NodeInfo.OSImage = "Talos (v1.9.0)"
		}, mode + "WARN preflight-mode-owner the initramfs is part of the image of the system: Talos (v1.9.0) on g1\n" +
			local},
	})
}

func driverContainer(t *testing.T) DaemonSet {
	t.Helper()
	return decode[DaemonSet](t, `{"metadata":{"name":"mofed-ds","namespace":"nvidia-network-operator"},
"spec":{"template":{
"spec":{"containers":[{"image":"example.com/doca-driver:25.04"}]}}},"status":{"desiredNumberScheduled":2,
"numberReady":2}}`)
}

func runningPod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	o := decode[corev1.Pod](t, text)
	return &o
}

func TestPreflightPods(t *testing.T) {
	add := func(spec string) func(p *Preflight) {
		return func(p *Preflight) {
			p.AddPod(runningPod(t, `{"metadata":{"name":"a","namespace":"ml"},"spec":`+spec+`,
"status":{"phase":"Running"}}`))
		}
	}
	spoil(t, ready, CheckPreflight, []change[*Preflight]{
		{"GPUs, a network of its own", add(`{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"8"}}}]}`), ""},
		{"another plugin's HCAs", add(`{"containers":[{"resources":{"limits":{"nvidia.com/ib":"8"}}}]}`), ""},
		{"only privileged", add(`{"containers":[{"securityContext":{"privileged":true}}]}`), ""},
		{"only hostNetwork", add(`{"hostNetwork":true,"containers":[{}]}`), ""},
		{"another path", add(`{"volumes":[{"name":"d","hostPath":{"path":"/dev/infiniband2"}}]}`), ""},
		{"a device file", add(`{"volumes":[{"name":"d","hostPath":{"path":"/dev/infiniband/uverbs0"}}]}`),
			"FAIL preflight-host-users ml/a (Pod) has hostPath /dev/infiniband/uverbs0\n"},
		{"all devices, variables of UCX", add(`{"volumes":[{"name":"d","hostPath":{"path":"/dev/"}}],"containers":[{
"env":[{"name":"UCX_TLS"}]}]}`),
			"WARN preflight-host-users ml/a (Pod) may use verbs: hostPath /dev; variable UCX_TLS\n"},
		{"privileged, memory locked", add(`{"initContainers":[{"securityContext":{"privileged":true,"capabilities":{
"add":["IPC_LOCK"]}}}]}`),
			"WARN preflight-host-users ml/a (Pod) may use verbs: privileged; capability IPC_LOCK\n"},
		{"hostNetwork and rdma/", add(`{"hostNetwork":true,"containers":[{"env":[{"name":"UCX_TLS"}],
"resources":{"limits":{"rdma/a":"1"}}}]}`),
			"FAIL preflight-rdma-pods ml/a (Pod) asks for rdma/a\n"},
		{"it has ended", func(p *Preflight) {
			p.AddPod(runningPod(t, `{"metadata":{"name":"a"},
"spec":{"containers":[{"resources":{"limits":{"rdma/a":"1"}}}]},
"status":{"phase":"Failed"}}`))
		}, ""},
		{"the agent knows of a program", func(p *Preflight) {
			f := FabricNode{}
			f.Name, f.Status.RDMAMode = "g1", "exclusive"
			f.Status.Fabrics = []v1alpha1.NodeFabric{{Devices: []v1alpha1.FabricDevice{
				{ID: "0000:18:00.0", HCA: "mlx5_0", Problem: "InUseByHost"}, {ID: "0000:19:00.0", Problem: "PortDown"},
			}}}
			p.FabricNodes = []FabricNode{f}
		}, "FAIL preflight-host-users node g1: a program of the host uses mlx5_0 (0000:18:00.0)\n"},
	})
}

// Hundreds of workloads are all named, thousands are counted; of many pods of one a few are named.
func TestPreflightMany(t *testing.T) {
	p := ready(t)
	for i := range mostWorkloads + 7 {
		o := runningPod(t, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"ml"},"spec":{"containers":[{"resources":{
"limits":{"rdma/a":"1"}}}]}}`, i))
		p.AddPod(o)
	}
	list := preflightRDMAPods(p)
	if len(list) != mostWorkloads+7 {
		t.Fatalf("%d findings", len(list))
	}
	all := CheckPreflight(p)
	last := ""
	n := 0
	for _, f := range all {
		if f.ID == "preflight-rdma-pods" {
			n, last = n+1, f.Evidence
		}
	}
	if n != mostWorkloads+1 || last != "and 7 more" {
		t.Errorf("%d findings, the last %q", n, last)
	}
	b, err := json.Marshal(all)
	if err != nil || len(b) > 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestPreflightHost(t *testing.T) {
	const conf = "WARN host-rdma-mode the mode is shared, netns_mode=0 in /etc/modprobe.d/ib_core.conf\n"
	for _, c := range []struct {
		name, mode string
		m          *machines.Machine
		spoil      func(h *Host)
		want       string
	}{
		{"in exclusive mode", "exclusive", machines.RoCE(), func(*Host) {},
			"WARN preflight-driver the source of mlx5_core is not known\n"},
		{"in shared mode", "exclusive", machines.GB200(), func(h *Host) {
			none := ""
			h.RDMATaint = &none
		}, "WARN preflight-rdma-mode shared, wanted is exclusive\n" + conf + "WARN preflight-host-users what uses " +
			"the HCAs is not known\n"},
		{"in shared mode, with users", "exclusive", machines.GB200(), func(h *Host) {
			oot := "OE"
			h.RDMATaint, h.RDMAVersion, h.UsersKnown = &oot, "24.10-0.7.0", true
			h.Node.Users = map[string][]string{"mlx5_0": {"process 4711 (rping)", "kernel module nvme_rdma"}}
		}, "WARN preflight-rdma-mode shared, wanted is exclusive\n" + conf + "FAIL preflight-host-users mlx5_0 is " +
			"in use by process 4711 (rping), kernel module nvme_rdma\n"},
		{"without HCAs", "exclusive", machines.Plain(), func(*Host) {}, "FAIL host-devices no RDMA device in " +
			"/sys/class/infiniband, none in the journal\nWARN preflight-rdma-mode the RDMA mode is not known\n"},
	} {
		h := host(t, c.m)
		c.spoil(h)
		if d := cmp.Diff(c.want, text(CheckPreflightHost(h, c.mode))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// A module of the kernel's own tree, one that is not, one that is built in, and a recording that does not tell.
func TestRDMADriver(t *testing.T) {
	for _, c := range []struct{ files, want string }{
		{"initstate=live taint=", "OK preflight-driver mlx5_core is the kernel's own (inbox)\n"},
		{"initstate=live taint=OE version=24.10-0.7.0", "OK preflight-driver mlx5_core is not the kernel's own " +
			"(MLNX_OFED or DOCA), version 24.10-0.7.0\n"},
		{"uevent=", "OK preflight-driver mlx5_core is the kernel's own (inbox)\n"},
		{"initstate=live", "WARN preflight-driver the source of mlx5_core is not known\n"},
	} {
		m := machines.RoCE()
		m.Without("sys/module/mlx5_core")
		for f := range strings.FieldsSeq(c.files) {
			name, value, _ := strings.Cut(f, "=")
			m.File("sys/module/mlx5_core/"+name, value+"\n")
		}
		if got := allText(host(t, m).preflightDriver()); got != c.want {
			t.Errorf("%s: %s", c.files, got)
		}
	}
}

// The addresses that a Fabric must not have are named once, and what could not be read is to be looked at.
func TestPreflightRanges(t *testing.T) {
	p := ready(t)
	p.Net = &clusternet.Net{Missing: []string{"Calico IPPools: the role lacks the verb list"}}
	for i := range 20 {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 2), 0, 0}), 16)
		p.Net.Uses = append(p.Net.Uses,
			clusternet.Use{Prefix: prefix, What: fmt.Sprint("podCIDRs of Node n", i), Sure: true},
			clusternet.Use{Prefix: netip.MustParsePrefix("10.99.0.0/16"), What: "a pool"})
	}
	got := allText(preflightRanges(p))
	want := "WARN preflight-ranges a range can't be compared with Calico IPPools: the role lacks the verb list\n" +
		"OK preflight-ranges a Fabric must not have addresses of podCIDRs of Node n0 (10.0.0.0/16), podCIDRs of "
	if !strings.HasPrefix(got, want) || strings.Count(got, "podCIDRs") != 8 ||
		!strings.Contains(got, " and 2 more: ") || strings.Contains(got, "a pool") {
		t.Errorf("%s\nwant %s", got, want)
	}
}
