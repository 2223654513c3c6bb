package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// envCgroup is the name of a cgroup that kubelet's are below, so that another run on this machine and this one leave
// each other's containers alone. Empty: they are where kubelet makes them.
const envCgroup = "FABRIC_CLUSTER_CGROUP"

// ownCgroup is the name of that cgroup in each hierarchy, or empty.
func ownCgroup() string {
	if name := os.Getenv(envCgroup); name != "" {
		return ownCgroups + name
	}
	return ""
}

// ownCgroups is what the names of the cgroups of runs that have one of their own begin with.
const ownCgroups = "fabric-cluster-"

// hierarchies are the directories that have all cgroups: many with version 1.
func hierarchies() []string {
	const top = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err == nil {
		return []string{top}
	}
	dirs, _ := filepath.Glob(filepath.Join(top, "*"))
	return dirs
}

// cgroupFlags are those of kubelet. It wants its cgroup to be there.
func cgroupFlags() ([]string, error) {
	name := ownCgroup()
	if name == "" {
		return nil, nil
	}
	for _, dir := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	return []string{"--cgroup-root", "/" + name}, nil
}

// removeCgroups takes away the directories of containers, which outlive them. A run with a cgroup of its own leaves
// those of others alone.
func removeCgroups() {
	if name := ownCgroup(); name != "" {
		for _, dir := range hierarchies() {
			removeTree(filepath.Join(dir, name))
		}
		return
	}
	for range 50 {
		left := false
		_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(d.Name(), ownCgroups) {
				return filepath.SkipDir
			}
			if err != nil || !d.IsDir() || (d.Name() != "kubepods" && d.Name() != "k8s.io") {
				return nil //nolint:nilerr // it vanishes while we look: that is what we want
			}
			left = true
			removeTree(p)
			return filepath.SkipDir
		})
		if !left {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// removeTree removes cgroup directories from the leaves up: their files go with them.
func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}
