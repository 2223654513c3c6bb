package link

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Events hears what rtnetlink announces in one network namespace: each change of a netdev, address, route, nexthop
// object or rule. IPv4 routes that end with their netdev, address or nexthop object are not announced, but those are.
type Events struct{ fd int }

// Listen begins to hear them in the calling thread's namespace.
func Listen() (*Events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	for _, g := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP,
	} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen to changes of the network: %w", err)
	}
	return &Events{fd}, nil
}

// Close ends it.
func (e *Events) Close() error { return unix.Close(e.fd) }

// Quiet says whether nothing has been announced since Listen, or since the last call. What the socket could not hold
// (ENOBUFS) has been announced, too.
func (e *Events) Quiet() bool {
	b := make([]byte, 1) // the rest of a message is of no interest
	for quiet := true; ; quiet = false {
		_, _, err := unix.Recvfrom(e.fd, b, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return quiet
		case err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR):
			return false
		}
	}
}
