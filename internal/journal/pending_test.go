package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPendingNames(t *testing.T) {
	for _, f := range []NameOf{RDMA, Netdev} {
		t.Run(string(f), func(t *testing.T) { testPendingNames(t, f) })
	}
}

func testPendingNames(t *testing.T, f NameOf) {
	s := Store{t.TempDir()}
	p := s.PendingNames(f)
	const other = "auxiliary/mlx5_core.sf.4"
	wantPending := func(deviceKey, want string) {
		t.Helper()
		if got, err := p.Get(deviceKey); err != nil || got != want {
			t.Errorf("the pending name of %s is %q, %v, want %q", deviceKey, got, err, want)
		}
	}
	wantDevices := func(want ...string) {
		t.Helper()
		got, err := p.Devices()
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("devices: -want +got:\n%s", diff)
		}
	}
	wantPending(deviceKey, "")
	wantDevices()
	must(t, p.Clear(deviceKey))
	must(t, p.Set(deviceKey, "mlx5_1"))
	must(t, p.Set(deviceKey, "mlx5_0"))
	must(t, p.Set(other, "mlx5_7"))
	wantPending(deviceKey, "mlx5_0")
	wantDevices(other, deviceKey)
	must(t, p.Clear(deviceKey))
	wantPending(deviceKey, "")
	wantPending(other, "mlx5_7")
	must(t, p.Clear(other))
	wantDevices()
	if _, err := os.Stat(filepath.Join(s.Dir, string(f))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory is left: %v", err)
	}
}
