package doctor

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func pod(t *testing.T, m *machines.Machine, env ...string) *Pod {
	t.Helper()
	proc := fstest.MapFS{
		"limits": &fstest.MapFile{
			Data: []byte(
				"Limit                     Soft Limit           Hard Limit           Units\nMax locked memory       " +
					"  unlimited            unlimited            bytes\n",
			),
		},
		"status": &fstest.MapFile{Data: []byte("Name:\tsleep\nCapEff:\t00000000a80425fb\n")},
	}
	for i, name := range []string{"mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5"} {
		u := "uverbs" + string(rune('0'+i))
		m.File("dev/infiniband/"+u, "")
		m.File("sys/class/infiniband_verbs/"+u+"/ibdev", name)
	}
	return CollectPod(m.FS, proc, host(t, m).Node, env)
}

func TestCheckPod(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   []string
		spoil func(p *Pod)
		want  string
	}{
		{"in order", []string{"NCCL_IB_HCA==mlx5_2,mlx5_3,mlx5_4,mlx5_5", "NCCL_IB_GID_INDEX=3",
			"NCCL_SOCKET_IFNAME=bond0", "OMPI_MCA_coll_hcoll_enable=0"}, nil, ""},
		{"no interface", nil, func(p *Pod) { p.Node.Netdevs = nil },
			"FAIL pod-interface 4 verbs devices in /dev/infiniband, no interface of RDMA hardware\n"},
		{"only the cluster's own interface", nil, func(p *Pod) {
			p.Node.Netdevs = []node.Netdev{{Name: "eth0", Type: 1, PCI: "0000:00:03.0",
				Address: device.Address{Bus: "pci", Name: "0000:00:03.0"}}}
			noNetdevs(p)
		},
			"FAIL pod-interface 4 verbs devices in /dev/infiniband, no interface of RDMA hardware\n"},
		{"nothing at all", nil, func(p *Pod) { p.Node, p.Uverbs, p.Verbs = &node.Node{}, nil, nil },
			"FAIL pod-interface neither a verbs device nor an interface of RDMA hardware\nFAIL pod-verbs " +
				"/dev/infiniband has no uverbs device\n"},
		{"a network too few", nil, func(p *Pod) {
			p.Node.Netdevs = slices.DeleteFunc(p.Node.Netdevs, func(d node.Netdev) bool { return d.Name == "xgbe4" })
		}, "WARN pod-rails 3 of 4 HCAs have an interface; without: mlx5_4\n"},
		{"HCA that can't be opened", nil, func(p *Pod) { p.Uverbs = p.Uverbs[1:] }, "WARN pod-usable mlx5_2 is " +
			"visible, /dev/infiniband/uverbs0 is not there\n"},
		{"character device of another", nil, func(p *Pod) { p.Uverbs = append(p.Uverbs, "uverbs9") },
			"WARN pod-foreign of no HCA of the pod: /dev/infiniband/uverbs9\n"},
		{"memlock", nil, func(p *Pod) { p.Memlock = 65536 }, "FAIL pod-memlock locked memory is limited to 64 KiB, " +
			"and the capability IPC_LOCK is missing\n"},
		{"memlock, not for this user", nil, func(p *Pod) { p.Memlock, p.IPCLockBound = 65536, true },
			"FAIL pod-memlock locked memory is limited to 64 KiB; the container has the capability IPC_LOCK, " +
				"but not for this user\n"},
		{"memlock lifted", nil, func(p *Pod) { p.Memlock, p.IPCLock = 65536, true }, ""},
		{"memory and shm", nil, func(p *Pod) { p.Memory, p.Shm = 1<<30, 64<<20 }, "WARN pod-memory the memory limit " +
			"is 1024 MiB\nWARN pod-shm /dev/shm has 64 MiB\n"},
		{"GIDs", []string{"NCCL_IB_GID_INDEX=3"}, func(p *Pod) {
			p.Node.HCA("mlx5_2").Ports[0].GIDs = nil
			p.Node.HCA("mlx5_3").Ports[0].GIDs = p.Node.HCA("mlx5_3").Ports[0].GIDs[:2]
		}, "FAIL pod-gids mlx5_2: the GID table is empty\nWARN pod-gids mlx5_3: only link-local GIDs\n" +
			"FAIL pod-gid-index NCCL_IB_GID_INDEX=3 is no entry of mlx5_2, mlx5_3\n"},
		{"GID index of the wrong kind", []string{"NCCL_IB_GID_INDEX=2"},
			func(p *Pod) { p.Node.HCAs = p.Node.HCAs[1:2] },
			"WARN pod-gid-index NCCL_IB_GID_INDEX=2 is not the RoCE v2 GID of an IP address on mlx5_2: " +
				"::ffff:192.168.10.11 of type IB/RoCE v1\n"},
		{"variables", []string{"NCCL_IB_HCA==mlx5_7", "UCX_NET_DEVICES=mlx5_2:1,mlx5_8:1", "NCCL_SOCKET_IFNAME=ibs108",
			"NCCL_IB_DISABLE=1", "NCCL_IB_GID_INDEX=x"},
			func(p *Pod) { p.HCOLL = true },
			"FAIL pod-gid-index NCCL_IB_GID_INDEX=x is no number\nFAIL pod-env-hca NCCL_IB_HCA==mlx5_7: not in the " +
				"pod: mlx5_7. No port that can work: NCCL goes over TCP without an error\n" +
				"FAIL pod-env-hca UCX_NET_DEVICES=mlx5_2:1,mlx5_8:1: not in the pod: mlx5_8:1\n" +
				"WARN pod-env-hca UCX_NET_DEVICES=mlx5_2:1,mlx5_8:1: 1 of 4 rails; not used: mlx5_3:1, mlx5_4:1, " +
				"mlx5_5:1\n" +
				"FAIL pod-env-socket NCCL_SOCKET_IFNAME=ibs108 fits no interface of the pod\nFAIL pod-env-off " +
				"NCCL_IB_DISABLE=1\nWARN pod-hcoll the image has HCOLL, and OMPI_MCA_coll_hcoll_enable is not set\n"},
		{"one subnet", nil, func(p *Pod) { p.Node.Netdev("xgbe3").Addrs = p.Node.Netdev("xgbe2").Addrs },
			"WARN pod-subnets node roce has xgbe2, xgbe3 in one subnet"},
		{"one subnet, source-based", nil, func(p *Pod) {
			p.Node.Netdev("xgbe3").Addrs = p.Node.Netdev("xgbe2").Addrs
			p.ARPIgnore = map[string]int{"xgbe2": 1, "xgbe3": 1, "xgbe4": 1, "xgbe5": 1}
		}, ""},
		{"MTU", nil, func(p *Pod) { p.Node.Netdev("xgbe3").MTU = 1500 }, "WARN pod-mtu roce-200g: MTU 1500: xgbe3; " +
			"9000: xgbe2 xgbe4 xgbe5\n"},
		{"port down", nil, func(p *Pod) { p.Node.HCA("mlx5_2").Ports[0].State = "Down" }, "WARN pod-port-state " +
			"mlx5_2:1 is Down (LinkUp)\n"},
	} {
		p := pod(t, machines.RoCE(), c.env...)
		if c.spoil != nil {
			c.spoil(p)
		}
		if got := text(
			CheckPod(p),
		); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" ||
			strings.Contains(got, "incomplete") {
			t.Errorf("%s (-want +got):\n%s", c.name, cmp.Diff(c.want, got))
		}
	}
}

