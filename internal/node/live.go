package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// LiveFile is where a recorded tree has what sysfs does not tell.
const LiveFile = "live.json"

// Live is what sysfs does not tell.
type Live struct {
	Host     string                `json:"host"`
	Kernel   string                `json:"kernel,omitempty"`
	RDMAMode string                `json:"rdmaMode,omitempty"`
	Netdevs  map[string]LiveNetdev `json:"netdevs,omitempty"`
	// RDMANetdevs are the interfaces of RDMA ports (mlx5_0:1) as nldev tells them, which knows those of this network
	// namespace only: a port without one, and every InfiniBand port, is there with "". nil: not asked.
	RDMANetdevs map[string]string `json:"rdmaNetdevs,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
	Problems    []string          `json:"problems,omitempty"`
}

// LiveNetdev is what rtnetlink adds to an interface.
type LiveNetdev struct {
	AltNames []string       `json:"altNames,omitempty"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"`
	Default  bool           `json:"default,omitempty"` // has a default route in table main
}

// Attachment is a device that is in a pod now, as the journal has it.
type Attachment struct {
	Container string         `json:"container"`
	IfName    string         `json:"ifName"`
	Pod       string         `json:"pod,omitempty"` // namespace/name, if the runtime told
	Network   string         `json:"network"`
	Kind      journal.Kind   `json:"kind"`
	Netns     string         `json:"netns"`
	Claim     string         `json:"claim,omitempty"`
	Address   device.Address `json:"address,omitzero"`
	PCI       string         `json:"pci,omitempty"`
	MoveRDMA  bool           `json:"moveRDMA,omitempty"`
	HCA       *device.HCA    `json:"hca,omitempty"`    // as it was on the host
	Netdev    string         `json:"netdev,omitempty"` // its name on the host
	Ports     []Port         `json:"ports,omitempty"`  // as they are now in the pod, if it could be asked
}

// Owner is who has the device, in words.
func (a *Attachment) Owner() string { return cmp.Or(a.Pod, "container "+a.Container) }

// ReadLive asks the kernel and the journal. It is about the calling thread's network namespace. What it can't get is in
// Problems: a picture without it is better than none.
func ReadLive(store journal.Store) *Live {
	l := &Live{Netdevs: map[string]LiveNetdev{}}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		l.Host, l.Kernel = unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Release[:])
	}
	if err := l.links(); err != nil {
		l.Problems = append(l.Problems, fmt.Sprintf("addresses and altnames: %v", err))
	}
	if err := l.mode(); err != nil {
		l.Problems = append(l.Problems, fmt.Sprintf("RDMA network namespace mode: %v", err))
	}
	entries, err := store.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Problems = append(l.Problems, fmt.Sprintf("journal: %v", err))
	}
	for _, e := range entries {
		a := attachment(e)
		a.Ports = portsInPod(e)
		l.Attachments = append(l.Attachments, a)
	}
	return l
}

// portsInPod reads the ports of an RDMA device that has moved where it is now: the journal knows only what they were
// like, and not their rate. A pod that is gone, or another one at its path, has nothing to tell.
func portsInPod(e *journal.Entry) (ports []Port) {
	if !e.MoveRDMA || e.HCA == nil {
		return nil
	}
	ns, err := e.OpenNetns()
	if err != nil {
		return nil
	}
	defer ns.Close()
	_ = ns.DoWithSys(func(sys fs.FS) error { // without the right to mount a sysfs the journal has to do
		var problems []string
		t := tree{sys, &problems}
		if dir := t.real("class/infiniband/" + cmp.Or(e.RDMAName, e.HCA.Name)); dir != "" {
			ports = t.hca(e.HCA.Name, dir).Ports
		}
		return nil
	})
	return ports
}

func (l *Live) links() error {
	c, err := link.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.List("")
	if err != nil {
		return err
	}
	for _, n := range list {
		d := LiveNetdev{AltNames: n.AltNames}
		addrs, err := c.Addrs(n.Index)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			d.Addrs = append(d.Addrs, a.Prefix)
		}
		routes, err := c.Routes(n.Index)
		if err != nil {
			return err
		}
		for _, r := range routes {
			d.Default = d.Default || r.Dst.Bits() == 0 && (r.Table == 0 || r.Table == unix.RT_TABLE_MAIN)
		}
		l.Netdevs[n.Name] = d
	}
	return nil
}

func (l *Live) mode() error {
	c, err := rdma.Dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := c.NetnsMode()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil
	}
	if err != nil {
		return err
	}
	l.RDMAMode = m.String()
	return l.rdmaNetdevs(c)
}

