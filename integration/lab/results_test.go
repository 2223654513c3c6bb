package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Whatever changes an outcome changes the key, and nothing else does.
func TestKeys(t *testing.T) {
	t.Setenv("FABRIC_LAB_ROUNDS", "")
	dir := t.TempDir()
	t.Setenv("FABRIC_LAB", dir)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := Suite{Name: "s"}
	files := []string{"image", "initrd", testBinary(s.pkg()), "plugins/fabric"}
	write("userland/version", "perftest")
	reset := func() {
		for _, f := range files {
			write(f, f)
		}
	}
	key := func(change func(*work, *keys)) string {
		t.Helper()
		w := &work{
			kernel: Kernel{
				Series: "6.12", Release: "6.12.1",
				Image: filepath.Join(dir, "image"), Initrd: filepath.Join(dir, "initrd"),
			},
			suite: s, test: "TestX", piece: 1, pieces: 2, expected: 5,
		}
		k := &keys{
			hashes: map[string]string{}, user: "iproute2 6.1", accel: "tcg",
			qemu: map[bool]string{false: "QEMU 7", true: "QEMU 10"},
		}
		if change != nil {
			change(w, k)
		}
		got, err := k.of(t.Context(), w, binaries{dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	reset()
	base := key(nil)
	if again := key(func(w *work, _ *keys) { w.expected, w.tries = 9, 1 }); again != base {
		t.Error("the key depends on the expected time")
	}
	write("plugins-fabricctl/fabricctl", "a tool of another suite")
	if key(nil) != base {
		t.Error("the key depends on a program that the suite does not have")
	}
	traffic := func(w *work, _ *keys) { w.suite.UserLand = true }
	withUserLand := key(traffic)
	write("userland/version", "another perftest")
	if key(nil) != base {
		t.Error("the key depends on a user land that the suite does not have")
	}
	if key(traffic) == withUserLand {
		t.Error("the key does not depend on the suite's user land")
	}
	for name, change := range map[string]func(*work, *keys){
		"userland": traffic,
		"release":  func(w *work, _ *keys) { w.kernel.Release = "6.12.2" },
		"test":     func(w *work, _ *keys) { w.test = "TestY" },
		"piece":    func(w *work, _ *keys) { w.piece = 2 },
		"pieces":   func(w *work, _ *keys) { w.pieces = 3 },
		"suite":    func(w *work, _ *keys) { w.suite.Name = "other" },
		"append":   func(w *work, _ *keys) { w.suite.Append = exclusive },
		"apart":    func(w *work, _ *keys) { w.suite.Apart = true },
		"devices":  func(w *work, _ *keys) { w.suite.Devices = VirtioNet(1) },
		"QEMU":     func(w *work, _ *keys) { w.suite.NewQEMU = true },
		"version":  func(_ *work, k *keys) { k.qemu[false] = "QEMU 8" },
		"accel":    func(_ *work, k *keys) { k.accel = "kvm" },
		"user":     func(_ *work, k *keys) { k.user = "iproute2 6.2" },
		"rounds":   func(*work, *keys) { t.Setenv("FABRIC_LAB_ROUNDS", "7") },
		"seed":     func(*work, *keys) { t.Setenv("FABRIC_WALK_SEED", "7") },
	} {
		if key(change) == base {
			t.Errorf("%s: the key is the same", name)
		}
		t.Setenv("FABRIC_LAB_ROUNDS", "")
		t.Setenv("FABRIC_WALK_SEED", "")
	}
	for _, f := range append(files, "plugins/new") {
		write(f, "changed")
		if key(nil) == base {
			t.Errorf("%s: the key is the same", f)
		}
		reset()
	}
}

func TestResults(t *testing.T) {
	t.Setenv("FABRIC_LAB", t.TempDir())
	t.Setenv("FABRIC_LAB_FULL", "")
	t.Setenv("FABRIC_LAB_NOCACHE", "")
	t.Setenv("FABRIC_LAB_RUN", "TestX")
	now := time.Now()
	c, err := openResults()
	if err != nil {
		t.Fatal(err)
	}
	want := pass{Work: "6.12/s/TestX", Time: now.Round(0), Seconds: 1.5, Matrix: []string{"MATRIX x"}}
	if err := c.store("key", want); err != nil {
		t.Fatal(err)
	}
	got := c.find("key", now)
	if got == nil {
		t.Fatal("a pass is not found")
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("pass (-want +got):\n%s", diff)
	}
	if c.find("other", now) != nil || c.find("key", now.Add(resultAge+time.Hour)) != nil {
		t.Error("a pass that is not there, or an old one, is found")
	}
	if err := os.WriteFile(filepath.Join(c.dir, "broken"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if c.find("broken", now) != nil {
		t.Error("a damaged pass counts")
	}
	for name, value := range map[string]string{
		"FABRIC_LAB_FULL": "1", "FABRIC_LAB_NOCACHE": "1", "FABRIC_LAB_RUN": "TestX/y",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			none, err := openResults()
			err = errors.Join(err, none.store("key2", want))
			if err != nil || none.find("key", now) != nil || c.find("key2", now) != nil {
				t.Errorf("%s=%s uses the cache (%v)", name, value, err)
			}
		})
	}
}

func TestRemoveOld(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"a", "b", "c", "d"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	left := func(age time.Duration, count int) (names []string) {
		t.Helper()
		if err := removeOld(dir, age, count); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, left(150*time.Minute, 10)); diff != "" {
		t.Errorf("by age: %s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, left(time.Hour*24, 2)); diff != "" {
		t.Errorf("by number: %s", diff)
	}
}

func TestReadKVM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	if _, known := readKVM(file, "boot"); known {
		t.Error("an answer without a file")
	}
	for _, c := range []struct {
		text         string
		works, known bool
	}{
		{"boot true\n", true, true}, {"boot false\n", false, true},
		{"earlier true\n", false, false}, {"", false, false},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if works, known := readKVM(file, "boot"); works != c.works || known != c.known {
			t.Errorf("%q: works %t, known %t", c.text, works, known)
		}
	}
}

// The same source gives the same binary, wherever it lies.
func TestBuildIsReproducible(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "elsewhere")
	for _, dir := range []string{"cmd/fabric", "internal", "pkg", "plugins"} {
		if err := os.CopyFS(filepath.Join(other, dir), os.DirFS(filepath.Join(root, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(other, file), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	k := &keys{hashes: map[string]string{}}
	var sums []string
	for i, dir := range []string{root, other} {
		b := Binaries[0]
		b.Name = []string{"first", "second"}[i]
		out := t.TempDir()
		if err := b.make(t.Context(), dir, out); err != nil {
			t.Fatal(err)
		}
		sum, err := k.file(filepath.Join(out, b.Name))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Errorf("the plugin built in two directories has the hashes %v", sums)
	}
}
