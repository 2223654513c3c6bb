//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
)

const railPodUID = "7d2c0000-rails"

// kubeletGives writes what kubelet has given to the pod of these tests.
func kubeletGives(t *testing.T, ids ...string) {
	t.Helper()
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(kubelet.DefaultDir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(kubelet.DefaultDir, kubelet.Checkpoint)
	text := fmt.Sprintf(`{"Data":{"PodDeviceEntries":[{"PodUID":%q,"ContainerName":"c",`+
		`"ResourceName":"example.com/rail","DeviceIDs":{"-1":%s},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}`, railPodUID, list)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll("/var/lib/kubelet") })
}

// byMultus is a call with the device that Multus names.
func (a *attachment) byMultus(command, id string) Call {
	c := a.call(command)
	conf, _ := c.Config.(config) // a copy
	runtime, _ := conf["runtimeConfig"].(config)
	if runtime = maps.Clone(runtime); runtime == nil {
		runtime = config{}
	}
	runtime["deviceID"] = id
	conf["runtimeConfig"], conf["deviceID"], conf["pciBusID"] = runtime, id, id
	c.Args = "IgnoreUnknown=1;K8S_POD_UID=" + railPodUID
	return c
}

// deviceOf is the device that the journal has for the attachment.
func (a *attachment) deviceOf(t *testing.T) string {
	t.Helper()
	e, err := journal.Store{Dir: journal.DefaultDir}.Load(journal.Key{ContainerID: a.id, IfName: a.ifname})
	if err != nil {
		t.Fatal(err)
	}
	return e.DeviceKey
}

// Whole HCAs: interfaces get them in rail order. A DEL that has lost the journal takes home what the pod has of
// kubelet, though Multus names another device.
func TestPluginRailOrder(t *testing.T) {
	Fabric{Num: 3}.Load(t)
	Unchanged(t)
	ids := []string{"platform/fakeib.2", "platform/fakeib.0", "platform/fakeib.1"}
	kubeletGives(t, ids...)
	pod := NewPod(t, "pod")
	var list []*attachment
	for i, id := range ids {
		a := interfaceOf(pod, fmt.Sprint("net", i+1), network(config{"ipam": static(fmt.Sprintf("10.%d.0.5/24", i))}))
		out := a.byMultus("ADD", id).Must(t)
		a.prev = json.RawMessage(out.Stdout)
		if want := fmt.Sprintf("platform/fakeib.%d", i); a.deviceOf(t) != want {
			t.Errorf("%s has %s, want %s", a.ifname, a.deviceOf(t), want)
		}
		a.byMultus("CHECK", id).Must(t)
		list = append(list, a)
	}
	for _, i := range []int{1, 0} {
		list[i].byMultus("DEL", ids[i]).Must(t)
	}
	for _, dir := range []string{"attachments", "claims"} {
		if err := os.RemoveAll(filepath.Join(journal.DefaultDir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	list[2].byMultus("DEL", ids[2]).Must(t)
	comesBack(t, "fakeib.2")
}

// Virtual functions, of which a device plugin has told: the pod learns of the one that it has.
func TestVFRailOrder(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	Unchanged(t)
	ids := []string{vfs[0].PCI, vfs[1].PCI}
	slices.Sort(ids)
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	info := func(id, more string) []byte {
		return []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + id + `"` + more + `}}`)
	}
	for i, id := range ids {
		file := filepath.Join(devinfo.PluginDir, devinfo.PluginFile("example.com/rail", id))
		if err := devinfo.Write(file, info(id, fmt.Sprintf(`,"vhost-net":"/dev/vhost-%d"`, i))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(file) })
	}
	kubeletGives(t, ids...)
	file := dir + "/rails-net1.json"
	if err := devinfo.Write(file, info(ids[1], `,"vhost-net":"/dev/vhost-1"`)); err != nil { // as Multus copies it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"runtimeConfig": config{"CNIDeviceInfoFile": file}}))
	a.byMultus("ADD", ids[1]).Must(t)
	if a.deviceOf(t) != "pci/"+ids[0] {
		t.Errorf("net1 has %s, want %s", a.deviceOf(t), ids[0])
	}
	var got struct {
		PCI struct {
			Address string `json:"pci-address"`
			Net     string `json:"vhost-net"`
			PF      string `json:"pf-pci-address"`
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, file)), &got); err != nil || got.PCI.Address != ids[0] ||
		got.PCI.Net != "/dev/vhost-0" || got.PCI.PF == "" {
		t.Errorf("device information %s, %v", readFile(t, file), err)
	}
	a.byMultus("DEL", ids[1]).Must(t)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// A chain [ib-sriov, rdma] or [host-device, rdma] with both types changed: the second plugin finds that the first one
// has done it all. DEL comes in reverse order.
func TestPeerChainOfFabric(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	for name, fields := range map[string]config{
		"device from the prevResult": {},
		"RDMA device by name":        {"mode": "rdma", "rdmaDevice": "mlx5_1"},
		"device id from Multus":      {"deviceID": "platform/fakeib.1", "pciBusID": "platform/fakeib.1"},
	} {
		t.Run(name, func(t *testing.T) {
			Unchanged(t)
			pod := NewPod(t, "pod")
			first := interfaceOf(pod, "net1", network(config{"device": "ib1", "ipam": static("10.0.0.5/24")}))
			first.add(t)
			second := interfaceOf(pod, "net1", network(fields))
			second.conf["prevResult"] = first.prev
			out := second.add(t)
			if out.Stdout != string(first.prev) {
				t.Errorf("result %s, want %s", out.Stdout, first.prev)
			}
			pod.hasHCA(t, "mlx5_1")
			first.call("CHECK").Must(t)
			second.call("CHECK").Must(t)
			second.del(t)
			pod.has(t, "net1", "10.0.0.5/24") // the first one's DEL is to come
			pod.hasHCA(t, "mlx5_1")
			first.del(t)
		})
	}
	t.Run("refused", func(t *testing.T) {
		Unchanged(t)
		pod := NewPod(t, "pod")
		for _, c := range []struct {
			first, second config
			code          uint
			word          string
		}{
			{config{"device": "ib1", "rdma": "none"}, config{}, 101, "rdmaIsolation"},
			{config{"device": "ib1"}, config{"rdmaDevice": "mlx5_0", "mode": "rdma"}, 101, "each attachment has one"},
			{config{"device": "ib1"}, config{"rdmaName": "rail"}, 7, `write "rdmaName" there`},
		} {
			first := interfaceOf(pod, "net1", network(c.first))
			first.add(t)
			second := interfaceOf(pod, "net1", network(c.second))
			second.conf["prevResult"] = first.prev
			wantError(t, second.call("ADD").Exec(t), c.code, c.word, `drop {"type": "fabric", "mode": "rdma"}`)
			second.del(t) // as a runtime does
			first.del(t)
		}
	})
}
