package doctor

import (
	"bytes"
	"encoding/binary"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// config is a bridge's configuration space as root reads it: another extended capability first, then ACS with this
// control register.
func config(control uint16) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[0x100:], 0x1b8<<20|1<<16|0x0001) // advanced error reporting
	binary.LittleEndian.PutUint32(b[0x1b8:], 1<<16|acsID)
	binary.LittleEndian.PutUint16(b[0x1b8+4:], 0x5f)
	binary.LittleEndian.PutUint16(b[0x1b8+acsControl:], control)
	return b
}

func TestACSRegister(t *testing.T) {
	circle := make([]byte, 4096)
	binary.LittleEndian.PutUint32(circle[0x100:], 0x100<<20|1<<16|1)
	for name, c := range map[string]struct {
		config  []byte
		control uint16
		ok      bool
	}{
		"on":               {config(0x1d), 0x1d, true},
		"off":              {config(0), 0, true},
		"not root":         {config(0x1d)[:64], 0, false},
		"without":          {make([]byte, 4096), 0, false},
		"a circle":         {circle, 0, false},
		"gone":             {bytes.Repeat([]byte{0xff}, 4096), 0, false},
		"cut off in there": {config(0x1d)[:0x1bc], 0, false},
	} {
		if control, ok := acs(c.config); control != c.control || ok != c.ok {
			t.Errorf("%s: %#x, %v", name, control, ok)
		}
	}
}

