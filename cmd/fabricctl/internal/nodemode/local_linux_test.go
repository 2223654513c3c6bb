package nodemode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// machine is one whose files are in a directory, with programs of its own.
type machine struct {
	dir, mode, cmdline string
	builtIn            bool
}

// look reads what modprobe and the kernel would.
func (m *machine) look() (*doctor.Host, error) {
	tree := fstest.MapFS{"proc/cmdline": {Data: []byte(m.cmdline)}, "sys/module/ib_core/srcversion": {}}
	if !m.builtIn {
		tree["sys/module/ib_core/initstate"] = &fstest.MapFile{}
	}
	for _, name := range []string{"etc/modprobe.d/zz-fabric-cni.conf", "etc/modprobe.d/z.conf",
		"etc/modprobe.d/zzz.conf",
		"boot/initrd.img-6"} {
		if b, err := os.ReadFile(filepath.Join(m.dir, filepath.Base(name))); err == nil {
			st, err := os.Stat(filepath.Join(m.dir, filepath.Base(name)))
			if err != nil {
				return nil, err
			}
			tree[name] = &fstest.MapFile{Data: b, ModTime: st.ModTime()}
		}
	}
	return doctor.CollectHost(tree, &node.Node{RDMAMode: m.mode, Kernel: "6"}), nil
}

// What is written, what is left alone, and what is refused with a reason.
func TestSet(t *testing.T) {
	const exclusive, shared = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
	for name, c := range map[string]struct {
		machine machine
		files   map[string]string
		tool    string // what update-initramfs does
		want    string // what is done, or the error
		left    string // of the file
	}{
		"written": {machine: machine{mode: "shared"}, want: "netns_mode=0 in /etc/modprobe.d/zz-fabric-cni.conf; no " +
			"initramfs", left: exclusive},
		"an initramfs": {machine: machine{mode: "shared"}, files: map[string]string{"initrd.img-6": "old"},
			tool: "echo new >DIR/initrd.img-6", want: "update-initramfs -u -k all", left: exclusive},
		"an initramfs that stays old": {machine: machine{mode: "shared"},
			files: map[string]string{"initrd.img-6": "old"},
			tool:  "true", want: "has succeeded, and /boot/initrd.img-6 is still older", left: exclusive},
		"no rebuild": {machine: machine{mode: "shared"}, files: map[string]string{"initrd.img-6": "old"},
			tool: "echo no space left; exit 3", want: "exit status 3: no space left", left: exclusive},
		"no tool": {machine: machine{mode: "shared"}, files: map[string]string{"initrd.img-6": "old"},
			want: "none of update-initramfs, dracut and mkinitcpio is installed"},
		"in it": {machine: machine{mode: "exclusive"}, files: map[string]string{"z.conf": exclusive},
			want: "netns_mode=0 in /etc/modprobe.d/z.conf"},
		"in it, and not after a boot": {machine: machine{mode: "exclusive"}, want: "netns_mode=0 in", left: exclusive},
		"a file before": {machine: machine{mode: "shared"}, files: map[string]string{"z.conf": shared},
			want: "netns_mode=0 in /etc/modprobe.d/zz-fabric-cni.conf", left: exclusive},
		"a file after": {machine: machine{mode: "shared"}, files: map[string]string{"zzz.conf": shared},
			want: "/etc/modprobe.d/zzz.conf wins over"},
		"the command line": {machine: machine{mode: "shared", cmdline: "ib_core.netns_mode=1"},
			want: "ib_core.netns_mode=1 on the kernel command line, which wins over modprobe.d"},
		"the command line has it": {machine: machine{mode: "shared", cmdline: "ib_core.netns_mode=0"},
			want: "ib_core.netns_mode=0 on the kernel command line"},
		"built in": {machine: machine{mode: "shared", builtIn: true}, want: "ib_core is built into the kernel"},
		"no RDMA":  {machine: machine{}, want: "the kernel has no RDMA subsystem"},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.machine
			m.dir = t.TempDir()
			path := filepath.Join(m.dir, "bin")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			past := time.Now().Add(-time.Hour)
			for name, text := range c.files {
				file := filepath.Join(m.dir, name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(file, past, past); err != nil {
					t.Fatal(err)
				}
			}
			if c.tool != "" {
				script := "#!/bin/sh\n" + strings.ReplaceAll(c.tool, "DIR", m.dir) + "\n"
				if err := os.WriteFile(filepath.Join(path, "update-initramfs"), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", path)
			l := &Here{Mode: "exclusive", Look: m.look, file: filepath.Join(m.dir, "zz-fabric-cni.conf")}
			_, done, err := l.Set(t.Context())
			if err != nil {
				done = err.Error()
			}
			if !strings.Contains(done, c.want) {
				t.Errorf("%q, want %q", done, c.want)
			}
			b, _ := os.ReadFile(l.file)
			_, left, _ := strings.Cut(string(b), "\n")
			if left != c.left {
				t.Errorf("file: %q, want %q", left, c.left)
			}
		})
	}
}

// A check fails unless the mode is there, and there to stay.
func TestCheck(t *testing.T) {
	for mode, want := range map[string]string{"exclusive": "", "shared": "although netns_mode=0 in"} {
		m := &machine{dir: t.TempDir(), mode: mode}
		if err := os.WriteFile(filepath.Join(m.dir, "z.conf"), []byte("options ib_core netns_mode=0\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		err := (&Here{Mode: "exclusive", Look: m.look}).Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
	m := &machine{dir: t.TempDir(), mode: "exclusive"}
	if err := (&Here{Mode: "exclusive", Look: m.look}).Check(); err == nil ||
		!strings.Contains(err.Error(), "and after a boot shared") {
		t.Errorf("not after a boot: %v", err)
	}
}
