// Package ethtool reads and changes the offloads of netdevs through the ioctl SIOCETHTOOL, in the network namespace of
// the calling thread.
package ethtool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const (
	maxWords   = 8  // of features: the kernel has two, and copies no more than there is room for
	nameBytes  = 32 // ETH_GSTRING_LEN
	ssFeatures = 4  // ETH_SS_FEATURES
)

// Headers of include/uapi/linux/ethtool.h: struct ethtool_gfeatures, whose blocks are available, requested, active and
// never_changed; struct ethtool_sfeatures, whose blocks are valid and requested; struct ethtool_gstrings.
const (
	featuresHeader = 8
	getBlock       = 16
	setBlock       = 8
	stringsHeader  = 12
)

// Features returns the offloads of the netdev with this name, nil when it has none that can be read.
func Features(name string) (*device.Features, error) {
	fd, err := socket()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, featuresHeader+maxWords*getBlock)
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_GFEATURES)
	binary.NativeEndian.PutUint32(b[4:], maxWords)
	if err := call(fd, name, b); errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the offloads of %s: %w", name, err)
	}
	f := &device.Features{}
	for i := range min(int(binary.NativeEndian.Uint32(b[4:])), maxWords) {
		at := b[featuresHeader+i*getBlock:]
		can := binary.NativeEndian.Uint32(at) &^ binary.NativeEndian.Uint32(at[12:])
		f.Can = append(f.Can, can)
		f.Wanted = append(f.Wanted, binary.NativeEndian.Uint32(at[4:])&can)
	}
	f.Names = names(fd, name, 32*len(f.Can))
	return f, nil
}

// names are those that the kernel has for the bits. Without them the bits have numbers.
func names(fd int, name string, n int) []string { return strings(fd, name, ssFeatures, n) }

// strings are the names of a set, nil without them.
func strings(fd int, name string, set uint32, n int) []string {
	b := make([]byte, stringsHeader+n*nameBytes)
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(b[4:], set)
	binary.NativeEndian.PutUint32(b[8:], uint32(n))
	if call(fd, name, b) != nil {
		return nil
	}
	out := make([]string, min(int(binary.NativeEndian.Uint32(b[8:])), n))
	for i := range out {
		s, _, _ := bytes.Cut(b[stringsHeader+i*nameBytes:][:nameBytes], []byte{0})
		out[i] = string(s)
	}
	return out
}

// SetFeatures asks for what the bits are in want. It returns the error of a feature that the driver has not set as it
// was asked to.
func SetFeatures(name string, want *device.Features, bits []int) error {
	fd, err := socket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	words := len(want.Wanted)
	b := make([]byte, featuresHeader+words*setBlock)
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_SFEATURES)
	binary.NativeEndian.PutUint32(b[4:], uint32(words)) // has to be what the kernel has
	for i := range words {
		var valid uint32
		for _, bit := range bits {
			if bit/32 == i {
				valid |= 1 << (bit % 32)
			}
		}
		binary.NativeEndian.PutUint32(b[featuresHeader+i*setBlock:], valid)
		binary.NativeEndian.PutUint32(b[featuresHeader+i*setBlock+4:], want.Wanted[i]&valid)
	}
	if err := call(fd, name, b); err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	return nil
}

// socket is one whose namespace is that of the thread.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return 0, fmt.Errorf("open socket for ethtool: %w", err)
	}
	return fd, nil
}

// ifreq is struct ifreq with a pointer (include/uapi/linux/if.h).
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func call(fd int, name string, b []byte) error {
	if len(name) >= unix.IFNAMSIZ {
		return unix.EINVAL
	}
	r := ifreq{data: unsafe.Pointer(&b[0])}
	copy(r.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}
