package link

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// What is written for a setting is what is read for it, and nothing else: each has a codec of its own.
func TestVFCodecs(t *testing.T) {
	to := device.VFAttrs{
		MAC:       []byte{2, 0, 0, 0, 0, 1},
		VLAN:      1000,
		QoS:       4,
		Proto:     device.Proto8021AD, // the older attribute of 802.1q is only ever written
		MinTxRate: 100,
		MaxTxRate: 200,
		LinkState: device.VFLinkDisable,
		SpoofChk:  new(true),
		Trust:     new(true),
		NodeGUID:  new(device.GUID(0x0011223344556677)),
		PortGUID:  new(device.GUID(0x0011223344556678)),
	}
	for _, attr := range device.VFAttrNames() {
		m := nlmsg.Body(nil)
		encodeVF(m, 3, attr, &to)
		got := decodeVF(m.Bytes(), 6)
		for _, other := range device.VFAttrNames() {
			want := new(device.VFAttrs)
			if other == attr {
				want = &to
			}
			if !got.Same(other, want) {
				t.Errorf("%s is written as %x, which sets %s to %q", attr, m.Bytes(), other, got.Text(other))
			}
		}
	}
}

// A setting that the driver does not report is unknown, not off.
func TestVFUnknown(t *testing.T) {
	m := nlmsg.Body(nil)
	vfCodecs[device.VFTrust].encode(m, []byte{3, 0, 0, 0}, &device.VFAttrs{Trust: new(true)})
	b := m.Bytes()
	copy(b[len(b)-4:], []byte{0xff, 0xff, 0xff, 0xff})
	if got := decodeVF(b, 6); got.Trust != nil {
		t.Errorf("trust is %t", *got.Trust)
	}
}