func noNetdevs(p *Pod) {
	for i := range p.Node.HCAs {
		for j := range p.Node.HCAs[i].Ports {
			p.Node.HCAs[i].Ports[j].Netdev = ""
		}
	}
}

func TestCollectPod(t *testing.T) {
	root := fstest.MapFS{
		"opt/hpcx/hcoll/lib/libhcoll.so.1": &fstest.MapFile{},
		"sys/fs/cgroup/memory.max":         &fstest.MapFile{Data: []byte("1073741824\n")},
	}
	proc := fstest.MapFS{
		"limits": &fstest.MapFile{
			Data: []byte("Max locked memory         65536                65536                bytes\n"),
		},
		"status": &fstest.MapFile{Data: []byte("CapEff:\t0000000000004000\nCapBnd:\t00000000a80465fb\n")},
	}
	p := CollectPod(root, proc, &node.Node{}, []string{"A=b=c", "odd"})
	if p.Memlock != 65536 || !p.IPCLock || !p.IPCLockBound || p.Memory != 1<<30 || !p.HCOLL || p.Env["A"] != "b=c" {
		t.Errorf("%+v", p)
	}
}

// In shared mode a pod sees every HCA of the node; those it can't open are no use to it.
func TestOpenable(t *testing.T) {
	p := pod(t, machines.RoCE())
	p.Uverbs = []string{"uverbs1", "uverbs2"}
	g := p.PodView()
	var without []string
	for _, o := range g.Others {
		without = append(without, o.HCA)
	}
	if strings.Join(without, " ") != "mlx5_2 mlx5_5" || g.Node.HCA("mlx5_3") == nil || g.Node.HCA("mlx5_2") != nil ||
		p.Node.HCA("mlx5_2") == nil || g.Node.HCA("mlx5_bond_0") == nil {
		t.Errorf("without %v", without)
	}
	p.Bare = true
	if g := p.PodView(); len(g.Others) > 0 {
		t.Errorf("bare: %+v", g.Others)
	}
}

