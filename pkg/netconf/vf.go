package netconf

import "github.com/fabric-cni/fabric-cni/pkg/device"

const wantGUID = "8 bytes as 00:02:c9:03:00:fa:00:10, not all zeros or all ones"

// attributes reads what is to be set on a virtual function. Whether the mode has one is judged in onlyDevice, when the
// mode is known.
func (p *parser) attributes() {
	vf := &p.cfg.VF
	for i := range vfFields {
		vfFields[i].read(p, vf)
	}
	f := p.get("ibKubernetesEnabled")
	b := p.boolean(f)
	vf.IBKubernetes = b != nil && *b
	p.askedBy(f, vf.IBKubernetes)
	f = p.get("vfioPciMode")
	b = p.boolean(f)
	vf.VFIO = b != nil && *b
	p.askedBy(f, vf.VFIO)
}

// askedBy records a field that asks for an attribute of a VF.
func (p *parser) askedBy(f value, asked bool) {
	if asked {
		p.vf = append(p.vf, f)
	}
}

// runtimeGUID reads the GUID that the runtime passes.
func (p *parser) runtimeGUID(vf *VF) {
	f := p.find(p.runtime, "infinibandGUID")
	vf.GUID = p.guid(f)
	p.askedBy(f, vf.GUID != nil)
}

// guid reads a GUID that a port can have.
func (p *parser) guid(v value) *device.GUID {
	s, ok := p.text(v, wantGUID)
	if !ok {
		return nil
	}
	g, err := device.ParseGUID(s)
	if err != nil || g.IsUnset() {
		p.fail(notAllowed(v, wantGUID))
		return nil
	}
	return &g
}

// mac reads the MAC address: of the pod's request before the network's. CNI_ARGS are not counted as written: a runtime
// gives them to each plugin of a chain.
func (p *parser) mac(vf *VF) {
	for _, v := range []value{p.get("mac"), p.find(p.runtime, "mac")} {
		s, ok := p.text(v, wantMAC)
		if !ok {
			continue
		}
		mac, ok := parseMAC(s)
		if !ok {
			p.fail(notAllowed(v, wantMAC))
			continue
		}
		if vf.MAC = mac; v.path == "mac" && p.cni.mac != nil {
			vf.MAC = p.cni.mac
		}
		p.askedBy(v, true)
	}
	if vf.MAC == nil {
		vf.MAC = p.cni.mac
	}
}

// vlan follows the rules of sriov-cni: QoS and protocol come with an id, and the id 0 (no VLAN) with neither.
func (p *parser) vlan(vf *VF) {
	idField, qosField, protoField := p.get("vlan"), p.get("vlanQoS"), p.get("vlanProto")
	id := p.whole(idField, 0, 4094, ", 0 for none")
	qos := p.whole(qosField, 0, 7, "")
	proto := p.choice(protoField, true, "802.1q", "802.1ad")
	p.askedBy(idField, id != nil)
	p.askedBy(qosField, qos != nil)
	p.askedBy(protoField, proto != "")

	if id == nil {
		if qos != nil {
			p.fail(notAllowed(qosField, `it beside "vlan", which is missing`))
		}
		if proto != "" {
			p.fail(notAllowed(protoField, `it beside "vlan", which is missing`))
		}
		return
	}
	if *id == 0 && qos != nil && *qos != 0 {
		p.fail(notAllowed(qosField, `0, or "vlan" from 1 to 4094`))
		qos = nil
	}
	if *id == 0 && proto == "802.1ad" {
		p.fail(notAllowed(protoField, `802.1q, or "vlan" from 1 to 4094`))
		proto = ""
	}
	if qos == nil {
		qos = new(int)
	}
	if proto == "" {
		proto = "802.1q"
	}
	vf.VLAN, vf.VLANQoS, vf.VLANProto = id, qos, proto
}

// rates reads the limits of the transmit rate in Mb/s; 0 is no limit.
func (p *parser) rates(vf *VF) {
	const highest = 1<<31 - 1 // the driver gets 32 bits (struct ifla_vf_rate)
	lowField, highField := p.get("minTxRate", "min_tx_rate"), p.get("maxTxRate", "max_tx_rate")
	low := p.whole(lowField, 0, highest, " Mb/s")
	high := p.whole(highField, 0, highest, " Mb/s, 0 for no limit")
	p.askedBy(lowField, low != nil)
	p.askedBy(highField, high != nil)
	if low != nil && high != nil && *high != 0 && *low > *high {
		p.fail(notAllowed(lowField, `at most "`+highField.path+`", which is `+shown(highField.raw)))
		return
	}
	vf.MinTxRate, vf.MaxTxRate = low, high
}

// podAttributes completes the attributes with what is only read where a VF is configured: the pod's args.cni reach each
// plugin of a chain.
func (p *parser) podAttributes() {
	vf := &p.cfg.VF
	if f := p.find(p.args, "guid"); vf.GUID == nil && f.ok() {
		if g := p.guid(f); g == nil || vf.IBKubernetes ||
			p.podMay("infinibandGUID", &Error{Code: CodeConfig, Field: f.path, Value: shown(f.raw)}) {
			vf.GUID = g
		}
	}
	if mac := p.cni.mac; mac != nil {
		p.podMay("mac", &Error{Code: CodeEnvironment, Field: "CNI_ARGS MAC", Value: quoted(mac.String())})
	}
	vf.IBKubernetesState, _ = p.text(p.find(p.args, "mellanox.infiniband.app"), "a string")
}

// onlyDevice refuses attributes of a VF in a mode that configures none.
func (p *parser) onlyDevice() {
	for _, v := range p.vf {
		p.fail(
			notAllowed(
				v,
				`it in mode "device" only; this is mode "`+string(p.cfg.Mode)+`", which configures no virtual function`,
			),
		)
	}
	if p.cni.mac != nil {
		p.cfg.Ignored = append(p.cfg.Ignored, "CNI_ARGS MAC")
	}
	p.cfg.VF = VF{}
}
