package walk

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dropAll attaches a program to an interface of the calling thread's network namespace that drops every packet: "r0 =
// XDP_DROP; exit", in the kernel's generic mode, which every driver has.
func dropAll(ifname string) error {
	program := [...]uint64{0x1_0000_00b7, 0x95} // bpf(2): an instruction is code, registers, offset and immediate
	license := []byte("GPL\x00")
	attr := struct {
		kind, count   uint32
		insns, permit uint64
		rest          [112]byte
	}{
		kind: unix.BPF_PROG_TYPE_XDP, count: uint32(len(program)),
		insns:  uint64(uintptr(unsafe.Pointer(&program[0]))),
		permit: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&program)
	runtime.KeepAlive(license)
	if errno != 0 {
		return fmt.Errorf("load an XDP program: %w", errno)
	}
	defer unix.Close(int(fd))
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return err
	}
	const generic = 1 << 1 // XDP_FLAGS_SKB_MODE
	return netlink.LinkSetXdpFdWithFlags(l, int(fd), generic)
}
