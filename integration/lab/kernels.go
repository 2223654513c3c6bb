package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Series are the kernels the lab knows, oldest first. "next" is the newest of Debian's backports, 6.17 or later: there
// an IPoIB netdev is recreated in the network namespace of its RDMA device.
var Series = []string{"6.1", "6.12", "next"}

// Kernel is a prepared kernel.
type Kernel struct {
	Series  string // one of Series
	Release string // as in uname -r
	Image   string // uncompressed kernel
	Initrd  string // modules, fakeib among them, and init
}

// String returns a short name for test names and messages, such as "6.12" or "7.2".
func (k Kernel) String() string {
	major, rest, _ := strings.Cut(k.Release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// Cache returns the directory with prepared kernels: $FABRIC_LAB or ~/.cache/fabric-lab.
func Cache() string {
	if dir := os.Getenv("FABRIC_LAB"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return filepath.Join(home, ".cache", "fabric-lab")
}

// Kernels returns the prepared kernels, or those that $FABRIC_LAB_KERNELS names, by series or version ("6.12,7.2").
// It is an error if one of them is not prepared.
func Kernels() ([]Kernel, error) {
	var all []Kernel
	var missing []string
	for _, series := range Series {
		k, err := Find(series)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, series)
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	want := strings.FieldsFunc(os.Getenv("FABRIC_LAB_KERNELS"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(want) == 0 {
		if len(missing) > 0 {
			return nil, fmt.Errorf("kernels %s are not prepared; run scripts/lab-setup.sh", strings.Join(missing, " "))
		}
		return all, nil
	}
	var chosen []Kernel
	for _, name := range want {
		k, ok := pick(all, name)
		if !ok {
			return nil, fmt.Errorf("kernel %s is not prepared; run scripts/lab-setup.sh", name)
		}
		chosen = append(chosen, k)
	}
	return chosen, nil
}

// Find returns the prepared kernel of a series. The error is fs.ErrNotExist if it was not prepared.
func Find(series string) (Kernel, error) {
	// The link is resolved once: a set-up that runs meanwhile replaces it as a whole.
	dir, err := filepath.EvalSymlinks(filepath.Join(Cache(), "guest", series))
	if err != nil {
		return Kernel{}, fmt.Errorf("find kernel %s (run scripts/lab-setup.sh): %w", series, err)
	}
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return Kernel{}, fmt.Errorf("read release of kernel %s: %w", series, err)
	}
	return Kernel{
		Series:  series,
		Release: strings.TrimSpace(string(release)),
		Image:   filepath.Join(dir, "vmlinux"),
		Initrd:  filepath.Join(dir, "initrd.cpio"),
	}, nil
}

func pick(kernels []Kernel, name string) (Kernel, bool) {
	for _, k := range kernels {
		if k.Series == name || k.String() == name || k.Release == name {
			return k, true
		}
	}
	return Kernel{}, false
}
