package netconf

import (
	"fmt"
	"strings"
)

// podMay reports whether the network lets pods choose what a capability is for, and refuses the pod's choice if it does
// not. Multus passes what a pod's annotation asks for whatever the network says: in args.cni, and as MAC and IP in
// CNI_ARGS. A subnet manager gives partitions by GUID, so that all who may create pods would have those of other
// tenants. In runtimeConfig a runtime puts only what the network has the capability for.
func (p *parser) podMay(capability string, asked *Error) bool {
	declared := p.find(p.object(p.get("capabilities")), capability)
	if string(declared.raw) == "true" || p.find(p.runtime, capability).ok() {
		return true
	}
	asked.Problem = "is the pod's choice, which this network does not allow"
	asked.Hint = fmt.Sprintf(`set "capabilities": {"%s": true} in the network, or leave it out of the pod's annotation`,
		capability)
	p.fail(asked)
	return false
}

// podIPs judges the addresses that the pod chooses: the IPAM plugin reads them in CNI_ARGS and args.cni, there in any
// case (encoding/json), and gives them. Without an IPAM plugin they mean nothing here.
func (p *parser) podIPs() {
	if p.cfg.IPAM.Type == "" {
		return
	}
	if len(p.cni.ips) > 0 && !p.podMay("ips", &Error{
		Code: CodeEnvironment, Field: "CNI_ARGS IP", Value: quoted(p.cni.ips[0].String()),
	}) {
		return
	}
	for _, m := range p.args.members {
		if strings.EqualFold(m.written, "ips") && !isNull(m.raw) && string(m.raw) != "[]" {
			v := p.args.at(m)
			p.podMay("ips", &Error{Code: CodeConfig, Field: v.path, Value: shown(v.raw)})
		}
	}
}
