package main

import (
	"fmt"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
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
	if err := sandbox.Enter(); err != nil {
		return fmt.Errorf("hide the machine: %w", err)
	}
	if err := sandbox.SetPolicy(sandbox.AllowVirtual); err != nil {
		return fmt.Errorf("set the node policy: %w", err)
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
