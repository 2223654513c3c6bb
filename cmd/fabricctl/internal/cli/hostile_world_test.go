package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// hostileWorld is a node, its journal and a cluster in which everything has a text in it.
type hostileWorld struct {
	text     string
	dir      string
	machine  string // names and texts of the node have it; states and numbers are real
	changed  string // everything has it
	pod      string // as machine, with a process whose variables have it
	picture  string // of machine, as discover -o json prints it
	stateDir string
	netns    string
	plugin   string // that fails
	conf     string // for a device with the text, as far as the kernel allows
	refused  string // every field has the text
	manifest string
	nads     string
	claims   string
	job      string // a file with one
	fabric   string // a file with one
	operator string // a file with objects of another operator
	log      string
	cabling  []string // of a fabric
}

func newHostileWorld(t *testing.T, text string) *hostileWorld {
	t.Helper()
	w := &hostileWorld{text: text, dir: t.TempDir()}
	w.machine, w.changed = w.plant(t, "machine", true), w.plant(t, "changed", false)
	w.pod = w.container(t)
	n, err := node.Open(os.DirFS(w.machine), journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	w.picture = w.file(t, "picture.json", w.json(t, map[string]any{"node": n}))
	ns := sandbox.New(t)
	w.netns = ns.Path
	w.attachments(t)
	w.plugin = w.file(t, "plugin", "#!/bin/sh\ncat "+w.file(t, "message", text)+" >&2\nexit 1\n")
	netdev := kernelName(text)
	sandbox.Run(t, "ip", "link", "add", "name", netdev, "type", "veth", "peer", "name", "peer", "netns", ns.Name)
	t.Cleanup(func() { sandbox.Run(t, "ip", "link", "delete", "dev", netdev) })
	w.conf = w.file(t, "conf", strings.ToValidUTF8(w.json(t, map[string]any{
		"cniVersion": "1.0.0", "name": "n" + text, "type": "fabric", "device": netdev,
		"ipam": map[string]any{"type": "static", "addresses": []any{map[string]any{"address": "10.9.8.7/24"}}},
	}), "?"))
	w.refused = w.file(t, "refused", strings.ToValidUTF8(w.json(t, map[string]any{
		"cniVersion": "1.0.0", "name": "n", "type": "fabric", "device": "netdev-" + text,
	}), "?"))
	w.cluster(t, n)
	w.log = "Couldn't allocate MR " + text + "\nlocal protection " + text + " Failed to modify QP " + text +
		"\nIB device bond" + text + " not found\n"
	w.cabling = w.cables(t)
	if text == "" {
		w.log = "Couldn't allocate MR"
	}
	return w
}

// kernelName is as much of a text as an interface's name can have.
func kernelName(text string) string {
	name := "d" + strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n\v\f/:\u00a0", r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	for len(name) > 15 {
		name = strings.ToValidUTF8(name[:len(name)-1], "")
	}
	return name
}

// pathName is as much of a text as a name in a tree of files can have.
func pathName(text string) string {
	return strings.NewReplacer("/", "", "\x00", "").Replace(strings.ToValidUTF8(text, "?"))
}

