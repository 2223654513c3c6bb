package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// The active MTU of a RoCE port, as ibv_devinfo shows it for these MTUs of the interface.
func TestRoCEMTU(t *testing.T) {
	for netdev, want := range map[int]int{1500: 1024, 2200: 2048, 4191: 2048, 4192: 4096, 4200: 4096, 9000: 4096,
		576: 256, 68: 0} {
		if got := roceMTU(netdev); got != want {
			t.Errorf("%d: %d, want %d", netdev, got, want)
		}
	}
	m := machines.RoCE()
	for _, netdev := range []string{"xgbe2", "xgbe3", "xgbe4", "xgbe5"} {
		m.NetFile(netdev, "mtu", "1500")
	}
	h := host(t, m)
	list := hostMTU(h, h.Node.Fabrics())
	if len(list) != 1 || list[0].Status != OK || !strings.HasSuffix(list[0].Evidence,
		"roce-200g: MTU 1500, RDMA packets of 1024 bytes (4096 take an MTU of 4192, on the switches, too)") {
		t.Errorf("%+v", list)
	}
}

func TestIPoIBModes(t *testing.T) {
	m := machines.H20()
	for netdev, mode := range map[string]string{"ibs108": "datagram", "ibs110": "connected", "ibs112": "datagram",
		"ibs114": "datagram"} {
		m.NetFile(netdev, "mode", mode)
	}
	const want = "WARN host-mtu ib-400g: mode of IPoIB datagram on ibs108, ibs112, ibs114; connected on ibs110\n"
	h := recorded(t, m)[1]
	if d := cmp.Diff(want, text(hostMTU(h, h.Node.Fabrics()))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
