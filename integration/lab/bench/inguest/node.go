package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
)

// node is this guest as a host with four rails and two network cards, or a network namespace with veths.
type node struct {
	bin   string
	nic   string   // a plain netdev, on virtio
	vfs   []string // PCI addresses of the virtual functions; none if the guest has no such PF
	names []string // of all netdevs that are measured
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
		{"modprobe", "virtio_net"}, {"modprobe", "ib_ipoib"},
		{"modprobe", "fakeib", fmt.Sprintf("num=%d", rails), "pci=1", "pkeys=0xffff,0x8001"},
		{"ip", "netns", "add", filepath.Base(pod)}, {"ip", "-n", filepath.Base(pod), "link", "set", "lo", "up"},
	} {
		if err := command(c[0], c[1:]...); err != nil {
			return err
		}
	}
	if err := n.makeVFs(); err != nil {
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
	n.names = append(n.names, n.nic)
	for i := range rails {
		n.names = append(n.names, rail(i).Host)
	}
	for i := range n.vfs {
		n.names = append(n.names, fmt.Sprint(vfName, i))
	}
	return n.reset()
}

// makeVFs makes all virtual functions of the PF that fakeib drives, if the guest has one: ibv0 and on, of ibpf.
func (n *node) makeVFs() error {
	pfs, err := filepath.Glob("/sys/bus/pci/drivers/fakeib/*/sriov_totalvfs")
	if err != nil || len(pfs) == 0 {
		return err
	}
	dir := filepath.Dir(pfs[0])
	total, err := os.ReadFile(pfs[0])
	if err != nil {
		return fmt.Errorf("find the number of VFs: %w", err)
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(total)))
	if err != nil {
		return fmt.Errorf("number of VFs: %w", err)
	}
	if err := os.WriteFile(dir+"/sriov_numvfs", []byte(strconv.Itoa(count)), 0o200); err != nil {
		return fmt.Errorf("make VFs: %w", err)
	}
	if err := rename(dir, pfName); err != nil {
		return err
	}
	for i := range count {
		link := fmt.Sprintf("%s/virtfn%d", dir, i)
		if err := rename(link, fmt.Sprint(vfName, i)); err != nil {
			return err
		}
		target, err := os.Readlink(link)
		if err != nil {
			return fmt.Errorf("find VF %d: %w", i, err)
		}
		n.vfs = append(n.vfs, filepath.Base(target))
	}
	return nil
}

// rename names the netdev of a PCI function, and sets it up.
func rename(function, name string) error {
	found, err := filepath.Glob(function + "/net/*")
	if err != nil || len(found) != 1 {
		return fmt.Errorf("netdevs of %s: %v, %w", function, found, err)
	}
	return command("ip", "link", "set", filepath.Base(found[0]), "name", name, "up")
}

const (
	pfName = "ibpf"
	vfName = "ibv" // and a number
)

// vf is the job of a VF. HCAs of VFs come after those of the rails and of the PF.
func (n *node) vf(i int) bare.Job {
	j := bare.Job{
		Mode:    "ipoib",
		Netns:   pod,
		Host:    fmt.Sprint(vfName, i),
		Pod:     fmt.Sprint("vf", i),
		Address: fmt.Sprintf("10.10.%d.5/24", i),
		HCA:     fmt.Sprintf("mlx5_%d", rails+1+i),
	}
	if i < len(n.vfs) { // groups of VFs are measured only in the guest that has some
		j.Bus = n.vfs[i]
	}
	return j
}

// reset sets every netdev up, as it is on a node in use: some contestants leave it down. It fails when one is missing
// or has another name.
func (n *node) reset() error {
	for _, name := range n.names {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s, which should be on the host: %w", name, err)
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
	cmd.Env = append(cniEnv(n.bin, verb, id, ifname), "FABRIC_FAILPOINT_TIMES="+times) // heeded by fabric-steps only
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
