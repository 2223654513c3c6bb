package apply

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// setMode switches an IPoIB netdev between datagram and connected mode, by the file in sysfs and not by rtnetlink: the
// driver lets go of the kernel's network lock on the way, and when another call is quicker to take it, it comes back
// without it (EBUSY, with the mode switched). The file's handler knows, rtnetlink unlocks what it does not hold
// (drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_set_mode; up to 7.2). The MTU changes too.
//
// A PKey child made by rtnetlink has no such file (ipoib_vlan.c, __ipoib_vlan_add): for it there is no other way.
// See kernel fact 20.
func setMode(ctx context.Context, side *Side, index int, mode uint16) error {
	text := []byte("datagram\n")
	if mode == device.ModeConnected {
		text = []byte("connected\n")
	}
	return poll(ctx, func() (bool, error) {
		n, err := side.Link.ByIndex(index)
		if err != nil || n.IPoIB == nil || n.IPoIB.Mode == mode {
			return true, err
		}
		err = side.NS.WriteSys(path.Join("class/net", n.Name, "mode"), text)
		if !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
		if now, err := side.Link.ByIndex(index); err != nil || now.Name != n.Name {
			return false, err // renamed meanwhile
		}
		if err := side.Link.Set(index, link.Change{Mode: &mode}); err != nil && !errors.Is(err, unix.EBUSY) {
			return false, err
		}
		return false, nil // looked at once more
	})
}
