// Package bpf finds and detaches the BPF programs that rtnetlink does not: those of tcx, and those that a BPF link
// holds on a netdev. It works in the network namespace of the calling thread, and loads nothing.
package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// tcx are the hooks that a program is attached to by the system call alone.
var tcx = map[device.Hook]uint32{
	device.TCXIngress: unix.BPF_TCX_INGRESS,
	device.TCXEgress:  unix.BPF_TCX_EGRESS,
}

// maxPrograms is what is asked for at a time: the kernel allows 64 on a hook (BPF_MPROG_MAX).
const maxPrograms = 64

// queryAttr is the member query of union bpf_attr (include/uapi/linux/bpf.h).
type queryAttr struct {
	ifindex, attachType, queryFlags, attachFlags uint32
	ids                                          uint64
	count, _                                     uint32
	progFlags, links, linkFlags                  uint64
	revision                                     uint64
}

// Programs returns the programs of tcx on the netdev with this ifindex. A kernel before 6.6 has none, and who may not
// ask is told of none.
func Programs(index int) ([]device.Program, error) {
	var out []device.Program
	for _, hook := range []device.Hook{device.TCXIngress, device.TCXEgress} {
		var pin runtime.Pinner
		ids, links := new([maxPrograms]uint32), new([maxPrograms]uint32)
		a := queryAttr{
			ifindex: uint32(index), attachType: tcx[hook], count: maxPrograms,
			ids: pointer(&pin, ids), links: pointer(&pin, links),
		}
		_, err := call(unix.BPF_PROG_QUERY, unsafe.Pointer(&a), unsafe.Sizeof(a))
		pin.Unpin()
		switch {
		case absent(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("list the %s programs of netdev with index %d: %w", hook, index, err)
		}
		for i := range min(a.count, maxPrograms) {
			out = append(out, device.Program{Hook: hook, ID: ids[i], Link: links[i]})
		}
	}
	return out, nil
}

// absent tells the answers of a kernel that has no programs of this kind (EINVAL before 6.6, ENOENT with none
// attached), or nothing to tell to a process without CAP_NET_ADMIN.
func absent(err error) bool {
	for _, e := range []unix.Errno{unix.EINVAL, unix.ENOENT, unix.ENOSYS, unix.EPERM, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// detachAttr is the member for BPF_PROG_ATTACH and BPF_PROG_DETACH.
type detachAttr struct {
	ifindex, fd, attachType, attachFlags uint32
	replaceFD, relativeFD                uint32
	revision                             uint64
}

// Detach takes a program off the netdev with this ifindex. One of XDP is held there by a BPF link, which is looked for:
// the others are rtnetlink's to remove.
func Detach(index int, p device.Program) error {
	if p.Hook.IsXDP() {
		return detachXDP(index, p)
	}
	if p.Link != 0 {
		return detachLink(p.Link)
	}
	fd, err := call(unix.BPF_PROG_GET_FD_BY_ID, unsafe.Pointer(&[3]uint32{p.ID}), 12)
	if err != nil {
		return fmt.Errorf("open BPF program %d: %w", p.ID, err)
	}
	defer unix.Close(fd)
	a := detachAttr{ifindex: uint32(index), fd: uint32(fd), attachType: tcx[p.Hook]}
	if _, err := call(unix.BPF_PROG_DETACH, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		return fmt.Errorf("detach %s: %w", p, err)
	}
	return nil
}

func detachLink(id uint32) error {
	fd, err := openLink(id)
	if err != nil {
		return fmt.Errorf("open BPF link %d: %w", id, err)
	}
	defer unix.Close(fd)
	if _, err := call(unix.BPF_LINK_DETACH, unsafe.Pointer(&[1]uint32{uint32(fd)}), 4); err != nil {
		return fmt.Errorf("detach BPF link %d: %w", id, err)
	}
	return nil
}

func openLink(id uint32) (int, error) {
	return call(unix.BPF_LINK_GET_FD_BY_ID, unsafe.Pointer(&[1]uint32{id}), 4)
}

// linkInfo is struct bpf_link_info as far as XDP has it (include/uapi/linux/bpf.h).
type linkInfo struct {
	typ, _, program, _, ifindex uint32
	_                           [59]uint32
}

// detachXDP looks through all BPF links of the system for the one that holds the program: the kernel does not say which
// it is. The program is on this netdev only if the link's ifindex is the netdev's: a program may be on several.
func detachXDP(index int, p device.Program) error {
	for id := uint32(0); ; {
		next := [2]uint32{id}
		if _, err := call(unix.BPF_LINK_GET_NEXT_ID, unsafe.Pointer(&next), 8); errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("detach %s: no BPF link holds it: %w", p, unix.ENOENT)
		} else if err != nil {
			return fmt.Errorf("list BPF links: %w", err)
		}
		id = next[1]
		fd, err := openLink(id)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open BPF link %d: %w", id, err)
		}
		found := holds(fd, index, p)
		unix.Close(fd)
		if found {
			return detachLink(id)
		}
	}
}

func holds(fd, index int, p device.Program) bool {
	var pin runtime.Pinner
	defer pin.Unpin()
	info := new(linkInfo)
	a := struct {
		fd, size uint32
		info     uint64
	}{uint32(fd), uint32(unsafe.Sizeof(*info)), pointer(&pin, info)}
	_, err := call(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&a), unsafe.Sizeof(a))
	return err == nil && info.typ == unix.BPF_LINK_TYPE_XDP && info.program == p.ID && info.ifindex == uint32(index)
}

// pointer is an address inside an attribute, where the garbage collector does not see it.
func pointer[T any](pin *runtime.Pinner, p *T) uint64 {
	pin.Pin(p)
	return uint64(uintptr(unsafe.Pointer(p)))
}

func call(cmd uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
