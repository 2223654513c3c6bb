package devinfo

import (
	"errors"
	"os"
	"path/filepath"
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
		if err := Save(path, PCI{}); !errors.Is(err, ErrPlace) {
			t.Errorf("Save(%q): %v", path, err)
		}
		if err := Remove(path); !errors.Is(err, ErrPlace) {
			t.Errorf("Remove(%q): %v", path, err)
		}
	}
}

func TestSaveRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "devinfo")
	old := Dirs
	Dirs = []string{dir}
	defer func() { Dirs = old }()
	for _, path := range []string{"net-pod-net1.json", filepath.Join(dir, "net-pod-net1.json")} {
		for _, d := range []PCI{{Address: "0000:01:00.1"}, {RDMA: "mlx5_0"}} {
			if err := Save(path, d); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(filepath.Join(dir, "net-pod-net1.json"))
		want := `{"pci":{"pci-address":"0000:01:00.1","rdma-device":"mlx5_0"},"type":"pci","version":"1.1.0"}`
		if err != nil || string(b) != want {
			t.Errorf("got %s, %v", b, err)
		}
		for range 2 {
			if err := Remove(path); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
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