// In shared mode what concerns ports of others is not said of this pod, but that its variables name them is.
func TestShared(t *testing.T) {
	m := machines.RoCE()
	p := pod(t, m, "NCCL_IB_HCA==mlx5_2,mlx5_3", "UCX_NET_DEVICES=mlx5_2:1")
	p.Node.RDMAMode = "shared"
	noNetdevs(p)
	p.Node.HCA("mlx5_2").Ports[0].Netdev = "xgbe2"
	p.Node.HCA("mlx5_3").Ports[0].State = "Down"
	const want = "WARN pod-env-hca NCCL_IB_HCA==mlx5_2,mlx5_3: the interface is in another network namespace: " +
		"mlx5_3:1\n"
	if d := cmp.Diff(want, text(CheckPod(p))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

const manifest = `{"kind":"Pod","metadata":{"name":"train-0","annotations":{%s}},"spec":{"containers":[{"name":"c",` +
	`"resources":{"limits":{%s}},"securityContext":{"capabilities":{"add":["IPC_LOCK"]}}}]}}`

const nads = `{"items":[{"metadata":{"name":"ib-pf","namespace":"default","annotations":{"k8s.v1.cni.cncf.io/` +
	`resourceName":"nvidia.com/ib_pf"}}},{"metadata":{"name":"other","namespace":"kube-system"}}]}`

// Only a pod that runs without its networks is the fault of Multus's place.
func TestMultus(t *testing.T) {
	for _, c := range []struct{ phase, node, status, want string }{
		{"", "", "", ""},
		{"Pending", "", "", ""},
		{"Pending", "gpu-1", "", "WARN"},
		{"Pending", "gpu-1", "[]", "OK"},
		{"Running", "gpu-1", "", "FAIL"},
		{"Failed", "gpu-1", "", "FAIL"},
		{"Running", "gpu-1", "[]", "OK"},
	} {
		m := Manifest{Kind: "Pod"}
		m.Metadata.Annotations = map[string]string{networksAnnotation: "ib", statusAnnotation: c.status}
		m.Spec.Node, m.Status.Phase = c.node, c.phase
		list, err := CheckManifest(&m, nil)
		if got := found(list, "pod-multus"); got != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// The annotation that a pod lacks names networks that there are, one for each device.
func TestMissingAnnotation(t *testing.T) {
	known := decode[NADs](t, nads)
	for _, c := range []struct {
		resource, n string
		nads        *NADs
		want        string
	}{
		{"nvidia.com/ib_pf", "2", &known, `"ib-pf, ib-pf"`},
		{"nvidia.com/ib_pf", "1", nil, "nvidia.com/ib_pf"},
		{"nvidia.com/ib_pf", "20", &known, "nvidia.com/ib_pf"},
		{"fabric.dev/ib-100g", "3", nil, `"ib-100g, ib-100g, ib-100g"`},
	} {
		m := decode[Manifest](t, strings.Replace(strings.Replace(manifest, "%s", "", 1), "%s",
			`"`+c.resource+`":`+c.n, 1))
		list, err := CheckManifest(&m, c.nads)
		if err != nil || list[0].ID != "pod-annotation" || list[0].Status != Fail ||
			!strings.Contains(list[0].Cure, c.want) {
			t.Errorf("%s: %+v, %v", c.resource, list[0], err)
		}
	}
}

func TestCheckManifest(t *testing.T) {
	const four = `"k8s.v1.cni.cncf.io/networks":"ib-pf, ib-pf, default/ib-pf@ib0, ib-pf"`
	const ran = `,"k8s.v1.cni.cncf.io/network-status":"[]"`
	for _, c := range []struct{ name, annotations, limits, want string }{
		{"in order", four + ran, `"nvidia.com/ib_pf":"4"`, ""},
		{"annotation missing", ``, `"nvidia.com/ib_pf":"1"`, "FAIL pod-annotation no annotation " +
			"k8s.v1.cni.cncf.io/networks\n"},
		{"no such network", `"k8s.v1.cni.cncf.io/networks":"[{\"name\":\"other\"}]"` + ran, ``, "FAIL pod-nad " +
			"default/other does not exist; there is kube-system/other\n"},
		{"Multus did not run", four, `"nvidia.com/ib_pf":"4"`, "FAIL pod-multus no annotation " +
			"k8s.v1.cni.cncf.io/network-status\n"},
		{"one for four rails", four + ran, `"nvidia.com/ib_pf":1,"nvidia.com/gpu":8`, "FAIL pod-count 4 networks " +
			"take a device of nvidia.com/ib_pf, the pod asks for 1\n"},
		{"more than networks", four + ran, `"nvidia.com/ib_pf":8`, "WARN pod-count 4 networks take a device of " +
			"nvidia.com/ib_pf, the pod asks for 8\n"},
	} {
		var m Manifest
		var n NADs
		body := strings.Replace(strings.Replace(manifest, "%s", c.annotations, 1), "%s", c.limits, 1)
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(c.name, err)
		}
		m.Status.Phase = "Running"
		if err := json.Unmarshal([]byte(nads), &n); err != nil {
			t.Fatal(err)
		}
		got, err := CheckManifest(&m, &n)
		if d := cmp.Diff(c.want, text(got)); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, d)
		}
		if _, err := CheckManifest(&m, nil); err != nil {
			t.Errorf("%s, without networks: %v", c.name, err)
		}
	}
	if _, err := CheckManifest(&Manifest{Kind: "List"}, nil); err == nil {
		t.Error("a list is taken for a pod")
	}
}
