package lab

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// The bounds of the cache of results. A pass that is older runs again.
const (
	resultAge   = 14 * 24 * time.Hour
	resultCount = 5000
)

// pass is a cached result: work that passed with the same binaries on the same machine.
type pass struct {
	Work    string    // for people
	Time    time.Time // when it passed
	Seconds float64   // in the guest
	Matrix  []string  // its lines of the matrix
}

// resultCache keeps the passes of earlier runs, one file for each, named by its key. A cache that is nil is empty and
// stays so.
type resultCache struct{ dir string }

// openResults returns the cache, nil when results must not be reused: a full run and FABRIC_LAB_NOCACHE=1 run
// everything, and so does a run of chosen subtests, which is no pass of the whole test.
func openResults() (*resultCache, error) {
	if full() || os.Getenv("FABRIC_LAB_NOCACHE") != "" || strings.Contains(os.Getenv("FABRIC_LAB_RUN"), "/") {
		return nil, nil
	}
	c := &resultCache{dir: filepath.Join(Cache(), "results")}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create cache of results: %w", err)
	}
	return c, removeOld(c.dir, resultAge, resultCount)
}

// full reports whether every cell and every round is wanted on every kernel.
func full() bool { return os.Getenv("FABRIC_LAB_FULL") != "" }

// find returns the pass with this key, or nil.
func (c *resultCache) find(key string, now time.Time) *pass {
	if c == nil {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(c.dir, key))
	if err != nil {
		return nil
	}
	var p pass
	if json.Unmarshal(data, &p) != nil || p.Time.IsZero() || now.Sub(p.Time) > resultAge {
		return nil
	}
	return &p
}

// store keeps a pass. It is complete or not there: another run may read it.
func (c *resultCache) store(key string, p pass) error {
	if c == nil {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	return replaceFile(filepath.Join(c.dir, key), data)
}

// replaceFile writes a file of the cache as a whole. Several runs on a machine may write the same one.
func replaceFile(path string, data []byte) error {
	return atomicfile.File{Path: path, Mode: 0o644, Temp: ".new-*"}.Write(data)
}

// removeOldest removes entries of dir that were written longer than age ago, and the oldest beyond count.
func removeOldest(dir string, entries []fs.DirEntry, age time.Duration, count int) error {
	type file struct {
		name string
		time time.Time
	}
	var files []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it has just been removed
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return b.time.Compare(a.time) })
	for i, f := range files {
		if i < count && time.Since(f.time) <= age {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old result: %w", err)
		}
	}
	return nil
}

// keys computes the keys of results: everything that can change an outcome is in them.
type keys struct {
	mu     sync.Mutex
	hashes map[string]string // of files
	user   string            // see machinePrograms
	accel  string
	qemu   map[bool]string // version, by Suite.NewQEMU
}

func newKeys(ctx context.Context, accel string) (*keys, error) {
	k := &keys{hashes: make(map[string]string), qemu: make(map[bool]string), accel: accel}
	var err error
	if k.user, err = machinePrograms(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// of returns the key of w, whose guest finds these binaries: the test's and those in the directory for plugins.
func (k *keys) of(ctx context.Context, w *work, bin binaries) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.qemu[w.suite.NewQEMU]; !known {
		version, err := qemuVersion(ctx, w.suite.NewQEMU)
		if err != nil {
			return "", err
		}
		k.qemu[w.suite.NewQEMU] = version
	}
	files := []string{w.kernel.Image, w.kernel.Initrd, bin.test(w.suite)}
	lands, err := w.suite.userLands()
	if err != nil {
		return "", err
	}
	for _, land := range lands {
		files = append(files, filepath.Join(land[1], userLandVersion))
	}
	plugins, err := filepath.Glob(filepath.Join(bin.plugins(w.suite), "*"))
	if err != nil {
		return "", fmt.Errorf("list binaries: %w", err)
	}
	slices.Sort(plugins)
	h := sha256.New()
	for _, file := range append(files, plugins...) {
		sum, err := k.file(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(file), sum)
	}
	for _, text := range []string{
		"1", // raised when the meaning of a result changes
		w.kernel.Release, machine(w.kernel, w.suite), w.id(), k.qemu[w.suite.NewQEMU], k.accel, k.user,
		os.Getenv("FABRIC_WALK_SEED"), os.Getenv("FABRIC_WALK_OPS"), os.Getenv("FABRIC_WALK_TRICKS"),
		os.Getenv("FABRIC_WALK_SCRIPT"),
		os.Getenv("FABRIC_LAB_ROUNDS"), os.Getenv("FABRIC_LAB_QEMU"), runScript, queueScript, kernelArgs,
	} {
		fmt.Fprintf(h, "%q\n", text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func (k *keys) file(path string) (string, error) {
	if sum, ok := k.hashes[path]; ok {
		return sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash file: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	k.hashes[path] = hex.EncodeToString(h.Sum(nil))
	return k.hashes[path], nil
}

// userPackages are the Debian packages of this machine whose programs run in guests.
var userPackages = []string{
	"iproute2", "iputils-ping", "kmod", "dash", "bash", "coreutils", "util-linux", "procps", "libc6", "busybox-static",
	"qemu-system-x86", "sed", "grep",
}

// machinePrograms describes the programs of this machine that guests run, by the versions of their packages.
func machinePrograms(ctx context.Context) (string, error) {
	args := append([]string{"-W", "-f", "${Package} ${Version} ${Status}\n"}, userPackages...)
	text, err := output(ctx, "dpkg-query", args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // one of them is not known: the others are listed
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("find versions of this machine's programs: %w", err)
	}
	return text, nil
}

// output runs a program and returns what it prints.
func output(ctx context.Context, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w", program, err)
	}
	return string(out), nil
}

//go:embed durations.txt
var durationTable string

// durations are the seconds of earlier runs by id of the work.
type durations map[string]float64

// unknownSeconds is what work is expected to take that never ran.
const unknownSeconds = 20

// of returns what work is expected to take: as on its kernel, else as on 6.12.
func (d durations) of(w *work) float64 {
	elsewhere := "6.12/" + w.suite.Name + "/" + w.name()
	return cmp.Or(d[w.id()], d[elsewhere], unknownSeconds)
}

func durationsFile() string {
	if full() {
		return filepath.Join(Cache(), "durations-full.json")
	}
	return filepath.Join(Cache(), "durations.json")
}

// tableDurations reads the table in the repository.
func tableDurations() (durations, error) {
	d := make(durations)
	for line := range strings.Lines(durationTable) {
		var id string
		var seconds float64
		if _, err := fmt.Sscan(line, &id, &seconds); err != nil {
			return nil, fmt.Errorf("durations.txt: line %q: %w", line, err)
		}
		d[id] = seconds
	}
	return d, nil
}

// readDurations reads what earlier runs on this machine took, and for what never ran here the table in the repository.
func readDurations() (durations, error) {
	d, err := tableDurations()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(durationsFile())
	if err == nil {
		_ = json.Unmarshal(data, &d) // a file that can't be read is as good as none
	}
	return d, nil
}

func (d durations) write() error {
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return fmt.Errorf("encode durations: %w", err)
	}
	return replaceFile(durationsFile(), data)
}
