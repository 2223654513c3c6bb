package netns_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// The main thread is what /proc/PID/ns/net is of: it is where it was, also if it has made namespaces.
func TestNewLeavesTheProcess(t *testing.T) {
	before, err := netns.IDOf("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		n, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		if n.ID == before {
			t.Errorf("%v is not new", n.ID)
		}
		n.Close()
		if now, err := netns.IDOf("/proc/self/ns/net"); err != nil || now != before {
			t.Fatalf("the process is in %v, %v; it was in %v", now, err, before)
		}
	}
}

func TestOpen(t *testing.T) {
	n := sandbox.New(t)
	ns, err := netns.Open(n.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if id, err := netns.IDOf(n.Path); err != nil || id != ns.ID || id.Ino == 0 {
		t.Errorf("IDOf: %v, %v, want %v", id, err, ns.ID)
	}
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if own.ID == ns.ID {
		t.Errorf("both are %v", own.ID)
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "left-behind")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path    string
		missing bool // matches fs.ErrNotExist
	}{
		"missing":                 {filepath.Join(dir, "missing"), true},
		"regular file":            {file, true}, // what is left of a mount
		"directory":               {dir, true},
		"no directory on the way": {filepath.Join(file, "x"), false},
		"another kind":            {"/proc/self/ns/mnt", false},
		"device":                  {"/dev/null", true},
		"empty":                   {"", true},
	}
	for name, tt := range tests {
		before := descriptors(t)
		ns, err := netns.Open(tt.path)
		if err == nil {
			ns.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) != tt.missing || !strings.Contains(err.Error(), tt.path) {
			t.Errorf("%s: %v", name, err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%s: %d descriptors, %d before", name, after, before)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFind(t *testing.T) {
	find := func(t *testing.T, id netns.ID, want bool) {
		t.Helper()
		ns, err := netns.Find("/proc", id)
		switch {
		case err == nil:
			if ns.ID != id || !want {
				t.Errorf("found %v at %s", ns.ID, ns.Path)
			}
			ns.Close()
		case want || !errors.Is(err, fs.ErrNotExist):
			t.Error(err)
		}
	}
	idOf := func(t *testing.T, path string) netns.ID {
		t.Helper()
		id, err := netns.IDOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	t.Run("another mount", func(t *testing.T) {
		n := sandbox.New(t)
		id := idOf(t, n.Path)
		other := filepath.Join(t.TempDir(), "a mount\twith \\ blanks")
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(n.Path, other, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Unmount(n.Path, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		find(t, id, true)
		if err := unix.Unmount(other, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		find(t, id, false)
	})
	t.Run("a process", func(t *testing.T) {
		n := sandbox.New(t)
		id := idOf(t, n.Path)
		_, end := sandbox.Hold(t, "", "ip", "netns", "exec", n.Name)
		if err := unix.Unmount(n.Path, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		find(t, id, true)
		end()
		find(t, id, false)
	})
	t.Run("nobody", func(t *testing.T) { find(t, netns.ID{Dev: 4, Ino: 1}, false) })
	t.Run("no proc", func(t *testing.T) {
		if ns, err := netns.Find(t.TempDir(), netns.ID{Dev: 4, Ino: 1}); ns != nil || err == nil {
			t.Errorf("%v, %v", ns, err)
		}
	})
}

// A line of mountinfo may be of any length.
func TestFindBehindALongLine(t *testing.T) {
	n := sandbox.New(t)
	id, err := netns.IDOf(n.Path)
	if err != nil {
		t.Fatal(err)
	}
	actual, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "thread-self"), 0o700); err != nil {
		t.Fatal(err)
	}
	long := "1 1 0:1 / / rw - overlay overlay lowerdir=" + strings.Repeat("/layer:", 20000) + "\n"
	if err := os.WriteFile(
		filepath.Join(proc, "thread-self", "mountinfo"),
		append([]byte(long), actual...),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Find(proc, id)
	if err != nil {
		t.Fatal(err)
	}
	ns.Close()
}

func TestDo(t *testing.T) {
	n := sandbox.New(t)
	ns := n.Open(t)
	own, err := netns.IDOf("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	var wg sync.WaitGroup
	for range 8 { // side by side, as rails are
		wg.Go(func() {
			for range 20 {
				var in netns.ID
				err := ns.Do(func() error {
					runtime.Gosched()
					id, err := netns.IDOf("/proc/thread-self/ns/net")
					in = id
					if process, err := netns.IDOf("/proc/self/ns/net"); err != nil || process != own {
						t.Errorf("the process is in %v, %v", process, err)
					}
					return errors.Join(err, failed)
				})
				if !errors.Is(err, failed) || in != ns.ID {
					t.Errorf("in %v, %v", in, err)
				}
				if id, err := netns.IDOf("/proc/thread-self/ns/net"); err != nil || id != own {
					t.Errorf("left behind in %v, %v", id, err)
				}
			}
		})
	}
	wg.Wait()
}

// In a container with the node's /proc, as the agent calls the plugin: the numbers that a process has for itself are
// others' there.
func TestDoWithTheProcOfTheNode(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestDo$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDo ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Who reads the /sys of a namespace does not make it read-only for others, which may write meanwhile.
func TestDoWithSysBlocksNoWriter(t *testing.T) {
	sandbox.Root(t) // owns tx_queue_len
	n := sandbox.New(t).Open(t)
	const file = "class/net/lo/tx_queue_len"
	err := n.DoWithSys(func(fs.FS) error {
		if err := os.WriteFile(filepath.Join("/sys", file), []byte("7"), 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("the reader's mount can be written to: %v", err)
		}
		return n.WriteSys(file, []byte("777"))
	})
	if err != nil {
		t.Error(err)
	}
}

// The pod's view of sysfs, and only for the time of the call.
func TestDoWithSys(t *testing.T) {
	n := sandbox.New(t)
	n.IP(t, "link", "add", "only-here", "type", "bridge")
	classNet := func(sys fs.FS) []string {
		entries, err := fs.ReadDir(sys, "class/net")
		if err != nil {
			t.Error(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	before := classNet(os.DirFS("/sys"))
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	var got []string
	err = n.Open(t).DoWithSys(func(sys fs.FS) error {
		got = classNet(sys)
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"lo", "only-here"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, classNet(os.DirFS("/sys"))); diff != "" {
		t.Errorf("/sys outside: -before +after:\n%s", diff)
	}
	after, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(mounts), string(after)); diff != "" {
		t.Errorf("mounts: -before +after:\n%s", diff)
	}
}
