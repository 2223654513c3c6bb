package plan

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// A configuration that asks for everything gets every setting, in the order of the table.
func TestOrderHasEverySetting(t *testing.T) {
	cfg := netconf.VF{
		GUID: new(device.GUID(1)), LinkState: "auto", MAC: []byte{2, 0, 0, 0, 0, 1}, VLAN: new(7),
		MaxTxRate: new(100), SpoofChk: new(true), Trust: new(true),
	}
	_, asked := wantedVF(&cfg, &device.VFAttrs{})
	if want := device.VFAttrNames(); !slices.Equal(want, asked) {
		t.Errorf("the steps set %v, the table has %v", asked, want)
	}
	want := []device.VFAttr{
		device.VFLinkState, device.VFNodeGUID, device.VFPortGUID, device.VFVLAN, device.VFMAC, device.VFRate,
		device.VFSpoofChk, device.VFTrust,
	}
	if !slices.Equal(want, asked) {
		t.Errorf("the order is %v, want %v", asked, want)
	}
}
