package prepared

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// InterfaceName is what a claim calls the interfaces of its devices in the pod: the name of one, or one that ends with
// %d, as the kernel has it (dev_alloc_name, net/core/dev.c): each gets the lowest number that is free. Empty: net1 and
// so on, as Multus counts.
type InterfaceName string

// number stands for a number at the end of a name.
const number = "%d"

// Numbered reports whether the name is for several interfaces.
func (n InterfaceName) Numbered() bool { return n == "" || strings.HasSuffix(string(n), number) }

// Check returns an error unless interfaces can be named so.
func (n InterfaceName) Check() error {
	one := string(n)
	if n != "" && n.Numbered() {
		one = n.at(0)
	}
	if n == "" || netconf.IsPodInterface(one) {
		return nil
	}
	return fmt.Errorf("%.40q: want %s; for several devices a name that ends with %%d", string(n),
		netconf.PodInterfaceNames)
}

// Fits reports whether an interface of this name may be the device's.
func (n InterfaceName) Fits(ifName string) bool {
	if !n.Numbered() {
		return string(n) == ifName
	}
	digits, ok := strings.CutPrefix(ifName, strings.TrimSuffix(string(n), number))
	if n == "" {
		return true
	}
	i, err := strconv.ParseUint(digits, 10, 31)
	return ok && err == nil && strconv.FormatUint(i, 10) == digits
}

// Next is the name of the device's interface where those that taken reports are not free.
func (n InterfaceName) Next(taken func(ifName string) bool) string {
	if !n.Numbered() {
		return string(n)
	}
	i := 0
	if n == "" {
		n, i = "net"+number, 1
	}
	for taken(n.at(i)) {
		i++
	}
	return n.at(i)
}

func (n InterfaceName) at(i int) string {
	return strings.TrimSuffix(string(n), number) + strconv.Itoa(i)
}
