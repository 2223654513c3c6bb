//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fakePlugin is a plugin that honours failpoints as one built with the tag failpoint does.
const fakePlugin = `#!/bin/sh
point() {
	echo "$1" >>"${FABRIC_FAILPOINT_TRACE:-/dev/null}"
	case "$FABRIC_FAILPOINT" in
	"$1:kill") kill -9 $$;;
	"$1:error") echo '{"cniVersion":"1.1.0","code":105,"msg":"failpoint","details":"'"$1"'"}'; exit 1;;
	esac
}
point apply/1/before
point apply/1/after
point apply/1/after
echo '{"cniVersion":"1.1.0","interfaces":[{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}]}'
`

func TestHarnessFaults(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(plugin, []byte(fakePlugin), 0o755); err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(BinDir(), plugin)
	if err != nil {
		t.Fatal(err)
	}
	call := Call{
		Plugin:      rel,
		Command:     "ADD",
		ContainerID: "c",
		Netns:       "/run/netns/x",
		IfName:      "net1",
		Config:      map[string]string{"type": "fake"},
	}
	points, out := Points(t, call)
	if diff := cmp.Diff([]string{"apply/1/before", "apply/1/after"}, points); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	if out.Failed() || out.Result == nil || len(out.Result.Interfaces) != 1 || out.Result.Interfaces[0].Name != "net1" {
		t.Errorf("without a fault: %s, %+v", out, out.Result)
	}
	for _, point := range points {
		out := RunWithFault(t, call, point, FaultError)
		if out.Err == nil || out.Err.Code != 105 || out.Err.Details != point || out.Killed {
			t.Errorf("error at %s: %s", point, out)
		}
		if out := RunWithFault(t, call, point, FaultKill); !out.Killed || !out.Failed() {
			t.Errorf("kill at %s: %s", point, out)
		}
	}
}

// Another pod's namespace at the same path is another namespace.
func TestHarnessPathIsReused(t *testing.T) {
	pod := NewPod(t, "pod")
	inode := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat(pod.Path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	proc := pod.Spawn(t) // keeps the old one, so that its inode is not given again
	first := inode()
	pod.Delete(t)
	if _, err := os.Stat(pod.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path is still there: %v", err)
	}
	pod.Recreate(t)
	if inode() == first {
		t.Error("the namespace is the same")
	}
	proc.Kill()
}

// A new netdev gets its name and altname some milliseconds after it appeared; one that has been named keeps its name.
func TestHarnessUdev(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	pod := NewPod(t, "pod")
	u := StartUdev(
		t,
		map[string]string{"fakeib.0": "ibs108", "fakeib.1": "ibs110"},
		map[string]string{"fakeib.0": "ibp8s0"},
	)
	Give(t, pod, 0, "net1")
	TakeBack(t, pod, "mlx5_0")
	host := Host(t)
	Until(t, "udev has named it", func() error {
		l, err := NetdevOf(host, "fakeib.0")
		if err != nil {
			return err
		}
		if a := l.Attrs(); a.Name != "ibs108" || len(a.AltNames) != 1 || a.AltNames[0] != "ibp8s0" {
			return fmt.Errorf("it is %s %v", a.Name, a.AltNames)
		}
		return nil
	})
	if u.Renamed() == 0 {
		t.Error("udev counts nothing")
	}
	mustLink(t, host, "ib1") // it was there before udev
}

// The node S1 survives a take and return that restores nothing only as a difference.
func TestHarnessNodeIsRepaired(t *testing.T) {
	n := S1(t)
	pod := NewPod(t, "pod")
	if err := MoveRDMA("mlx5_3", pod.Path); err != nil {
		t.Fatal(err)
	}
	TakeBack(t, pod, "mlx5_3")
	now, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if Diff(n.Pristine, now) == "" {
		t.Error("a netdev that was destroyed makes no difference")
	}
	again := S1(t)
	if again == n {
		t.Error("the spoiled node is taken for a good one")
	}
}
