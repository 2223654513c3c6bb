package inventory

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/bpf"
	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Kept adds what a netdev has beside addresses and routes. What rtnetlink reports of the netdev itself, link.Conn has
// read already.
func (r *Reader) Kept(n *device.Netdev) error {
	for range 10 {
		err := r.in(func() error { return r.readKept(n) })
		now, gone := r.Link.ByIndex(n.Index)
		if gone != nil {
			return fmt.Errorf("snapshot %s: %w", n.Name, gone)
		}
		if now.Name == n.Name {
			return err
		}
		n.Name = now.Name // renamed meanwhile: some of this may have been another netdev's
	}
	return fmt.Errorf("snapshot %s: it is renamed all the time", n.Name)
}

func (r *Reader) readKept(n *device.Netdev) error {
	k := &n.Kept
	programs, err := r.programs(n)
	if err != nil {
		return err
	}
	k.Programs = programs
	if k.Features, err = ethtool.Features(n.Name); err != nil {
		return err
	}
	if r.Sys != nil {
		k.Queues = r.queues(n.Name)
	}
	if k.Sysctls, err = r.Link.NeighbourConf(n.Index); err != nil {
		return err
	}
	if n.NeedsStableSecret() && !OfAll(n.Name) {
		if b, err := os.ReadFile(SysctlFile(device.StableSecret, n.Name)); err == nil { // EIO: not set
			k.Sysctls[device.StableSecret] = strings.TrimSpace(string(b))
		}
	}
	if k.Qdiscs, err = r.Link.Qdiscs(n.Index); err != nil {
		return err
	}
	if !n.Up() {
		return nil // there can't be any
	}
	if k.Neighbours, err = r.Link.Neighbours(n.Index); err != nil {
		return err
	}
	k.Nexthops, err = r.Link.Nexthops(n.Index)
	return err
}

// Programs completes the BPF programs on a netdev: those of XDP are known already.
func (r *Reader) Programs(n *device.Netdev) error {
	return r.in(func() (err error) {
		n.Kept.Programs, err = r.programs(n)
		return err
	})
}

func (r *Reader) programs(n *device.Netdev) ([]device.Program, error) {
	tcx, err := bpf.Programs(n.Index)
	if err != nil {
		return nil, err
	}
	var out []device.Program
	for _, p := range n.Kept.Programs {
		if p.Hook.IsXDP() {
			out = append(out, p)
		}
	}
	return append(out, tcx...), nil
}

// in runs f in the namespace of the reader.
func (r *Reader) in(f func() error) error {
	if r.NS == nil {
		return f()
	}
	return r.NS.Do(f)
}

// napi are the files of a netdev, and of each of its queues by the first letter of its directory, on which every packet
// depends (Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-queues).
var (
	napi  = []string{"gro_flush_timeout", "napi_defer_hard_irqs", "threaded"}
	queue = map[byte][]string{'r': {"rps_cpus", "rps_flow_cnt"}, 't': {"xps_cpus"}}
)

// maxQueues bounds what is read for a netdev: an HCA has as many queues of either kind as the node has CPUs, up to 63.
const maxQueues = 256

// queues reads the settings of NAPI and of the queues, nil where sysfs does not show the netdev. A file that is not in
// the result is 0 or can't be read: with a single queue there are none of xps_cpus (net/core/net-sysfs.c).
func (r *Reader) queues(name string) map[string]string {
	dir := path.Join("class/net", name)
	entries, err := fs.ReadDir(r.Sys, path.Join(dir, "queues"))
	if err != nil || len(entries) > maxQueues {
		return nil
	}
	out := map[string]string{}
	read := func(file string) {
		b, err := fs.ReadFile(r.Sys, path.Join(dir, file))
		if s := strings.TrimSpace(string(b)); err == nil && strings.Trim(s, "0,") != "" {
			out[file] = s
		}
	}
	for _, f := range napi {
		read(f)
	}
	for _, e := range entries {
		for _, f := range queue[e.Name()[0]] {
			read(path.Join("queues", e.Name(), f))
		}
	}
	return out
}

// OfAll says whether the sysctls under a name are those of all interfaces, or of those to come. The kernel lets a pod
// give its interface such a name while that has no IPv6 settings (net/ipv4/devinet.c,
// sysctl_dev_name_is_allowed).
func OfAll(name string) bool { return name == "all" || name == "default" }

// SysctlFile is the file that a sysctl in device.Kept stands for.
func SysctlFile(sysctl, name string) string {
	return path.Join("/proc/sys/net", strings.Replace(sysctl, "%", name, 1))
}
