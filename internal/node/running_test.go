package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// hostProc makes a /proc of a node, with these files and links (-> target) in the node's root directory.
func hostProc(t *testing.T, files map[string]string) string {
	t.Helper()
	proc, root := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(proc, "1", "root")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := cutArrow(text); ok {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func cutArrow(s string) (string, bool) {
	if len(s) > 3 && s[:3] == "-> " {
		return s[3:], true
	}
	return "", false
}

// In a container the files are the node's, sysfs and proc what the container sees. Links of the node lead where they
// lead on the node: none to a file of the container.
func TestRunning(t *testing.T) {
	proc := hostProc(t, map[string]string{
		"usr/lib/modprobe.d/a.conf": "a",
		"lib":                       "-> usr/lib",
		"etc/modprobe.d/b.conf":     "-> /usr/lib/modprobe.d/a.conf",
		"etc/up":                    "-> ../../../../../usr",
		"etc/circle":                "-> circle2",
		"etc/circle2":               "-> /etc/circle",
		"etc/absolute":              "-> /",
		"sys/class/none":            "not sysfs",
	})
	tree, container, err := Running(proc)
	if err != nil || !container {
		t.Fatal(container, err)
	}
	for name, want := range map[string]string{
		"usr/lib/modprobe.d/a.conf": "a", "lib/modprobe.d/a.conf": "a", "etc/modprobe.d/b.conf": "a",
		"etc/up/lib/modprobe.d/a.conf": "a", "etc/absolute/lib/modprobe.d/a.conf": "a",
		"etc/circle": "", "etc/passwd": "", "sys/class/none": "", "etc/modprobe.d/c.conf": "", "etc/../etc/up": "",
	} {
		b, err := fs.ReadFile(tree, name)
		if string(b) != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := fs.Stat(tree, "sys/class"); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(tree, "proc/cmdline"); err != nil {
		t.Error(err)
	}
	if to, err := fs.ReadLink(tree, "etc/modprobe.d/b.conf"); to != "/usr/lib/modprobe.d/a.conf" || err != nil {
		t.Error(to, err)
	}
	if st, err := fs.Lstat(tree, "lib"); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Error(st, err)
	}
	list, err := fs.ReadDir(tree, "lib/modprobe.d")
	if err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if l, err := live(tree, Store{Dir: t.TempDir()}); err != nil || l.Host == "recorded" {
		t.Errorf("it is not taken for the running machine: %+v, %v", l, err)
	}
}

// On the node itself, and in a container that does not have the node's /proc, there is nothing to look through.
func TestRunningHere(t *testing.T) {
	for _, proc := range []string{"/nowhere", t.TempDir()} {
		if tree, container, err := Running(proc); tree != os.DirFS("/") || container || err != nil {
			t.Errorf("%s: %v, %v, %v", proc, tree, container, err)
		}
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(proc, "1", "root")); err != nil {
		t.Fatal(err)
	}
	if tree, container, err := Running(proc); tree != os.DirFS("/") || container || err != nil {
		t.Errorf("%v, %v, %v", tree, container, err)
	}
}
