package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// ofThis looks at the container that fabricctl runs in.
func (p *podRef) ofThis() (*doctor.Pod, error) {
	live := node.ReadLive(p.noAttachments())
	pod, err := collectPod("/", "/proc/self", live, arpIgnore(), os.Environ())
	if err != nil {
		return nil, err
	}
	pod.Denied = denied(pod.Uverbs)
	return pod, nil
}

// denied are verbs devices that this process has no permission to open, as where the container's device cgroup does not
// have them. Opening one alone does nothing to the hardware.
func denied(uverbs []string) (out []string) {
	for _, name := range uverbs {
		fd, err := unix.Open("/dev/infiniband/"+name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case errors.Is(err, fs.ErrPermission):
			out = append(out, name)
		}
	}
	return out
}

// noAttachments is a journal without entries: no pod sees the node's.
func (p *podRef) noAttachments() journal.Store {
	return journal.Store{Dir: p.stateDir + "/none-in-a-pod"}
}

// ofProcess looks at the container of a process.
func (p *podRef) ofProcess() (*doctor.Pod, error) {
	proc := "/proc/" + strconv.Itoa(p.pid)
	ns, err := netns.Open(proc + "/ns/net")
	if err != nil {
		return nil, fmt.Errorf("--pid %d: %w", p.pid, err)
	}
	defer ns.Close()
	env, err := os.ReadFile(proc + "/environ")
	if err != nil {
		return nil, fmt.Errorf("--pid %d: %w; run as root", p.pid, err)
	}
	var live *node.Live
	var arp map[string]int
	err = ns.Do(func() error { live, arp = node.ReadLive(p.noAttachments()), arpIgnore(); return nil })
	if err != nil {
		live = &node.Live{Problems: []string{err.Error()}}
	}
	return collectPod(proc+"/root", proc, live, arp, strings.Split(string(env), "\x00"))
}

// collectPod reads a container with this root directory and this directory in /proc.
func collectPod(root, proc string, live *node.Live, arp map[string]int, env []string) (*doctor.Pod, error) {
	tree := os.DirFS(root)
	n, err := node.Read(tree, live)
	if err != nil {
		return nil, err
	}
	p := doctor.CollectPod(tree, os.DirFS(proc), n, env)
	p.ARPIgnore = arp
	var st unix.Statfs_t
	if err := unix.Statfs(root+"/dev/shm", &st); err == nil {
		p.Shm = int64(st.Blocks) * st.Bsize
	}
	return p, nil
}

// ofNetns looks at a network namespace without a process in it.
func (p *podRef) ofNetns() (*doctor.Pod, error) {
	ns, err := netns.Open(p.netns)
	if err != nil {
		return nil, fmt.Errorf("--netns: %w", err)
	}
	defer ns.Close()
	pod := &doctor.Pod{Bare: true}
	err = ns.DoWithSys(func(sys fs.FS) error {
		pod.ARPIgnore = arpIgnore()
		pod.Interfaces = doctor.InterfacesOf(onlySys{sys})
		pod.Node, err = node.Read(onlySys{sys}, node.ReadLive(p.noAttachments()))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--netns %s: %w", p.netns, err)
	}
	return pod, nil
}

// arpIgnore reads the sysctl of every interface of the calling thread's network namespace: that is what /proc/sys/net
// shows.
func arpIgnore() map[string]int {
	const dir = "/proc/sys/net/ipv4/conf/"
	out := map[string]int{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		b, err := os.ReadFile(dir + e.Name() + "/arp_ignore")
		if n, nerr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && nerr == nil {
			out[e.Name()] = n
		}
	}
	return out
}

// onlySys is a root file system that has nothing but sys.
type onlySys struct{ sys fs.FS }

func under(name string) (string, error) {
	if name == "sys" {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(name, "sys/"); ok {
		return rest, nil
	}
	return "", fs.ErrNotExist
}

// Open opens a file of sysfs.
func (o onlySys) Open(name string) (fs.File, error) {
	rest, err := under(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return o.sys.Open(rest)
}

// ReadLink reads a link of sysfs.
func (o onlySys) ReadLink(name string) (string, error) {
	rest, err := under(name)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return fs.ReadLink(o.sys, rest)
}

// Lstat describes a file of sysfs.
func (o onlySys) Lstat(name string) (fs.FileInfo, error) {
	rest, err := under(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return fs.Lstat(o.sys, rest)
}
