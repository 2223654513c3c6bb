package devinfo

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	tests := map[string]struct {
		before string
		pci    PCI
		want   string
	}{
		"new": {
			"",
			PCI{"0000:3b:00.2", "0000:3b:00.0", "mlx5_2"},
			`{"pci":{"pci-address":"0000:3b:00.2","pf-pci-address":"0000:3b:00.0","rdma-device":"mlx5_2"},` +
				`"type":"pci","version":"1.1.0"}`,
		},
		"more": {
			`{"type":"vdpa","version":"1.0.0","vdpa":{"path":"/dev/vhost-vdpa-0"},` +
				`"pci":{"pci-address":"0000:3b:00.2","vhost-net":"/dev/vhost-net"}}`,
			PCI{RDMA: "mlx5_2"},
			`{"pci":{"pci-address":"0000:3b:00.2","rdma-device":"mlx5_2","vhost-net":"/dev/vhost-net"},` +
				`"type":"vdpa","vdpa":{"path":"/dev/vhost-vdpa-0"},"version":"1.1.0"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Merge([]byte(tt.before), tt.pci)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
	if _, err := Merge([]byte("{"), PCI{}); err == nil {
		t.Error("damaged file: no error")
	}
}

// The path comes from a configuration that anybody may write.
func TestPlace(t *testing.T) {
	for _, path := range []string{
		"/etc/passwd", "/var/run/k8s.cni.cncf.io/devinfo/cni/../../x", "/var/run/k8s.cni.cncf.io/devinfo/cni/",
		"x/y", "..", ".x", "", "/",
	} {
		if err := Save(path, PCI{}, "me"); !errors.Is(err, ErrPlace) {
			t.Errorf("Save(%q): %v", path, err)
		}
		if err := Remove(path, "me", ""); !errors.Is(err, ErrPlace) {
			t.Errorf("Remove(%q): %v", path, err)
		}
	}
}

// place makes a directory for files of a test.
func place(t *testing.T) string {
	t.Helper()
	old := Dirs
	Dirs = []string{filepath.Join(t.TempDir(), "devinfo")}
	t.Cleanup(func() { Dirs = old })
	return Dirs[0]
}

func TestSaveRemove(t *testing.T) {
	dir := place(t)
	for _, path := range []string{"net-pod-net1.json", filepath.Join(dir, "net-pod-net1.json")} {
		for _, d := range []PCI{{Address: "0000:01:00.1"}, {RDMA: "mlx5_0"}} {
			if err := Save(path, d, "me"); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(filepath.Join(dir, "net-pod-net1.json"))
		want := `{"pci":{"pci-address":"0000:01:00.1","rdma-device":"mlx5_0"},"type":"pci","version":"1.1.0",` +
			`"writer":"me"}`
		if err != nil || string(b) != want {
			t.Errorf("got %s, %v", b, err)
		}
		for range 2 {
			if err := Remove(path, "me", ""); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// The path may be that of a file which is another pod's, or which is no such file at all.
func TestOthersFilesStay(t *testing.T) {
	dir := place(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	ours := PCI{Address: "0000:01:00.1", RDMA: "mlx5_0"}
	const same = `{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:00.1","vhost-net":"/dev/v"}`
	for name, tt := range map[string]struct {
		before  string
		saved   bool
		removed bool // by one who has not written it
	}{
		"another pod's":          {`{"type":"pci","pci":{"pci-address":"0000:02:00.1"},"writer":"you"}`, false, false},
		"another device's":       {`{"type":"pci","pci":{"pci-address":"0000:02:00.1"}}`, false, false},
		"no address":             {`{"type":"pci"}`, false, false},
		"empty":                  {"", false, false},
		"no JSON":                {"{", false, false},
		"too long":               {same + strings.Repeat(" ", maxFile) + "}", false, false},
		"of the device plugin":   {same + `,"writer":"fabric-agent"}`, true, false},
		"that Multus has copied": {same + "}", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "pod.json")
			put := func() {
				if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put()
			if err := Save(path, ours, "me"); (err == nil) != tt.saved {
				t.Errorf("Save: %v", err)
			}
			if b, err := os.ReadFile(path); err != nil || (string(b) == tt.before) == tt.saved {
				t.Errorf("after Save: %.200s, %v", b, err)
			} else if tt.saved && (Writer(b) != "me" || !strings.Contains(string(b), "vhost-net")) {
				t.Errorf("after Save: %s", b)
			}
			put()
			if err := Remove(path, "me", ""); err == nil {
				t.Error("removed without knowing the device")
			}
			if err := Remove(path, "me", ours.Address); (err == nil) != tt.removed {
				t.Errorf("Remove: %v", err)
			}
			if _, err := os.Stat(path); (err != nil) != tt.removed {
				t.Errorf("after Remove: %v", err)
			}
		})
	}
	link := filepath.Join(dir, "link.json")
	for _, content := range []string{same + "}", ""} { // a link to a file, and one to nothing
		os.Remove(outside)
		if err := os.WriteFile(outside, []byte(content), 0o600); content != "" && err != nil {
			t.Fatal(err)
		}
		if content == "" {
			os.Remove(outside)
		}
		os.Remove(link)
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		if err := Save(link, ours, "me"); err == nil {
			t.Error("written through a link")
		}
		if b, err := os.ReadFile(outside); content == "" && err == nil || string(b) != content {
			t.Errorf("outside: %s, %v", b, err)
		}
	}
}

// Multus has copied what is known of the device that it has named. The pod gets another one of its own.
func TestSaveOther(t *testing.T) {
	dir := place(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pod.json")
	ours := PCI{Address: "0000:01:00.1", RDMA: "mlx5_0"}
	const named = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:02:00.1","vhost-net":"/dev/x"}}`
	const plugin = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.1","vhost-net":"/dev/y"}}`
	const bare = `{"pci":{"pci-address":"0000:01:00.1","rdma-device":"mlx5_0"},"type":"pci","version":"1.1.0",` +
		`"writer":"me"}`
	full := strings.Replace(bare, `"},"type"`, `","vhost-net":"/dev/y"},"type"`, 1)
	for name, tt := range map[string]struct{ before, plugin, want string }{
		"the plugin knows it":      {named, plugin, full},
		"nobody knows it":          {named, "", bare},
		"the plugin knows another": {named, named, bare},
		"none was copied":          {"", plugin, bare},
		"ours already":             {plugin, "", full},
		"a third one's":            {strings.ReplaceAll(named, "0000:02", "0000:03"), plugin, ""},
	} {
		os.Remove(path)
		if tt.before != "" {
			if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := SaveOther(path, ours, "me", "0000:02:00.1", []byte(tt.plugin))
		b, rerr := os.ReadFile(path)
		if want := cmp.Or(tt.want, tt.before); (err == nil) != (tt.want != "") || rerr != nil || string(b) != want {
			t.Errorf("%s: %v, %v\n%s\nwant\n%s", name, err, rerr, b, want)
		}
	}
}

func TestWriter(t *testing.T) {
	b, err := Encode(PCI{Address: "0000:3b:00.0", RDMA: "mlx5_0"}, "me")
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"pci":{"pci-address":"0000:3b:00.0","rdma-device":"mlx5_0"},"type":"pci","version":"1.1.0",` +
		`"writer":"me"}`; string(
		b,
	) != want {
		t.Errorf("%s", b)
	}
	if b, err = Merge(b, PCI{PF: "0000:3b:00.1"}); err != nil || Writer(b) != "me" {
		t.Errorf("%s, %v", b, err)
	}
	for _, other := range []string{"", "nonsense", `{"type":"pci"}`} {
		if w := Writer([]byte(other)); w != "" {
			t.Errorf("%q is by %q", other, w)
		}
	}
}
