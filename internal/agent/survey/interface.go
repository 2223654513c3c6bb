package survey

import (
	"net/netip"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
)

// Interface is what a pod has on the interface of an attachment.
type Interface struct {
	HWAddr    string
	Addresses []netip.Prefix // as the kernel has them, link-local ones apart
}

// InterfaceOf reads the interface of an attachment in its pod. It returns fs.ErrNotExist if the pod is gone, or has no
// such interface.
func InterfaceOf(e *journal.Entry) (*Interface, error) {
	ns, err := e.OpenNetns()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	out := &Interface{}
	err = ns.Do(func() error {
		c, err := link.Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		out.HWAddr, out.Addresses, err = c.InterfaceAddrs(e.IfName)
		return err
	})
	return out, err
}