func (w *hostileWorld) file(t *testing.T, name, content string) string {
	t.Helper()
	name = filepath.Join(w.dir, name)
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// json encodes a value; bytes that are no UTF-8 stay in it, as they do in files that other programs write.
func (w *hostileWorld) json(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ToValidUTF8(w.text, "") == w.text {
		return string(b)
	}
	return strings.ReplaceAll(string(b), `\ufffd\ufffd`, "\xff\xfe")
}

// container plants what a process of a container sees that has the text in its variables.
func (w *hostileWorld) container(t *testing.T) string {
	t.Helper()
	dir := w.plant(t, "container", true)
	for file, content := range map[string]string{
		"proc/self/environ": strings.Join([]string{
			"NCCL_IB_HCA==" + w.text + ",mlx5_0", "UCX_NET_DEVICES=[" + w.text, "NVSHMEM_HCA_LIST=^" + w.text + ",x",
			"NCCL_SOCKET_IFNAME=" + w.text, "GLOO_SOCKET_IFNAME=" + w.text, "PCIDEVICE_" + w.text + "=" + w.text,
			"NCCL_IB_GID_INDEX=3" + w.text,
		}, "\x00"),
		"dev/infiniband/uverbs0": "", "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0" + w.text,
	} {
		name := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numbers are the files of a tree that decide what it is.
var numbers = map[string]bool{"class": true, "vendor": true, "device": true, "numa_node": true, "link_layer": true,
	"state": true, "lid": true, "sm_lid": true, "type": true, "mtu": true, "dev_port": true, "rate": true,
	"sriov_numvfs": true, "sriov_totalvfs": true, "node_guid": true, "0": true, "1": true, "operstate": true}

// plant plants a recorded machine with RDMA devices and interfaces that have the text in their names.
func (w *hostileWorld) plant(t *testing.T, name string, sound bool) string {
	t.Helper()
	m := machines.Named("v100")
	rename := map[string]string{}
	for file := range m.FS {
		if dir := path.Dir(file); dir == "sys/class/infiniband" || dir == "sys/class/net" {
			rename[path.Base(file)] = path.Base(file) + pathName(w.text)
		}
	}
	renamed := func(file string) string {
		parts := strings.Split(file, "/")
		for i := range parts {
			if to, ok := rename[parts[i]]; ok {
				parts[i] = to
			}
		}
		return strings.Join(parts, "/")
	}
	tree := fstest.MapFS{}
	for file, f := range m.FS {
		c := *f
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			c.Data = []byte(renamed(string(f.Data)))
		case !sound || !numbers[path.Base(file)]:
			c.Data = []byte(strings.TrimSuffix(string(f.Data), "\n") + w.text + "\n")
		}
		tree[renamed(file)] = &c
	}
	for _, file := range []string{"proc/cmdline", "etc/cni/net.d/00-multus.conf" + pathName(w.text),
		"opt/cni/bin/x" + pathName(w.text), "etc/modprobe.d/x.conf", "etc/systemd/system/containerd.service"} {
		tree[file] = &fstest.MapFile{Data: []byte("x" + w.text + "\noptions ib_core netns_mode=" + w.text +
			"\n[Service]\nLimitMEMLOCK=" + w.text + "\n")}
	}
	live := w.live(m, rename)
	if w.text == "" {
		live.Attachments = nil
	}
	tree[node.LiveFile] = &fstest.MapFile{Data: []byte(w.json(t, live))}
	m.FS = tree
	dir := filepath.Join(w.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.Plant(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// live is what sysfs does not tell, with an attachment.
func (w *hostileWorld) live(m *machines.Machine, rename map[string]string) node.Live {
	l := m.Live
	l.Host, l.Kernel, l.RDMAMode = l.Host+w.text, l.Kernel+w.text, l.RDMAMode+w.text
	l.Netdevs = map[string]node.LiveNetdev{}
	for name, d := range m.Live.Netdevs {
		if w.text != "" {
			d.AltNames = []string{"alt" + w.text}
		}
		l.Netdevs[rename[name]] = d
	}
	guid := device.GUID(0xa088c20300fa0099)
	l.Attachments = []node.Attachment{{
		Container: "c" + w.text, IfName: "net1" + w.text, Pod: "ml/p" + w.text, Network: "n" + w.text,
		Kind: "device", Netns: "/run/netns/" + w.text, DeviceKey: "pci/" + w.text, PCI: "0000:99:00.0" + w.text,
		MoveRDMA: true, HCA: &device.HCA{Name: "mlx5_9" + w.text, NodeGUID: guid}, Netdev: "ib9" + w.text,
		Ports: []node.Port{{Number: 1, LinkLayer: device.InfiniBand, State: "Active" + w.text, Phys: w.text,
			Rate: w.text, PKeys: []string{w.text}, Netdev: "ib9" + w.text}},
	}}
	if w.text != "" {
		l.Problems = []string{w.text}
	}
	return l
}

// attachments writes the journal: one attachment whose pod lives, one of a pod that is gone, one that is no entry.
func (w *hostileWorld) attachments(t *testing.T) {
	t.Helper()
	w.stateDir = filepath.Join(w.dir, "state")
	id, err := netns.IDOf(w.netns)
	if err != nil {
		t.Fatal(err)
	}
	store := journal.Store{Dir: w.stateDir}
	if err := os.MkdirAll(filepath.Join(w.stateDir, "attachments"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, ns := range []netns.ID{id, {Dev: 1, Ino: 1}} {
		e := &journal.Entry{
			Key:     journal.Key{ContainerID: fmt.Sprint("c", i) + pathName(w.text), IfName: "net1" + pathName(w.text)},
			Network: "n" + w.text, Kind: journal.KindDevice, Created: time.Now(), BootID: journal.BootID("/proc"),
			Attached: true, NetnsPath: w.netns, Netns: ns, DeviceKey: "netdev/" + w.text, PCI: w.text, MoveRDMA: true,
			HCA:      &device.HCA{Name: "mlx5_0" + w.text},
			Netdev:   &device.Netdev{Name: "ib0" + w.text, Alias: w.text, AltNames: []string{w.text}, Kind: "dummy"},
			RDMAName: "mlx5_0" + w.text, IPAM: "static" + w.text, Path: "/nowhere/" + w.text,
			Args: "K8S_POD_NAMESPACE=ml" + w.text + ";K8S_POD_NAME=p" + w.text,
		}
		if err := store.Save(e); err != nil {
			t.Fatal(err)
		}
	}
	if w.text != "" {
		w.file(t, "state/attachments/no-entry"+pathName(w.text), w.text)
	}
}

func (w *hostileWorld) journal() []string { return []string{"--state-dir", w.stateDir} }
