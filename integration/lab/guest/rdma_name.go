package guest

import (
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Command and attributes of nldev (include/uapi/rdma/rdma_netlink.h).
const (
	nldevSet     = 5<<10 | 2
	nldevIndex   = 1
	nldevName    = 2
	nldevNetnsFD = 68
)

// SetRDMA sends one message that gives an RDMA device a name and moves it, or does one of the two where the other is
// empty. The calling thread has to be where the device is.
func SetRDMA(index uint32, name, path string) error {
	if path == "" {
		return setRDMA(index, name, false, 0)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	return setRDMA(index, name, true, uint32(f.Fd()))
}

func setRDMA(index uint32, name string, move bool, fd uint32) error {
	req := nl.NewNetlinkRequest(nldevSet, unix.NLM_F_ACK)
	req.AddData(nl.NewRtAttr(nldevIndex, nl.Uint32Attr(index)))
	if name != "" {
		req.AddData(nl.NewRtAttr(nldevName, nl.ZeroTerminated(name)))
	}
	if move {
		req.AddData(nl.NewRtAttr(nldevNetnsFD, nl.Uint32Attr(fd)))
	}
	if _, err := req.Execute(unix.NETLINK_RDMA, 0); err != nil {
		return fmt.Errorf("set RDMA device %d to name %q, other namespace %t: %w", index, name, move, err)
	}
	return nil
}

// RDMANames returns the names of the RDMA devices in a namespace, by index.
func RDMANames(t testing.TB, h *netlink.Handle) map[uint32]string {
	t.Helper()
	links, err := dump(h.RdmaLinkList)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[uint32]string)
	for _, l := range links {
		names[l.Attrs.Index] = l.Attrs.Name
	}
	return names
}
