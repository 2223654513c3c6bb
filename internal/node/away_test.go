package node_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// In exclusive mode a device that is in a pod is gone from sysfs; the journal knows it, the bus still has its function.
func TestDeviceInPod(t *testing.T) {
	m := machines.H20()
	for name := range m.FS {
		if strings.Contains(name, "/infiniband/mlx5_0") || strings.Contains(name, "/net/ibs108") {
			delete(m.FS, name)
		}
	}
	a := device.Address{Bus: "pci", Name: "0000:18:00.0"}
	m.Live.Attachments = []node.Attachment{
		{
			Container: "c0ffee",
			IfName:    "net1",
			Pod:       "ml/train-0",
			Kind:      string(journal.KindDevice),
			Address:   a,
			PCI:       a.Name,
			Netns:     "/run/netns/x",
			Netdev:    "ibs108",
			HCA: &device.HCA{Name: "mlx5_0", Address: a, Ports: []device.Port{{Number: 1, State: device.PortActive,
				Phys: device.PhysLinkUp, LinkLayer: device.InfiniBand}}},
		},
	}
	m.Done()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	h := n.HCA("mlx5_0")
	if h == nil {
		t.Fatal("mlx5_0 is not in the picture")
	}
	if h.InPod != "ml/train-0" || h.Model != "ConnectX-7" || len(h.GPUs) != 2 || h.Ports[0].Netdev != "ibs108" {
		t.Errorf("mlx5_0: %+v", h)
	}
	if f := n.Fabrics(); len(f.Fabrics) != 1 || len(f.Fabrics[0].Rails) != 3 {
		t.Errorf("fabrics: %+v", f)
	}
	// With what the pod's own sysfs says it has its place among the rails.
	whole, err := node.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	m.Live.Attachments[0].Ports = whole.HCA("mlx5_0").Ports
	m.Done()
	if n, err = node.Open(m.FS, journal.Store{}); err != nil {
		t.Fatal(err)
	}
	f := n.Fabrics()
	if len(f.Fabrics) != 1 || len(f.Fabrics[0].Rails) != 4 || f.Fabrics[0].Rails[0].Ports[0].InPod != "ml/train-0" ||
		n.HCA("mlx5_0").Ports[0].Netdev != "ibs108" {
		t.Errorf("fabrics: %+v", f)
	}
}

// VFs and SFs know their parent, and are in the rail of their PF.
func TestFunctions(t *testing.T) {
	m := machines.RoCE()
	pf := "sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:00.0/0000:23:00.0"
	copyTo := func(from, to, name string) {
		for path, f := range m.FS {
			if rest, ok := strings.CutPrefix(path, from+"/"); ok && !strings.Contains(rest, "net/") {
				m.FS[to+"/"+strings.Replace(rest, "infiniband/mlx5_2", "infiniband/"+name, 1)] = &fstest.MapFile{
					Data: f.Data,
					Mode: f.Mode,
				}
			}
		}
		m.Link(to+"/infiniband/"+name+"/device", to)
		m.Link("sys/class/infiniband/"+name, to+"/infiniband/"+name)
	}
	vf, sf := strings.TrimSuffix(pf, "0")+"2", pf+"/mlx5_core.sf.4"
	copyTo(pf, vf, "mlx5_8")
	m.Link(vf+"/physfn", pf)
	m.File(vf+"/device", "0x101e")
	m.FS[sf+"/infiniband/mlx5_9/ports/1/rate"] = m.FS[pf+"/infiniband/mlx5_2/ports/1/rate"]
	m.File(sf+"/infiniband/mlx5_9/ports/1/state", "4: ACTIVE")
	m.File(sf+"/infiniband/mlx5_9/ports/1/link_layer", "Ethernet")
	m.Link(sf+"/infiniband/mlx5_9/device", sf)
	m.Link("sys/class/infiniband/mlx5_9", sf+"/infiniband/mlx5_9")
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	if h := n.HCA("mlx5_8"); h == nil || h.Kind != "VF" || h.Parent != "0000:23:00.0" || h.Model != "ConnectX VF" {
		t.Errorf("VF: %+v", h)
	}
	if h := n.HCA(
		"mlx5_9",
	); h == nil || h.Kind != "SF" || h.PCI != "0000:23:00.0" || h.Address.Name != "mlx5_core.sf.4" ||
		h.Driver != "mlx5_core" {
		t.Errorf("SF: %+v", h)
	}
	f := n.Fabrics().Fabrics[0]
	var names []string
	for _, p := range f.Rails[0].Ports {
		names = append(names, p.HCA)
	}
	if strings.Join(names, " ") != "mlx5_2 mlx5_9 mlx5_8" {
		t.Errorf("rail 0: %v", names)
	}
}
