package doctor

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Host is the picture that the host's checks look at.
type Host struct {
	Node      *node.Node
	Modules   map[string]bool // those of interest that are loaded or built in
	ModeConf  string          // ib_core's netns_mode in modprobe.d; empty: not there
	ModeFile  string          // where that is
	BuiltIn   bool            // ib_core is no module: modprobe.d is not about it
	Initramfs string          // of the running kernel; empty: not found
	Cmdline   string
	CNI       []string // names in /etc/cni/net.d, in order
	Plugins   []string // names in /opt/cni/bin
	PluginSum string   // checksum of /opt/cni/bin/fabric in words; empty: not known, as in a recording
	Memlock   string   // LimitMEMLOCK of containerd.service; empty: not set
	HasUnit   bool     // containerd.service was found
	Journal   bool     // the journal was asked which attachments there are
	Stranded  []string // attachments whose pod is gone, in words
	Foreign   []string // what is foreign or damaged in the plugin's state directory, in words
	PolicyErr error
	// StrandedErr is why the journal, or a pod of it, could not be looked at.
	StrandedErr error

	Look   *counters.Look // at the ports' counters; nil: not taken
	Before *counters.Look // an earlier one; nil: there is one only

	QoS    map[string]QoS  // of RoCE ports, by HCA:port
	Links  map[string]Link // by interface
	Driver string          // what the GPU driver of NVIDIA says of itself in proc; empty: not known
	Taint  string          // what the module nvidia taints the kernel with: P is a proprietary one

	InitramfsOld bool // ModeFile was written after Initramfs
	// ACS has the control registers of bridges between GPUs and HCAs, by address; those that could be read
	ACS map[string]uint16
	// RDMATaint is what mlx5_core taints the kernel with, and RDMAVersion what it calls its version; nil: not known
	RDMATaint     *string
	RDMAVersion   string
	UsersKnown    bool   // Node.Users was asked for in the mode that the node has
	PluginVersion string // of /opt/cni/bin/fabric; empty: not known, as in a recording
	Version       string // of the program that asks; empty: do not compare
}

var modules = []string{
	"ib_core",
	"ib_uverbs",
	"rdma_cm",
	"ib_ipoib",
	"nvidia",
	"nvidia_peermem",
	"nv_peer_mem",
	"mlx5_ib",
}

// CollectHost reads what is not in the node's picture. Everything is read through root, so that a recording works.
func CollectHost(root fs.FS, n *node.Node) *Host {
	h := &Host{Node: n, Modules: map[string]bool{}}
	for _, m := range modules {
		if _, err := fs.Stat(root, "sys/module/"+m); err == nil {
			h.Modules[m] = true
		}
	}
	h.modprobe(root)
	h.Cmdline = read(root, "proc/cmdline")
	h.CNI, h.Plugins = list(root, "etc/cni/net.d"), list(root, "opt/cni/bin")
	h.unit(root)
	h.initramfs(root)
	h.collectLinks(root)
	h.collectQoS(root)
	h.Look = counters.Read(root, n)
	h.collectDriver(root)
	h.collectRDMADriver(root)
	h.collectACS(root)
	return h
}

// collectRDMADriver reads what tells the kernel's own mlx5_core from another one. What is built into the kernel has no
// file taint, and is the kernel's own; a recording may be without the file.
func (h *Host) collectRDMADriver(root fs.FS) {
	const dir = "sys/module/mlx5_core"
	in := list(root, dir)
	if slices.Contains(in, "taint") || len(in) > 0 && !slices.Contains(in, "initstate") {
		taint := read(root, dir+"/taint")
		h.RDMATaint, h.RDMAVersion = &taint, read(root, dir+"/version")
	}
}

// unit reads LimitMEMLOCK from containerd's unit and its drop-ins; those in /etc win.
func (h *Host) unit(root fs.FS) {
	var files []string
	for _, dir := range []string{"lib/systemd/system", "usr/lib/systemd/system", "etc/systemd/system"} {
		files = append(files, path.Join(dir, "containerd.service"))
	}
	for _, dir := range []string{"usr/lib/systemd/system/containerd.service.d", "etc/systemd/system/" +
		"containerd.service.d"} {
		for _, name := range list(root, dir) {
			files = append(files, path.Join(dir, name))
		}
	}
	for _, f := range files {
		text := read(root, f)
		h.HasUnit = h.HasUnit || text != "" && strings.HasSuffix(f, "containerd.service")
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "LimitMEMLOCK="); ok {
				h.Memlock = v
			}
		}
	}
}

func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return "" // missing and unreadable are alike here: the check that needs it says what it did not find
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

func list(root fs.FS, dir string) (names []string) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}
