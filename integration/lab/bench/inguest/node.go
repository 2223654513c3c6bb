package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
)

// node is this guest as a host with four rails and two network cards.
type node struct {
	bin string
	nic string // a plain netdev, on virtio
	vf  string // PCI address of a virtual function; "" if the guest has no such PF
}

const (
	rails = 4
	pod   = "/run/netns/bench"
)

func rail(i int) bare.Job {
	return bare.Job{
		Mode: "ipoib", Netns: pod, Host: fmt.Sprintf("ibs%d", 108+2*i), Pod: fmt.Sprintf("net%d", i+1),
		Address: fmt.Sprintf("10.9.%d.5/24", i), Bus: fmt.Sprintf("fakeib.%d", i), HCA: fmt.Sprintf("mlx5_%d", i),
	}
}

func (n *node) setUp() error {
	for _, c := range [][]string{
		{"modprobe", "virtio_net"}, {"modprobe", "ib_ipoib"}, {"modprobe", "fakeib", fmt.Sprintf("num=%d", rails), "pci=1", "pkeys=0xffff,0x8001"},
		{"ip", "netns", "add", filepath.Base(pod)}, {"ip", "-n", filepath.Base(pod), "link", "set", "lo", "up"},
	} {
		if err := command(c[0], c[1:]...); err != nil {
			return err
		}
	}
	if err := n.makeVF(); err != nil {
		return err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); a.ParentDevBus == "virtio" {
			n.nic = a.Name
		}
	}
	if n.nic == "" {
		return errors.New("the guest has no virtio network card")
	}
	for i := range rails {
		for _, l := range links {
			if l.Attrs().ParentDev == rail(i).Bus {
				if err := netlink.LinkSetName(l, rail(i).Host); err != nil {
					return fmt.Errorf("rename %s: %w", l.Attrs().Name, err)
				}
			}
		}
	}
	return n.reset()
}

// makeVF makes a virtual function where the guest has a PF that fakeib drives: ibv0 on ibpf.
func (n *node) makeVF() error {
	pfs, err := filepath.Glob("/sys/bus/pci/drivers/fakeib/*/sriov_numvfs")
	if err != nil || len(pfs) == 0 {
		return err
	}
	if err := os.WriteFile(pfs[0], []byte("1"), 0o200); err != nil {
		return fmt.Errorf("make a VF: %w", err)
	}
	dir := filepath.Dir(pfs[0])
	for from, to := range map[string]string{dir: "ibpf", dir + "/virtfn0": vfName} {
		found, err := filepath.Glob(from + "/net/*")
		if err != nil || len(found) != 1 {
			return fmt.Errorf("netdevs of %s: %v, %w", from, found, err)
		}
		if err := command("ip", "link", "set", filepath.Base(found[0]), "name", to, "up"); err != nil {
			return err
		}
	}
	target, err := os.Readlink(dir + "/virtfn0")
	if err != nil {
		return fmt.Errorf("find the VF: %w", err)
	}
	n.vf = filepath.Base(target)
	return nil
}

const vfName = "ibv0"

// function is the job of the VF. Its HCA comes after those of the rails and of its PF.
func (n *node) function() bare.Job {
	return bare.Job{
		Mode:    "ipoib",
		Netns:   pod,
		Host:    vfName,
		Pod:     "net9",
		Address: "10.9.9.5/24",
		Bus:     n.vf,
		HCA:     fmt.Sprintf("mlx5_%d", rails+1),
	}
}

// reset sets every netdev up, as it is on a node in use: some contestants leave it down. It fails when one is missing
// or has another name.
func (n *node) reset() error {
	names := []string{n.nic}
	for i := range rails {
		names = append(names, rail(i).Host)
	}
	if n.vf != "" {
		names = append(names, vfName)
	}
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s, which should be home: %w", name, err)
		}
		if l.Attrs().RawFlags&unix.IFF_UP != 0 {
			continue
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
		time.Sleep(3 * pause)
	}
	return nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// call executes a CNI plugin as a runtime does. It returns what the plugin answered.
func (n *node) call(plugin, verb, id, ifname, conf string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(n.bin, plugin))
	cmd.Env = cniEnv(n.bin, verb, id, ifname)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s%s", plugin, verb, err, stdout.String(), stderr.String())
	}
	return []byte(stdout.String()), nil
}

func cniEnv(bin, verb, id, ifname string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + bin, "CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id,
		"CNI_NETNS=" + pod, "CNI_IFNAME=" + ifname, "CNI_ARGS=",
	}
}
