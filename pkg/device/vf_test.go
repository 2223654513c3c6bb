package device

import "testing"

// Every row of the table copies, compares and prints its own fields and no other's.
func TestVFAttrs(t *testing.T) {
	set := VFAttrs{
		MAC: []byte{2, 0, 0, 0, 0, 1}, VLAN: 7, QoS: 3, Proto: Proto8021AD, MinTxRate: 1, MaxTxRate: 2,
		LinkState: VFLinkEnable, SpoofChk: new(true), Trust: new(true), NodeGUID: new(GUID(1)), PortGUID: new(GUID(2)),
	}
	text := map[VFAttr]string{
		VFLinkState: "state enable",
		VFMAC:       "mac 02:00:00:00:00:01",
		VFVLAN:      "vlan 7 qos 3 proto 802.1ad",
		VFRate:      "max_tx_rate 2 min_tx_rate 1",
		VFSpoofChk:  "spoofchk on",
		VFTrust:     "trust on",
		VFNodeGUID:  "node_guid 00:00:00:00:00:00:00:01",
		VFPortGUID:  "port_guid 00:00:00:00:00:00:00:02",
	}
	for _, attr := range VFAttrNames() {
		var a VFAttrs
		a.Set(attr, &set)
		for _, other := range VFAttrNames() {
			if same := a.Same(other, &set); same != (other == attr) {
				t.Errorf("after setting %s, %s is as it should be: %t", attr, other, same)
			}
		}
		if got := a.Text(attr); got != text[attr] {
			t.Errorf("%s is %q, want %q", attr, got, text[attr])
		}
		if attr.IsGUID() != (attr.Kind() == InfiniBandVF) {
			t.Errorf("%s: only GUIDs are InfiniBand's alone", attr)
		}
	}
	if n := len(VFAttrNames()); n != len(text) {
		t.Errorf("%d settings, want %d", n, len(text))
	}
}

func TestVFAttrUnknown(t *testing.T) {
	var a VFAttrs
	if a.Set("new", &VFAttrs{VLAN: 1}); a.VLAN != 0 || a.Same("new", &a) || a.Text("new") != "new" {
		t.Errorf("a setting that is not in the table: %+v", a)
	}
}
