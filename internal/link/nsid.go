package link

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// NSID returns the number by which the namespace of this Conn calls another one, as in IFLA_LINK_NETNSID: fd is open on
// that. It returns -1 when it has none for it: then nothing here is made on anything there.
func (c *Conn) NSID(fd int) (int, error) {
	const sizeofRtgenmsg = 4 // struct rtgenmsg, padded (include/uapi/linux/rtnetlink.h)
	b, err := c.nl.Get(unix.RTM_GETNSID,
		nlmsg.Body(make([]byte, sizeofRtgenmsg)).Uint32(unix.NETNSA_FD, uint32(fd)).Bytes())
	if err != nil {
		return -1, fmt.Errorf("get number of network namespace: %w", err)
	}
	id := -1
	if len(b) >= sizeofRtgenmsg {
		for a := range nlmsg.Attrs(b[sizeofRtgenmsg:]) {
			if a.Type == unix.NETNSA_NSID {
				id = int(int32(a.Uint32()))
			}
		}
	}
	return id, nil
}
