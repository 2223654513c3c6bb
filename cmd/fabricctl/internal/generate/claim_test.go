package generate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const gpuClass = "gpu.nvidia.com"

// claimed are options with a change.
func claimed(change func(o *Options)) Options {
	o := options()
	o.DRA = true
	change(&o)
	return o
}

func TestClaimGolden(t *testing.T) {
	aligned := claimed(func(o *Options) { o.GPUClass, o.Pod = gpuClass, true })
	for _, m := range []string{"h20", "a100", "roce"} {
		check(t, "claim", m+"-gpus", []string{m}, aligned)
	}
	check(t, "claim", "h20-one", []string{"h20"}, claimed(func(o *Options) { o.GPUClass, o.Rails = gpuClass, 1 }))
	check(t, "claim", "gb200-rails", []string{"gb200"}, claimed(func(o *Options) { o.PerRail, o.MinRate = true, 400 }))
	check(t, "claim", "gb200-pod", []string{"gb200"}, claimed(func(o *Options) { o.Pod = true }))
	plain := claimed(func(*Options) {})
	for _, kind := range []string{"fabric", "deployment", "mpijob", "perftest-pods"} {
		check(t, kind, "h20-dra", []string{"h20"}, plain)
	}
}

func TestClaimRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		kind, machine, want string
		change              func(o *Options)
	}{
		"no root in common": {"claim", "gb200", "--gpu-class gpu.nvidia.com: no rail of ib-400g has its PCIe root in " +
			"common with a GPU", func(o *Options) { o.GPUClass = gpuClass }},
		"too many rails": {"claim", "h20", "--rails 5: want 1 to 4: a node has 4 of ib-400g",
			func(o *Options) { o.Rails = 5 }},
		"too slow": {"claim", "h20", "--min-rate 800: the rails of ib-400g have 400 Gb/s",
			func(o *Options) { o.MinRate = 800 }},
		"odd GPUs": {"claim", "h20", "--gpus 3 with --gpu-class: want as many for each of 4 rails",
			func(o *Options) { o.GPUClass, o.GPUs = gpuClass, 3 }},
		"more GPUs than there are": {"claim", "h20", "than are on its PCIe root (rail 0: 2)",
			func(o *Options) { o.GPUClass, o.GPUs, o.Rails = gpuClass, 8, 1 }},
		"functions": {"claim", "v100", "claims are for whole ports", func(o *Options) { o.VFs = true }},
		"no claim": {"pod", "h20", "--per-rail is for ResourceClaims", func(o *Options) {
			o.DRA,
				o.PerRail = false, true
		}},
		"no such": {"claim", "h20", `no fabric "x"`, func(o *Options) { o.Fabric = "x" }},
		"a manifest": {"pod", "h20", "--with-pod is for ResourceClaims",
			func(o *Options) { o.DRA, o.Pod = false, true }},
	} {
		text, err := Generate(c.kind, open(t, c.machine), claimed(c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	n := open(t, "h20")[0]
	d := data{Options: claimed(func(*Options) {}), Workload: []Network{{
		Name: "ib", Fabric: &topology.Fabric{Name: "ib"}, Rails: make([]topology.Rail, MaxDevices+1),
	}}}
	if err := d.claim([]*node.Node{n}); err == nil || !strings.Contains(err.Error(), "33 devices in one claim") {
		t.Error(err)
	}
}

// Rails with different numbers of GPUs are asked for by their number, and GPUs of one root are divided.
func TestUnevenRoots(t *testing.T) {
	n := open(t, "h20")[0]
	for i := range n.GPUs {
		if i == 6 || i == 7 { // those of rail 3 are beside rail 0
			n.GPUs[i].Path = n.GPUs[0].Path
		}
	}
	text, err := Generate("claim", []*node.Node{n}, claimed(func(o *Options) { o.GPUClass = gpuClass }))
	if err != nil || strings.Count(text, ".rail == ") != 4 || strings.Count(text, "count: 4") != 1 ||
		strings.Contains(text, "gpus3") {
		t.Errorf("%v\n%s", err, text)
	}
	for i := range n.HCAs { // one root for all
		n.HCAs[i].Path = []string{"pci0000:00"}
	}
	for i := range n.GPUs {
		n.GPUs[i].Path = []string{"pci0000:00"}
	}
	text, err = Generate("claim", []*node.Node{n}, claimed(func(o *Options) { o.GPUClass, o.Rails = gpuClass, 1 }))
	if err != nil || strings.Count(text, "count: 2") != 1 || strings.Contains(text, ".rail == ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The Fabrics of a cluster say who hands out their devices.
func TestClaimForCluster(t *testing.T) {
	inventory := open(t, "h20")[0]
	var nodes []doctor.FabricNode
	for i := range 3 {
		n := doctor.FabricNode{Node: inventory}
		n.Name = fmt.Sprint("n", i)
		picture := *inventory
		picture.Name, n.Node = n.Name, &picture
		f := v1alpha1.NodeFabric{Name: "ib"}
		for j, hca := range []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7"} {
			d := v1alpha1.FabricDevice{ID: fmt.Sprint(j), HCA: hca, RateGb: 400}
			if j == 1 && i > 0 {
				d.Problem = "PortDown"
			}
			f.Devices = append(f.Devices, d)
		}
		n.Status.Fabrics = []v1alpha1.NodeFabric{f}
		nodes = append(nodes, n)
	}
	fabric := func(a v1alpha1.Allocation) []v1alpha1.Fabric {
		f := published("ib", -1, v1alpha1.WholeDevice)
		f.Spec.Allocation = a
		return []v1alpha1.Fabric{f}
	}
	for _, c := range []struct {
		name, kind string
		is         v1alpha1.Allocation
		change     func(o *Options)
		want       []string
	}{
		{"what most nodes have", "claim", v1alpha1.DRA, func(*Options) {},
			[]string{"any of them: the scheduler chooses", "count: 3"}},
		{"these rails", "claim", v1alpha1.DRA, func(o *Options) { o.PerRail = true },
			[]string{".rail == 0\n", ".rail == 2\n", ".rail == 3\n"}},
		{"with GPUs", "pod", v1alpha1.DRA, func(o *Options) { o.GPUClass = gpuClass },
			[]string{"gpus2", "count: 2", "networks: ib, ib, ib\n", "resourceClaimTemplateName: train"}},
		{"a resource", "pod", v1alpha1.DevicePlugin, func(*Options) {}, []string{"fabric.dev/ib: 3"}},
		{"no claim", "claim", "", func(*Options) {}, []string{"the Fabric ib has allocation DevicePlugin: want DRA"}},
		{"no GPUs", "pod", "", func(o *Options) { o.GPUClass = gpuClass },
			[]string{"--gpu-class is for ResourceClaims: the Fabric ib has allocation DevicePlugin, want DRA"}},
		{"too slow", "claim", v1alpha1.DRA, func(o *Options) { o.MinRate = 800 },
			[]string{"--min-rate 800: no node has a healthy device"}},
	} {
		o := options()
		c.change(&o)
		got, err := ForCluster(c.kind, &Fleet{Fabrics: fabric(c.is), Nodes: nodes}, o)
		if err != nil {
			got = err.Error()
		} else {
			documents(t, got)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in:\n%s", c.name, w, got)
			}
		}
		if strings.Contains(got, "fabric.dev/ib") && strings.Contains(got, "resourceClaims") {
			t.Errorf("%s: both a resource and a claim:\n%s", c.name, got)
		}
	}
	third := fabric(v1alpha1.DRA)
	third[0].Spec.Match.Rail = new(int32(3))
	o := options()
	o.PerRail, o.Rails = true, 1
	text, err := ForCluster("claim", &Fleet{Fabrics: third, Nodes: nodes}, o)
	if err != nil || !strings.Contains(text, ".rail == 3\n") {
		t.Errorf("a Fabric of one rail: %v\n%s", err, text)
	}
	two := append(fabric(v1alpha1.DRA), fabric(v1alpha1.DevicePlugin)...)
	rail := int32(1)
	for i := range two {
		two[i].Spec.Match.Rail = &rail
	}
	two[1].Name = "other"
	nodes[0].Status.Fabrics = append(nodes[0].Status.Fabrics, v1alpha1.NodeFabric{
		Name: "other", Devices: []v1alpha1.FabricDevice{{ID: "x", RateGb: 400}},
	})
	_, err = ForCluster("pod", &Fleet{Fabrics: two, Nodes: nodes}, options())
	if err == nil || !strings.Contains(err.Error(), "differ in spec.allocation (DRA, DevicePlugin)") {
		t.Error(err)
	}
}
