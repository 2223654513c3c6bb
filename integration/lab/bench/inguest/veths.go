package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// veths is how many netdevs kubelet's case has: a pod with eight rails, or eight pods that start at once.
const veths = 8

func veth(i int) bare.Job {
	return bare.Job{
		Mode: "netdev", Netns: pod, Host: fmt.Sprint("veth", i), Pod: fmt.Sprint("net", i+1),
		Address: fmt.Sprintf("10.9.%d.5/24", i),
	}
}

// setUpVeths makes the network namespace of this process a host with veths. Its /run, /etc and /sys are its own.
func (n *node) setUpVeths() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"bench", "/run", "tmpfs", 0},
		{"bench", "/etc", "tmpfs", 0},
		{"sysfs", "/sys", "sysfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount on %s: %w", m.target, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(policy.DefaultPath), 0o755); err != nil {
		return fmt.Errorf("make the directory of the node policy: %w", err)
	}
	if err := os.WriteFile(policy.DefaultPath, []byte(`{"allowVirtual":true}`), 0o600); err != nil {
		return fmt.Errorf("write the node policy: %w", err)
	}
	if err := command("ip", "netns", "add", filepath.Base(pod)); err != nil {
		return err
	}
	for i := range veths {
		peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: veth(i).Host}, PeerName: fmt.Sprint("peer", i)}
		if err := netlink.LinkAdd(peer); err != nil {
			return fmt.Errorf("make %s: %w", veth(i).Host, err)
		}
		n.names = append(n.names, veth(i).Host)
		if err := command("ip", "link", "set", peer.PeerName, "up"); err != nil {
			return err
		}
	}
	return n.reset()
}
