package foreign_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/foreign"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// own is a state directory with what belongs there.
func own(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, k := journal.Store{Dir: dir}, journal.Key{ContainerID: "c1", IfName: "net1"}
	e := &journal.Entry{Key: k, Kind: journal.KindDevice, DeviceKey: "netdev/v0", Netns: netns.ID{Ino: 1}}
	lock, err := s.Lock(t.Context(), "netdev/v0")
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	for _, err := range []error{
		s.Save(e), s.SetOwner("netdev/v0", k), s.AddChild("pci/0000:3b:00.0", k),
		s.PendingNames(journal.RDMA).Set("pci/0000:3b:00.1", "mlx5_1"),
		s.PendingNames(journal.Netdev).Set("pci/0000:3b:00.1", "ib1"),
		s.NoteTenant("pci/0000:3b:00.2", "team-a"),
		prepared.In(dir).Save(&prepared.Claim{UID: "c", PodUID: "p"}),
		os.MkdirAll(filepath.Join(dir, "ipam/ib"), 0o700),
		os.WriteFile(filepath.Join(dir, "ipam/ib/10.0.0.1"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestIn(t *testing.T) {
	dir := own(t)
	if got := foreign.In(dir); len(got) != 0 {
		t.Fatalf("of the plugin's own: %q", got)
	}
	if got := foreign.In(filepath.Join(dir, "not-there")); len(got) != 0 {
		t.Fatalf("of nothing: %q", got)
	}
	for _, d := range []string{"attachments/d@net1", "locks/d", "claims/netdev+w0/owner", "prepared/p/d", "ipam/ib/d"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{
		"attachments/lock", "attachments/f@net1", "claims/f", "claims/netdev+v0/children", "names/f", "netdevs/f",
		"tenants/f", "prepared/lock", "prepared/p/f", "ipam/f",
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "attachments/p@net1"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := foreign.In(dir)
	for _, want := range append(files, "attachments/d@net1", "attachments/p@net1",
		"locks/d is a directory, want a file", "claims/netdev+w0/owner", "prepared/p/d", "ipam/ib/d") {
		n := 0
		for _, g := range got {
			if strings.Contains(g, filepath.Join(dir, want)) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is named %d times in %q", want, n, got)
		}
	}
	if len(got) != len(files)+6 {
		t.Errorf("%d: %q", len(got), got)
	}
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, "names", "n"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := foreign.In(dir); len(got) != 51 || !strings.Contains(got[50], " more in ") {
		t.Errorf("%d: %q", len(got), got[len(got)-1])
	}
}
