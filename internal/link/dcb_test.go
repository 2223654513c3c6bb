package link

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// app is struct dcb_app.
func app(selector, priority byte, protocol uint16) []byte {
	return binary.NativeEndian.AppendUint16([]byte{selector, priority}, protocol)
}

// An answer as mlx5 gives it to `dcb pfc show` and `dcb app show`: ETS first, PFC on priority 3, and a DSCP beside
// another protocol.
func TestDecodeDCB(t *testing.T) {
	answer := nlmsg.Body(nil).String(attrIfname, "eth0").Nest(attrIEEE, func(m *nlmsg.Builder) {
		m.Put(1, make([]byte, 68))
		m.Put(attrPFC, append([]byte{8, 1 << 3, 0, 0}, make([]byte, 132)...))
		m.Nest(attrAppTable, func(m *nlmsg.Builder) {
			m.Put(attrApp, app(1, 4, 0x8906))
			m.Put(attrApp, app(selectorDSCP, 3, 26))
			m.Put(attrApp, app(selectorDSCP, 6, 48))
			m.Put(attrApp, app(selectorDSCP, 9, 1))  // no such priority
			m.Put(attrApp, app(selectorDSCP, 1, 99)) // no such DSCP
			m.Put(attrApp, []byte{selectorDSCP})
		})
	}).Bytes()
	want := &DCB{PFC: 1 << 3, DSCP: map[uint8]uint8{26: 3, 48: 6}}
	if d := cmp.Diff(want, decodeDCB(answer)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range answer { // cut off anywhere
		decodeDCB(answer[:i])
	}
	if d := decodeDCB(nil); d.PFC != 0 || len(d.DSCP) > 0 {
		t.Errorf("%+v", d)
	}
}
