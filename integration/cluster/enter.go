package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// nodeIP is the node's address on its own bridge.
const nodeIP = "10.77.0.1"

// enter makes the namespaces a machine: everything that components write to by default is private.
func enter(run, cache string) error {
	if err := mounts(run); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("rig")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	for _, dir := range []string{"/etc/cni/net.d/multus.d", "/etc/cni/net.d/whereabouts.d", "/etc/cni/multus/net.d",
		"/etc/cni/fabric.d", "/etc/kubernetes/manifests", "/opt/cni/bin", "/var/lib/cni",
		run + "/log", run + "/conf", run + "/pki"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// Rails of the tests are veths: the machine has no other hardware. Networks name them, beside Fabrics too.
	rules := []byte(`{"allowVirtual": true, "requireAllocated": false}`)
	if err := os.WriteFile(policy.DefaultPath, rules, 0o644); err != nil {
		return err
	}
	script := strings.Join([]string{
		"cp -a " + cache + "/cnibin/. /opt/cni/bin/",
		"ip link set lo up",
		"ip link add node0 type bridge",
		"ip addr add " + nodeIP + "/24 dev node0",
		"ip link set node0 up",
		"ip route add default dev node0",
		"echo 1 >/proc/sys/net/ipv4/ip_forward",
	}, " && ")
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("prepare the node: %w: %s", err, out)
	}
	return nil
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mounts(run string) error {
	list := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"", "/", "", unix.MS_REC | unix.MS_SHARED, ""}, // kubelet and the runtime share mounts with containers
		{"proc", "/proc", "proc", 0, ""},
	}
	for _, d := range []string{"etc", "var", "opt"} {
		upper, work := filepath.Join(run, "overlay", d, "upper"), filepath.Join(run, "overlay", d, "work")
		list = append(list,
			mount{"overlay", "/" + d, "overlay", 0, "lowerdir=/" + d + ",upperdir=" + upper + ",workdir=" + work})
	}
	list = append(list,
		mount{"run", "/run", "tmpfs", 0, "mode=0755"},
		// A sysfs of this network namespace, with the machine's cgroups in it.
		mount{"/sys/fs/cgroup", "/run/cgroup", "", unix.MS_BIND | unix.MS_REC, ""},
		mount{"sysfs", "/sys", "sysfs", 0, ""},
		mount{"/run/cgroup", "/sys/fs/cgroup", "", unix.MS_BIND | unix.MS_REC, ""},
		mount{"/run/netns", "/run/netns", "", unix.MS_BIND, ""},
		mount{"", "/run/netns", "", unix.MS_SHARED, ""},
		mount{filepath.Join(run, "kubelet"), "/var/lib/kubelet", "", unix.MS_BIND, ""},
		mount{"", "/var/lib/kubelet", "", unix.MS_SHARED, ""},
	)
	for _, m := range list {
		dirs := []string{m.target}
		if m.flags&unix.MS_BIND != 0 {
			dirs = append(dirs, m.source)
		}
		for _, opt := range strings.Split(m.data, ",") {
			if key, dir, ok := strings.Cut(opt, "="); ok && strings.HasSuffix(key, "dir") {
				dirs = append(dirs, dir)
			}
		}
		for _, d := range dirs {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}