// recorded is the machine as doctor sees it, directly and by way of a recording.
func recorded(t *testing.T, m *machines.Machine) []*Host {
	t.Helper()
	r, n, err := node.Record(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	first := CollectHost(r, n)
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	tree, err := node.Unpack(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = node.Open(tree, journal.Store{}); err != nil {
		t.Fatal(err)
	}
	return []*Host{first, CollectHost(tree, n)}
}

func TestHostACS(t *testing.T) {
	m := machines.H20()
	plant := func(bridge string, control uint16) {
		for name := range m.FS {
			if dir, _, ok := strings.Cut(name, "/"+bridge+"/"); ok && strings.HasPrefix(name, "sys/devices/") {
				m.FS[dir+"/"+bridge+"/config"] = &fstest.MapFile{Data: config(control)}
				m.Link("sys/bus/pci/devices/"+bridge, dir+"/"+bridge)
				return
			}
		}
		t.Fatal("no bridge " + bridge)
	}
	plant("0000:15:01.0", 0x1d) // above the switch: not on the way
	plant("0000:17:00.0", 0)
	plant("0000:17:01.0", 0x01) // source validation redirects nothing
	plant("0000:17:02.0", 0x1d)
	const want = "WARN host-acs 0000:17:02.0, between mlx5_0 and GPU 1: ACSCtl ReqRedir+ CmpltRedir+ UpstreamFwd+\n"
	for _, h := range recorded(t, m) {
		if d := cmp.Diff(want, text(hostACS(h, h.Node.Fabrics()))); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	plant("0000:17:02.0", 0)
	for _, h := range recorded(t, m) {
		list := hostACS(h, h.Node.Fabrics())
		if len(list) != 1 || list[0].Status != OK || !strings.HasPrefix(list[0].Evidence, "3 bridges") {
			t.Errorf("%+v", list)
		}
	}
	if list := hostACS(host(t, machines.V100()), host(t, machines.V100()).Node.Fabrics()); len(list) != 0 {
		t.Errorf("no switch between GPUs and HCAs, and %+v", list)
	}
}

func TestHostBoot(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		image string
		after time.Duration
		want  string // of what is not in order
	}{
		"before": {"boot/initrd.img-6.8.0", -time.Hour, "WARN host-initramfs /boot/initrd.img-6.8.0 is " +
			"older than /etc/modprobe.d/ib_core.conf\n"},
		"after": {"boot/initrd.img-6.8.0", time.Hour, ""},
		"dracut": {"boot/initramfs-6.8.0.img", -time.Hour, "WARN host-initramfs /boot/initramfs-6.8.0.img " +
			"is older than /etc/modprobe.d/ib_core.conf\n"},
		"another kernel's": {"boot/initrd.img-6.9.0", -time.Hour, ""},
	} {
		m := machines.H20()
		m.FS = maps.Clone(m.FS)
		m.FS["etc/modprobe.d/ib_core.conf"].ModTime = written
		m.FS[c.image] = &fstest.MapFile{Data: []byte("an image"), ModTime: written.Add(c.after)}
		for _, h := range recorded(t, m) {
			list := hostInitramfs(h, h.Node.Fabrics())
			if d := cmp.Diff(c.want, text(list)); d != "" || (len(list) == 0) != strings.Contains(c.image, "6.9.0") {
				t.Errorf("%s: %+v (-want +got):\n%s", name, list, d)
			}
		}
	}
}

func TestHostGUIDsAndVersion(t *testing.T) {
	h := host(t, machines.GB200())
	h.Node.HCAs[2].Ports[0].GUID = h.Node.HCAs[0].Ports[0].GUID
	h.PluginVersion, h.Version = "v1.0.0", "v1.1.0"
	f := h.Node.Fabrics()
	got := text(append(hostGUIDs(h, f), hostVersion(h, f)...))
	const want = "FAIL host-guid mlx5_0:1 and mlx5_2:1 have the port GUID a0:88:c2:03:00:fa:00:91\n" +
		"WARN host-version fabricctl is v1.1.0, /opt/cni/bin/fabric v1.0.0\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	h.Version = "v1.0.0"
	if list := hostVersion(h, f); len(list) != 1 || list[0].Status != OK {
		t.Errorf("%+v", list)
	}
}

// What the next boot will have is what modprobe and the kernel make of files and command line.
func TestHostModeAtBoot(t *testing.T) {
	const (
		exclusive, shared = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
		boot              = "ib_core.netns_mode=0 on the kernel command line\n"
		nowhere           = "no netns_mode in modprobe.d or on the kernel command line\n"
		ok                = "OK host-rdma-mode exclusive; "
		warn              = "WARN host-rdma-mode the mode is exclusive, "
	)
	type in = map[string]string
	for name, c := range map[string]struct {
		files   in
		cmdline string
		builtin bool
		want    string
	}{
		"nothing": {want: warn + nowhere},
		"a file": {files: in{"etc/modprobe.d/z.conf": exclusive},
			want: ok + "netns_mode=0 in /etc/modprobe.d/z.conf\n"},
		"the last name": {files: in{"etc/modprobe.d/a.conf": shared, "lib/modprobe.d/z.conf": exclusive},
			want: ok + "netns_mode=0 in /lib/modprobe.d/z.conf\n"},
		"one hides the other": {files: in{"run/modprobe.d/a.conf": exclusive,
			"usr/local/lib/modprobe.d/a.conf": shared, "lib/modprobe.d/a.conf": shared},
			want: ok + "netns_mode=0 in /run/modprobe.d/a.conf\n"},
		"the command line": {cmdline: "quiet ib_core.netns_mode=0", want: ok + boot},
		"it wins over files": {files: in{"etc/modprobe.d/z.conf": shared}, cmdline: `"ib-core.netns_mode=off"`,
			want: ok + boot},
		"its last word": {cmdline: "ib_core.netns_mode=1 ib_core.netns_mode=N ib_core.recv_queue_size=4",
			want: ok + boot},
		"what is init's":    {cmdline: "ib_core.netns_mode=0 -- ib_core.netns_mode=1", want: ok + boot},
		"another module's":  {cmdline: "xib_core.netns_mode=0 ib_core.netns_modes=0", want: warn + nowhere},
		"it says otherwise": {cmdline: "ib_core.netns_mode", want: warn + strings.Replace(boot, "=0", "=1", 1)},
		"built in": {builtin: true, files: in{"etc/modprobe.d/z.conf": exclusive},
			want: warn + "ib_core is built into the kernel, and its command line has no ib_core.netns_mode\n"},
		"built in, command line": {builtin: true, cmdline: "ib_core.netns_mode=n", want: ok + boot},
		"a value that is none": {files: in{"etc/modprobe.d/z.conf": exclusive + "options ib_core netns_mode=x\n"},
			want: ok + "netns_mode=0 in /etc/modprobe.d/z.conf\n"},
	} {
		m := machines.H20()
		delete(m.FS, "etc/modprobe.d/ib_core.conf")
		m.File("proc/cmdline", c.cmdline)
		for file, text := range c.files {
			m.File(file, text)
		}
		if c.builtin {
			delete(m.FS, "sys/module/ib_core/initstate")
			m.File("sys/module/ib_core/parameters/netns_mode", "N")
		}
		for i, h := range recorded(t, m) {
			h.Node.RDMAMode = "exclusive"
			if d := cmp.Diff(c.want, all(hostMode(h, h.Node.Fabrics()))); d != "" {
				t.Errorf("%s, %d (-want +got):\n%s", name, i, d)
			}
		}
	}
}

// all is text with what is in order.
func all(list []Finding) (out string) {
	for _, f := range list {
		out += string(f.Status) + " " + f.ID + " " + f.Evidence + "\n"
	}
	return out
}
