// Package program puts BPF programs on netdevs for tests, in the network namespace of the calling thread: as a pod may,
// with the system call alone.
package program

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind is how a program is put on a netdev.
type Kind string

// The kinds. A link holds its program there: rtnetlink can't remove it.
const (
	XDP        Kind = "xdp"
	XDPLink    Kind = "xdp link"
	TCXIngress Kind = "tcx ingress"
	TCXEgress  Kind = "tcx egress"
	TCXLink    Kind = "tcx link"
)

// All are all kinds; before 6.6 there is no tcx.
var All = []Kind{XDP, XDPLink, TCXIngress, TCXEgress, TCXLink}

// IsTCX says whether it is one of tcx.
func (k Kind) IsTCX() bool { return k != XDP && k != XDPLink }

// Attach puts a program that drops everything on the netdev with this ifindex. What it opens stays open until the test
// ends, as in a pod that lives.
func Attach(t testing.TB, k Kind, index int) error {
	t.Helper()
	typ := uint32(unix.BPF_PROG_TYPE_SCHED_CLS)
	if !k.IsTCX() {
		typ = unix.BPF_PROG_TYPE_XDP
	}
	fd, err := load(typ)
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	hook := uint32(unix.BPF_TCX_INGRESS)
	switch k {
	case XDP:
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, fd, unix.XDP_FLAGS_SKB_MODE)
	case XDPLink, TCXLink:
		a := struct{ prog, target, hook, flags uint32 }{uint32(fd), uint32(index), hook, 0}
		if k == XDPLink {
			const xdp = 37 // BPF_XDP
			a.hook, a.flags = xdp, unix.XDP_FLAGS_SKB_MODE
		}
		link, err := call(unix.BPF_LINK_CREATE, unsafe.Pointer(&a), unsafe.Sizeof(a))
		if err != nil {
			return fmt.Errorf("create link: %w", err)
		}
		t.Cleanup(func() { unix.Close(link) })
		return nil
	case TCXEgress:
		hook = unix.BPF_TCX_EGRESS
	}
	a := struct{ target, prog, hook, flags uint32 }{uint32(index), uint32(fd), hook, 0}
	if _, err := call(unix.BPF_PROG_ATTACH, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		return fmt.Errorf("attach program: %w", err)
	}
	return nil
}

// load loads a program of two instructions, which returns what means "drop" to either type: XDP_DROP is 1, TC_ACT_SHOT
// 2.
func load(typ uint32) (int, error) {
	drop := byte(1)
	if typ == unix.BPF_PROG_TYPE_SCHED_CLS {
		drop = 2
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	insns := &[16]byte{0xb7, 0, 0, 0, drop, 0, 0, 0, 0x95} // r0 = drop; exit
	license := &[4]byte{'G', 'P', 'L'}
	pin.Pin(insns)
	pin.Pin(license)
	a := struct {
		typ, count     uint32
		insns, license uint64
		_              [12]uint64
	}{typ: typ, count: 2, insns: address(insns), license: address(license)}
	return call(unix.BPF_PROG_LOAD, unsafe.Pointer(&a), unsafe.Sizeof(a))
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func call(cmd uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
