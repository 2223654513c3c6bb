package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// settled returns what the host still waits for: the carrier of IPoIB netdevs whose port is active, and the
// link-local address of netdevs with a carrier. Both come some time after a device has.
func settled() error {
	return waitsFor(func(l netlink.Link) bool {
		return l.Type() == "ipoib" && l.Attrs().ParentIndex == 0 && portActive(l.Attrs().Name)
	})
}

// waitsFor returns what this network namespace still waits for; carrier tells whether a link without one will get it.
func waitsFor(carrier func(netlink.Link) bool) error {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V6) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	local := make(map[int]bool)
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
			local[a.LinkIndex] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		if a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_SLAVE) != 0 {
			continue
		}
		if a.RawFlags&unix.IFF_LOWER_UP == 0 {
			if carrier(l) {
				return fmt.Errorf("%s has no carrier", a.Name)
			}
			continue
		}
		if wantsLinkLocal(a.Name) && !local[a.Index] {
			return fmt.Errorf("%s has no link-local address", a.Name)
		}
	}
	return nil
}

func portActive(ifname string) bool {
	states, _ := filepath.Glob("/sys/class/net/" + ifname + "/device/infiniband/*/ports/1/state")
	if len(states) != 1 {
		return false // the RDMA device is elsewhere
	}
	state, err := os.ReadFile(states[0])
	return err == nil && strings.HasPrefix(string(state), "4:")
}

func wantsLinkLocal(ifname string) bool {
	conf := "/proc/sys/net/ipv6/conf/" + ifname + "/"
	mode, err := os.ReadFile(conf + "addr_gen_mode")
	disabled, err2 := os.ReadFile(conf + "disable_ipv6")
	return err == nil && err2 == nil && string(mode) != "1\n" && string(disabled) == "0\n"
}
