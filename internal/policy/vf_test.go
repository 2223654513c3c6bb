package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// The rows of the table in docs/policy.md: what a configuration may set on a VF without the node's owner having said
// so, and what each field allows.
func TestSetVF(t *testing.T) {
	owners := device.VFAttrs{VLAN: 100, QoS: 2, Proto: device.Proto8021Q, MinTxRate: 10, MaxTxRate: 1000}
	vlan := func(id, qos int, proto uint16) device.VFAttrs {
		return device.VFAttrs{VLAN: id, QoS: qos, Proto: proto}
	}
	rate := func(low, high uint32) device.VFAttrs { return device.VFAttrs{MinTxRate: low, MaxTxRate: high} }
	const q, ad = device.Proto8021Q, device.Proto8021AD
	for name, tt := range map[string]struct {
		attr    device.VFAttr
		now, to device.VFAttrs
		allows  string // a policy; "": none is needed
		by      string // field of the policy that the refusal names
	}{
		"trust":    {device.VFTrust, owners, device.VFAttrs{Trust: new(true)}, `{"trustOn":true}`, "trustOn"},
		"no trust": {device.VFTrust, owners, device.VFAttrs{Trust: new(false)}, "", ""},
		"spoofing": {
			device.VFSpoofChk, owners, device.VFAttrs{SpoofChk: new(false)}, `{"spoofchkOff":["ens1*"]}`, "spoofchkOff",
		},
		"no spoofing":       {device.VFSpoofChk, owners, device.VFAttrs{SpoofChk: new(true)}, "", ""},
		"own VLAN":          {device.VFVLAN, owners, vlan(100, 0, q), "", ""},
		"own VLAN, QoS":     {device.VFVLAN, owners, vlan(100, 5, q), `{"vlanQoS":[5]}`, "vlanQoS"},
		"own VLAN, 802.1ad": {device.VFVLAN, owners, vlan(100, 2, ad), `{"vlans":[100]}`, "vlans"},
		"another VLAN":      {device.VFVLAN, owners, vlan(150, 0, q), `{"vlans":["140-150"]}`, "vlans"},
		"no VLAN any more":  {device.VFVLAN, owners, vlan(0, 0, q), `{"vlans":["0"]}`, "vlans"},
		"a VLAN of none":    {device.VFVLAN, device.VFAttrs{}, vlan(7, 0, q), `{"vlans":[7]}`, "vlans"},
		"lower limit":       {device.VFRate, owners, rate(0, 500), "", ""},
		"limit of none":     {device.VFRate, device.VFAttrs{}, rate(0, 500), "", ""},
		"higher limit":      {device.VFRate, owners, rate(0, 1001), `{"rates":true}`, "rates"},
		"no limit":          {device.VFRate, owners, rate(0, 0), `{"rates":["0000:3b:00.0"]}`, "rates"},
		"guaranteed":        {device.VFRate, owners, rate(11, 1000), `{"rates":true}`, "rates"},
		"link state":        {device.VFLinkState, owners, device.VFAttrs{LinkState: device.VFLinkEnable}, "", ""},
	} {
		set := func(vf string) error {
			p, err := parse("policy.json", []byte(`{"vf":`+vf+`}`))
			if err != nil {
				t.Fatal(err)
			}
			return p.SetVF(netdev(nil), &tt.now, &tt.to, []device.VFAttr{tt.attr})
		}
		if tt.allows == "" {
			if err := set(`{}`); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, other := range []string{
			`{}`, `{"trustOn":["ens2*"],"spoofchkOff":false,"vlans":[4094,"1-6"],"vlanQoS":[1],"rates":[]}`,
		} {
			if err := set(other); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `"vf.`+tt.by+`"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := set(tt.allows); err != nil {
			t.Errorf("%s with %s: %v", name, tt.allows, err)
		}
	}
}

// A VLAN that does not exist, and a text that is not a range, are errors: the policy is not understood.
func TestVLANRanges(t *testing.T) {
	for _, bad := range []string{
		`-1`, `4095`, `"a"`, `""`, `null`, `"9-3"`, `"1-4095"`, `"1-"`, `"-5"`, `1.5`, `{}`, `"1-2-3"`,
	} {
		if p, err := parse("policy.json", []byte(`{"vf":{"vlans":[`+bad+`]}}`)); err == nil {
			t.Errorf("%s: %+v", bad, p.VF.VLANs)
		}
	}
	if _, err := parse("policy.json", []byte(`{"vf":{"trustOn":["[a-"]}}`)); err == nil {
		t.Error("a pattern that is none")
	}
}