// rdmaNetdevs asks nldev which interface each port has. The kernel does not answer for one in another network namespace
// (drivers/infiniband/core/nldev.c, fill_port_info), while sysfs shows the name that it has there.
func (l *Live) rdmaNetdevs(c *rdma.Conn) error {
	links, err := link.Dial()
	if err != nil {
		return err
	}
	defer links.Close()
	list, err := c.List()
	if err != nil {
		return err
	}
	found := map[string]string{}
	for i := range list {
		h := &list[i]
		if err := c.Ports(h); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has left meanwhile
			}
			return err
		}
		for _, p := range h.Ports {
			name := ""
			if p.Netdev != 0 {
				n, err := links.ByIndex(int(p.Netdev))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				if err == nil {
					name = n.Name
				}
			}
			found[portName(h.Name, p.Number)] = name
		}
	}
	l.RDMANetdevs = found
	return nil
}

func attachment(e *journal.Entry) Attachment {
	a := Attachment{Container: e.ContainerID, IfName: e.IfName, Pod: e.Pod(), Network: e.Network, Kind: e.Kind,
		Netns: e.NetnsPath, Claim: e.Claim, Address: e.Address, PCI: e.PCI, MoveRDMA: e.MoveRDMA, HCA: e.HCA}
	if e.Netdev != nil && e.Kind == journal.KindDevice {
		a.Netdev = e.Netdev.Name
	}
	if e.Child != nil {
		a.Netdev = e.Child.Master
	}
	return a
}

// Open reads a recorded tree, or the running machine if root is the root directory and has no LiveFile.
func Open(root fs.FS, store journal.Store) (*Node, error) {
	live, err := live(root, store)
	if err != nil {
		return nil, err
	}
	return Read(root, live)
}

func live(root fs.FS, store journal.Store) (*Live, error) {
	b, err := fs.ReadFile(root, LiveFile)
	switch {
	case err == nil:
		l := &Live{}
		if err := json.Unmarshal(b, l); err != nil {
			return nil, fmt.Errorf("read %s of the recorded tree: %w", LiveFile, err)
		}
		return l, nil
	case root == os.DirFS("/"):
		return ReadLive(store), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read %s of the recorded tree: %w", LiveFile, err)
	}
	l := &Live{
		Host:     "recorded",
		Problems: []string{"no " + LiveFile + ": addresses, altnames and RDMA mode are unknown"},
	}
	if b, err := fs.ReadFile(root, "etc/hostname"); err == nil {
		l.Host = strings.TrimSpace(string(b))
	}
	return l, nil
}

// away adds the RDMA devices that are in pods, which sysfs on the host does not show in exclusive mode, and tells of
// those it shows who uses them.
func (n *Node) away(t tree, live *Live) {
	for i := range live.Attachments {
		a := &live.Attachments[i]
		if a.Kind == journal.KindIPoIB {
			continue // the device itself is on the host
		}
		if h := n.at(a); h != nil {
			h.InPod, h.Netns = a.Owner(), a.Netns
			continue
		}
		if a.HCA == nil {
			continue
		}
		h := HCA{
			Name:     a.HCA.Name,
			Kind:     "PF",
			NUMA:     -1,
			NodeGUID: a.HCA.NodeGUID,
			Address:  a.Address,
			PCI:      a.PCI,
			InPod:    a.Owner(),
			Netns:    a.Netns,
		}
		if !a.Address.IsZero() {
			t.hardware(&h, t.real("sys/bus/"+a.Address.Bus+"/devices/"+a.Address.Name))
		}
		for _, p := range a.Ports {
			p.Netdev = a.Netdev // by which the host knows it
			h.Ports = append(h.Ports, p)
		}
		for _, p := range a.HCA.Ports {
			if len(a.Ports) > 0 {
				break
			}
			h.Ports = append(
				h.Ports,
				Port{Number: p.Number, LinkLayer: p.LinkLayer, State: p.State.String(), Phys: p.Phys.String(),
					LID: p.LID, SMLID: p.SMLID, Netdev: a.Netdev},
			)
		}
		n.HCAs = append(n.HCAs, h)
	}
}

func (n *Node) at(a *Attachment) *HCA {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		if !a.Address.IsZero() && h.Address == a.Address ||
			a.HCA != nil && h.Name == a.HCA.Name && h.NodeGUID == a.HCA.NodeGUID {
			return h
		}
	}
	return nil
}
