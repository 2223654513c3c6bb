package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Store is the plugin's journal.
type Store = journal.Store

// StoreDir is where the plugin's journal is.
const StoreDir = journal.DefaultDir

// kindIPoIB is that of an attachment with an IPoIB child.
const kindIPoIB = string(journal.KindIPoIB)

// nonblock opens a fifo without a wait for its other end.
const nonblock = unix.O_NONBLOCK

// ReadLive asks the kernel and the journal. It is about the calling thread's network namespace. What it can't get is in
// Problems: a picture without it is better than none.
func ReadLive(store Store) *Live {
	l := &Live{Netdevs: map[string]LiveNetdev{}, Users: map[string][]string{}}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		l.Host, l.Kernel = unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Release[:])
	}
	if err := l.links(); err != nil {
		l.Problems = append(l.Problems, fmt.Sprintf("addresses and altnames: %v", err))
	}
	if err := l.mode(store); err != nil {
		l.Problems = append(l.Problems, fmt.Sprintf("RDMA network namespace mode: %v", err))
	}
	entries, err := store.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, journal.ErrCorrupt) { // doctor host names those
		l.Problems = append(l.Problems, fmt.Sprintf("journal: %v", err))
	}
	for _, e := range entries {
		a := attachment(e)
		a.Ports, a.Others = portsInPod(e), othersOf(e, entries)
		l.Attachments = append(l.Attachments, a)
	}
	return l
}

// othersOf are the interfaces of other ports that go with an attachment.
func othersOf(first *journal.Entry, entries []*journal.Entry) map[uint32]string {
	var out map[uint32]string
	for _, e := range entries {
		if e.ContainerID != first.ContainerID || e.Of != first.IfName || e.Netdev == nil || first.HCA == nil {
			continue
		}
		for _, p := range first.HCA.Ports {
			if int(p.Netdev) == e.Netdev.Index {
				if out == nil {
					out = map[uint32]string{}
				}
				out[p.Number] = e.Netdev.Name
			}
		}
	}
	return out
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
		if n.Kind == "" && n.ARPType == unix.ARPHRD_ETHER { // of hardware
			d.DCB = dcb(c, n.Name)
		}
		l.Netdevs[n.Name] = d
	}
	return nil
}

// dcb asks an interface for its priorities. Few drivers have them, so that not to have any is no problem.
func dcb(c *link.Conn, name string) *DCB {
	is, err := c.DCB(name)
	if err != nil || is == nil {
		return nil
	}
	out := &DCB{}
	for p := range 8 {
		if is.PFC&(1<<p) != 0 {
			out.PFC = append(out.PFC, p)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(is.DSCP)) {
		out.DSCP = append(out.DSCP, DSCPPriority{int(d), int(is.DSCP[d])})
	}
	return out
}

func (l *Live) mode(store Store) error {
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
	return l.devices(c, m, store)
}

// Users asks who uses the RDMA devices of this network namespace, in words, by the device's name, whatever the mode: in
// shared mode processes of pods are among them. Without an RDMA subsystem it is empty.
func Users() (map[string][]string, error) {
	c, err := rdma.Dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return map[string][]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := link.Dial()
	if err != nil {
		return nil, err
	}
	defer links.Close()
	list, err := c.List()
	if err != nil {
		return nil, err
	}
	reader, _, err := (&inventory.Reader{Sys: os.DirFS("/sys"), RDMA: c, Link: links}).Once(nil)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for i := range list {
		users, err := reader.Users(&list[i], "/proc")
		if err != nil {
			return nil, err
		}
		if len(users) > 0 {
			out[list[i].Name] = users
		}
	}
	return out, nil
}

// devices asks for each RDMA device whether the node policy keeps it, who uses it, and nldev which interface each port
// has. The kernel does not answer for one in another network namespace (drivers/infiniband/core/nldev.c,
// fill_port_info), while sysfs shows the name that it has there.
func (l *Live) devices(c *rdma.Conn, mode device.NetnsMode, store Store) error {
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
	reader, _, err := (&inventory.Reader{Sys: os.DirFS("/sys"), RDMA: c, Link: links}).Once(nil)
	if err != nil {
		return err
	}
	rules, err := policy.Load(policy.DefaultPath, store.Dir)
	if err == nil { // else nothing is known: doctor host names what is wrong with the policy
		l.Kept = map[string]string{}
	}
	for i := range list {
		h := &list[i]
		if asked, err := OnHost(reader, h.Name, mode); err == nil && l.Kept != nil {
			if why := rules.Move(asked); why != nil {
				Keep(l.Kept, h.Name, why)
			}
		}
		if mode == device.NetnsExclusive {
			users, err := reader.Users(h, "/proc")
			if err != nil {
				return err
			}
			if len(users) > 0 {
				l.Users[h.Name] = users
			}
		}
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
	a := Attachment{Container: e.ContainerID, IfName: e.IfName, Pod: e.Pod(), Network: e.Network, Kind: string(e.Kind),
		Netns: e.NetnsPath, DeviceKey: e.DeviceKey, Address: e.Address, PCI: e.PCI, MoveRDMA: e.MoveRDMA, HCA: e.HCA}
	if e.Netdev != nil && e.Kind == journal.KindDevice {
		a.Netdev = e.Netdev.Name
	}
	if e.Child != nil {
		a.Netdev = e.Child.Master
	}
	return a
}
