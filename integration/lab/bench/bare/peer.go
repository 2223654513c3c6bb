package bare

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Peer makes the kernel calls of ib-sriov-cni (Mode ipoib) or of ipoib-cni (Mode child) for a job: one request for each
// setting, in their order. It is a stand-in for those plugins where they can't be built, and does nothing else of what
// they do: it parses no configuration and prints no result.
type Peer struct {
	Job
	PF    string       // netdev of the VF's PF; empty: no GUID is set
	VF    int          // index on the PF
	State string       // file that keeps what DEL has to know
	Lock  string       // file whose lock serializes calls, as ib-sriov-cni's does; empty: none
	IPAM  func() error `json:"-"` // calls the IPAM plugin
}

// guid begins what a pod asks for; the VF's index ends it.
var guid = net.HardwareAddr{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66}

// rebindWait bounds the wait for the netdev of a function whose driver was bound again.
const rebindWait = 30 * time.Second

// Add puts the device into the pod.
func (p Peer) Add() error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	host, pod, err := p.spaces()
	if err != nil {
		return err
	}
	defer host.Close()
	defer pod.Close()
	var index int
	if p.Mode == "child" {
		index, err = p.makeChild(host, pod)
	} else {
		index, err = p.moveVF(host, pod)
	}
	if err != nil {
		return err
	}
	if err := p.IPAM(); err != nil {
		return err
	}
	return pod.Address(index, p.Address)
}

// Del brings the device home, or removes the child.
func (p Peer) Del() error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.IPAM(); err != nil {
		return err
	}
	host, pod, err := p.spaces()
	if err != nil {
		return err
	}
	defer host.Close()
	defer pod.Close()
	if p.Mode == "child" {
		index, err := pod.Named(p.Pod)
		if err != nil {
			return err
		}
		return pod.Delete(index)
	}
	return p.returnVF(host, pod)
}

func (p Peer) lock() (unlock func(), err error) {
	if p.Lock == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(p.Lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return func() { f.Close() }, unix.Flock(int(f.Fd()), unix.LOCK_EX)
}

// makeChild creates the child on the host, as ipoib-cni does, and moves it.
func (p Peer) makeChild(host, pod *Space) (int, error) {
	parent, err := host.Named(p.Host)
	if err != nil {
		return 0, err
	}
	name := "peer" + p.Pod
	if err := host.child(parent, nil, name, pkey); err != nil {
		return 0, err
	}
	index, err := host.Named(name)
	if err != nil {
		return 0, err
	}
	l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	if err := host.nl.LinkSetNsFd(l, int(pod.fd)); err != nil {
		return 0, fmt.Errorf("move child: %w", err)
	}
	if index, err = pod.Named(name); err != nil {
		return 0, err
	}
	return index, pod.rename(index, p.Pod)
}

// rename sets a link down, names it, and sets it up, one request each.
func (s *Space) rename(index int, name string) error {
	l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	for what, f := range []func() error{
		func() error { return s.nl.LinkSetDown(l) },
		func() error { return s.nl.LinkSetName(l, name) },
		func() error { return s.nl.LinkSetUp(l) },
	} {
		if err := f(); err != nil {
			return fmt.Errorf("rename link %d to %s, request %d: %w", index, name, what+1, err)
		}
	}
	return nil
}

// moveVF sets the GUID, which takes effect when the driver is bound again, then moves the RDMA device and the netdev.
func (p Peer) moveVF(host, pod *Space) (int, error) {
	var was state
	if p.PF != "" {
		l, err := host.nl.LinkByName(p.Host)
		if err != nil {
			return 0, fmt.Errorf("find %s: %w", p.Host, err)
		}
		addr := l.Attrs().HardwareAddr
		was.GUID = addr[max(0, len(addr)-8):]
		if err := p.setGUID(host, append(slices.Clone(guid), byte(p.VF))); err != nil {
			return 0, err
		}
	}
	var err error
	if was.HCA, err = p.hca(); err != nil {
		return 0, err
	}
	if err := p.save(was); err != nil {
		return 0, err
	}
	if err := host.MoveRDMA(was.HCA, pod); err != nil {
		return 0, err
	}
	index, err := host.OnBus(p.Bus)
	if err != nil {
		return 0, err
	}
	l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	temporary := fmt.Sprintf("%s_%d", p.Host, index)
	for what, f := range []func() error{
		func() error { return host.nl.LinkSetDown(l) },
		func() error { return host.nl.LinkSetName(l, temporary) },
		func() error { return host.nl.LinkSetNsFd(l, int(pod.fd)) },
	} {
		if err := f(); err != nil {
			return 0, fmt.Errorf("move netdev, request %d: %w", what+1, err)
		}
	}
	if index, err = pod.Named(temporary); err != nil {
		return 0, err
	}
	return index, pod.rename(index, p.Pod)
}

func (p Peer) returnVF(host, pod *Space) error {
	was, err := p.load()
	if err != nil {
		return err
	}
	if err := pod.In(host, func() error { return pod.MoveRDMA(was.HCA, host) }); err != nil {
		return err
	}
	if p.PF != "" {
		if err := p.setGUID(host, was.GUID); err != nil {
			return err
		}
	}
	index, err := host.OnBus(p.Bus)
	if err != nil {
		return err
	}
	return host.rename(index, p.Host)
}

// hca is the name of the RDMA device, which is on the host.
func (p Peer) hca() (string, error) {
	found, err := filepath.Glob("/sys/bus/pci/devices/" + p.Bus + "/infiniband/*")
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("RDMA devices of %s: %q, %w", p.Bus, found, err)
	}
	return filepath.Base(found[0]), nil
}

// state is what DEL has to know.
type state struct {
	HCA  string
	GUID net.HardwareAddr
}

func (p Peer) save(s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(p.State, b, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

func (p Peer) load() (s state, err error) {
	b, err := os.ReadFile(p.State)
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	return s, json.Unmarshal(b, &s)
}

// setGUID sets node and port GUID of the VF, which take effect when its driver is bound again.
func (p Peer) setGUID(host *Space, to net.HardwareAddr) error {
	pf, err := host.nl.LinkByName(p.PF)
	if err != nil {
		return fmt.Errorf("find PF: %w", err)
	}
	if err := netlink.LinkSetVfNodeGUID(pf, p.VF, to); err != nil {
		return fmt.Errorf("set node GUID: %w", err)
	}
	if err := netlink.LinkSetVfPortGUID(pf, p.VF, to); err != nil {
		return fmt.Errorf("set port GUID: %w", err)
	}
	driver, err := filepath.EvalSymlinks("/sys/bus/pci/devices/" + p.Bus + "/driver")
	if err != nil {
		return fmt.Errorf("find driver: %w", err)
	}
	for _, file := range []string{"unbind", "bind"} {
		if err := os.WriteFile(filepath.Join(driver, file), []byte(p.Bus), 0o200); err != nil {
			return fmt.Errorf("%s driver: %w", file, err)
		}
	}
	for end := time.Now().Add(rebindWait); ; time.Sleep(time.Millisecond) {
		if _, err = host.OnBus(p.Bus); err == nil || time.Now().After(end) {
			return err
		}
	}
}
