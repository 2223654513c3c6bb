package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// VF is what a configuration may set on a virtual function beyond what the node's owner has set on it. The zero value
// allows what is of no use against others: docs/policy.md has the table.
type VF struct {
	TrustOn     Patterns    `json:"trustOn"`
	SpoofChkOff Patterns    `json:"spoofchkOff"`
	VLANs       []VLANRange `json:"vlans"`
	VLANQoS     []int       `json:"vlanQoS"` // priorities 0 to 7
	Rates       Patterns    `json:"rates"`   // a guaranteed rate, and more than the limit that the VF has
}

// VLANRange are the VLANs from First to Last, 0 to 4094; 0: no VLAN. In JSON it is a number, or a text as "100-199".
type VLANRange struct{ First, Last int }

// UnmarshalJSON reads a number or a range.
func (r *VLANRange) UnmarshalJSON(b []byte) error {
	first, last, isRange := strings.Cut(strings.Trim(string(b), `"`), "-")
	if !isRange {
		last = first
	}
	var err, err2 error
	r.First, err = strconv.Atoi(first)
	r.Last, err2 = strconv.Atoi(last)
	if err != nil || err2 != nil || r.First < 0 || r.Last < r.First || r.Last > 4094 {
		return fmt.Errorf(`vf.vlans: value %s: want a VLAN from 0 to 4094, or a range as "100-199"`, b)
	}
	return nil
}

// SetVF reports whether a configuration may set these settings of a virtual function, which has the settings now, to
// what they are in to. The error names the field of the configuration, its value, and the field of the policy.
func (p *Policy) SetVF(d Device, now, to *device.VFAttrs, set []device.VFAttr) error {
	no := func(field string, value, has any, by string) error {
		return fmt.Errorf("%w: field %q: value %v: %s has %v, and \"vf.%s\" does not allow another one",
			ErrRefused, field, value, d.name(), has, by)
	}
	for _, attr := range set {
		switch attr {
		case device.VFTrust:
			if *to.Trust && !match(p.VF.TrustOn, d) {
				return no("trust", "on", now.Text(attr), "trustOn")
			}
		case device.VFSpoofChk:
			if !*to.SpoofChk && !match(p.VF.SpoofChkOff, d) {
				return no("spoofchk", "off", now.Text(attr), "spoofchkOff")
			}
		case device.VFVLAN:
			own := to.VLAN == now.VLAN && (to.VLAN == 0 || to.Proto == now.Proto)
			if !own && !slices.ContainsFunc(p.VF.VLANs, func(r VLANRange) bool {
				return r.First <= to.VLAN && to.VLAN <= r.Last
			}) {
				return no("vlan", to.VLAN, now.Text(attr), "vlans")
			}
			if to.QoS != 0 && to.QoS != now.QoS && !slices.Contains(p.VF.VLANQoS, to.QoS) {
				return no("vlanQoS", to.QoS, now.Text(attr), "vlanQoS")
			}
		case device.VFRate:
			more := now.MaxTxRate != 0 && (to.MaxTxRate == 0 || to.MaxTxRate > now.MaxTxRate)
			switch allowed := match(p.VF.Rates, d); {
			case to.MinTxRate > now.MinTxRate && !allowed:
				return no("minTxRate", to.MinTxRate, now.Text(attr), "rates")
			case more && !allowed:
				return no("maxTxRate", to.MaxTxRate, now.Text(attr), "rates")
			}
		}
	}
	return nil
}
