package device

import (
	"cmp"
	"fmt"
	"strings"
)

// Address is where a device sits: the name of its bus and its name on that bus, as under /sys/bus/<Bus>/devices/<Name>.
// It survives every rename, namespace move and driver rebind.
type Address struct {
	Bus  string `json:"bus,omitempty"`  // "pci", "auxiliary", "virtio", "platform"
	Name string `json:"name,omitempty"` // "0000:3b:00.2", "mlx5_core.sf.4", "virtio3"
}

// IsZero says that there is no bus address, as for a veth or a dummy.
func (a Address) IsZero() bool { return a == Address{} }

// String is "bus/name", the form used in messages and in the journal's file names (with the slash replaced).
func (a Address) String() string {
	if a.IsZero() {
		return ""
	}
	return a.Bus + "/" + a.Name
}

// ID is what kubelet, Multus and a FabricNode know the device by: the PCI address, or bus/name on another bus.
func (a Address) ID() string {
	if pci := a.PCI(); pci != "" {
		return pci
	}
	return a.String()
}

// PCI is the PCI address; empty on another bus.
func (a Address) PCI() string {
	if a.Bus == busPCI {
		return a.Name
	}
	return ""
}

const busPCI = "pci"

// OnPCI is the address of a PCI function; zero for an empty name.
func OnPCI(name string) Address {
	if name == "" {
		return Address{}
	}
	return Address{busPCI, name}
}

// Compare orders addresses on one bus by their numbers: mlx5_core.sf.9 comes before mlx5_core.sf.10. PCI functions come
// first.
func (a Address) Compare(b Address) int {
	switch {
	case a.Bus == busPCI && b.Bus == busPCI:
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	case a.Bus == busPCI:
		return -1
	case b.Bus == busPCI:
		return 1
	}
	head := func(s string) string { return strings.TrimRight(s, "0123456789") }
	x, y := head(a.Name), head(b.Name)
	m, n := strings.TrimLeft(a.Name[len(x):], "0"), strings.TrimLeft(b.Name[len(y):], "0")
	return cmp.Or(cmp.Compare(a.Bus, b.Bus), cmp.Compare(x, y), cmp.Compare(len(m), len(n)), cmp.Compare(m, n),
		cmp.Compare(a.Name, b.Name))
}

// Location is where a device is on its node.
type Location struct {
	Address Address
	PCI     string // the PCI function that it is or sits on; empty: none
}

// LocationOnPCI is that of a PCI function; zero for an empty name.
func LocationOnPCI(name string) Location { return Location{OnPCI(name), name} }

// ID is that of the address.
func (l Location) ID() string { return l.Address.ID() }

// Compare is the order of rails: that of the PCI functions, which nodes of one make share whatever the devices are
// called. A function comes before the subfunctions on it, and these are in the order of their numbers. What is on no
// function comes last.
func (l Location) Compare(m Location) int {
	slot := func(l Location) Address { return cmp.Or(OnPCI(l.PCI), l.Address) }
	return cmp.Or(slot(l).Compare(slot(m)), l.Address.Compare(m.Address))
}

// Virtual is the bus of netdevs that are on none, such as a veth.
const Virtual = "netdev"

// KeyOf is the name of a device in the locks and claims: its bus address, or netdev/NAME without one. It is empty for
// no device.
func KeyOf(a Address, n *Netdev) string {
	if a.IsZero() && n != nil && n.Name != "" {
		return Virtual + "/" + n.Name
	}
	return a.String()
}

// maxAddress bounds an address in bytes, so that it always fits into a file name (NAME_MAX is 255).
const maxAddress = 128

// ParseAddress reads a PCI address (0000:3b:00.2, or 3b:00.2 in domain 0), an auxiliary device (mlx5_core.sf.4), or
// any device as bus/name (virtio/virtio0). What String returns is read back as the same Address.
func ParseAddress(s string) (Address, error) {
	bus, name, slash := strings.Cut(s, "/")
	switch pci, isPCI := pciAddress(s); {
	case len(s) > maxAddress:
	case slash && bus == "pci":
		if pci, isPCI = pciAddress(name); isPCI {
			return Address{"pci", pci}, nil
		}
	case slash && allOf(bus, isWord) && isAlnum(first(name)) && allOf(name, isDeviceName):
		return Address{bus, name}, nil
	case isPCI:
		return Address{"pci", pci}, nil
	case isAuxiliary(s):
		return Address{"auxiliary", s}, nil
	}
	if len(s) > maxAddress {
		s = s[:maxAddress] + "..."
	}
	return Address{}, fmt.Errorf(
		"device address %q: want a PCI address (0000:3b:00.2), an auxiliary device (mlx5_core.sf.4) or bus/name",
		s,
	)
}

// The matchers below are written by hand: compiled regular expressions at package level would cost every exec of the
// plugin their compilation, whether it needs them or not.

// pciAddress returns s as sysfs spells it: [domain:]bus:slot.function in lower case, the domain of 4 to 8 digits.
func pciAddress(s string) (string, bool) {
	switch strings.Count(s, ":") {
	case 1:
		s = "0000:" + s
	case 2:
	default:
		return "", false
	}
	domain, rest, _ := strings.Cut(s, ":")
	if len(domain) < 4 || len(domain) > 8 || !allOf(domain, isHex) || len(rest) != len("3b:00.2") {
		return "", false
	}
	bus, slot, function := rest[:2], rest[3:5], rest[6]
	if rest[2] != ':' || rest[5] != '.' || !allOf(bus, isHex) || !allOf(slot, isHex) {
		return "", false
	}
	if slot[0] > '1' || function < '0' || function > '7' { // a bus has 32 slots of 8 functions
		return "", false
	}
	return strings.ToLower(s), true
}

// isAuxiliary recognises module.name.id, as drivers/base/auxiliary.c composes it.
func isAuxiliary(s string) bool {
	module, rest, _ := strings.Cut(s, ".")
	name, id, _ := strings.Cut(rest, ".")
	return allOf(module, isWord) && allOf(name, isWord) && allOf(id, isDigit)
}

// allOf says that s has bytes and that each of them is in the class.
func allOf(s string, class func(byte) bool) bool {
	for i := range len(s) {
		if !class(s[i]) {
			return false
		}
	}
	return s != ""
}

func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isWord(c byte) bool { return isAlnum(c) || c == '_' || c == '-' }

func isDeviceName(c byte) bool { return isWord(c) || c == ':' || c == '.' || c == '@' }
