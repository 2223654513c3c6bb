package netconf

import "github.com/fabric-cni/fabric-cni/pkg/device"

const wantGUID = "8 bytes as 00:02:c9:03:00:fa:00:10, not all zeros or all ones"

// attributes reads what is to be set on a virtual function. Whether the mode has one is judged in onlyDevice, when the
// mode is known.
func (p *parser) attributes() {
	vf := &p.cfg.VF
	written := func(set bool, v value) {
		if set {
			p.vf = append(p.vf, v)
		}
	}
	v := p.get("linkState", "link_state")
	vf.LinkState = p.choice(v, false, "auto", "enable", "disable")
	written(vf.LinkState != "", v)

	v = p.get("spoofchk")
	vf.SpoofChk = p.onOff(v)
	written(vf.SpoofChk != nil, v)
	v = p.get("trust")
	vf.Trust = p.onOff(v)
	written(vf.Trust != nil, v)

	v = p.get("ibKubernetesEnabled")
	b := p.boolean(v)
	vf.IBKubernetes = b != nil && *b
	written(vf.IBKubernetes, v)
	v = p.get("vfioPciMode")
	b = p.boolean(v)
	vf.VFIO = b != nil && *b
	written(vf.VFIO, v)

	p.mac(written)
	p.vlan(written)
	p.rates(written)

	v = p.find(p.runtime, "infinibandGUID")
	vf.GUID = p.guid(v)
	written(vf.GUID != nil, v)
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
func (p *parser) mac(written func(bool, value)) {
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
		if p.cfg.VF.MAC = mac; v.path == "mac" && p.cni.mac != nil {
			p.cfg.VF.MAC = p.cni.mac
		}
		written(true, v)
	}
	if p.cfg.VF.MAC == nil {
		p.cfg.VF.MAC = p.cni.mac
	}
}

// vlan follows the rules of sriov-cni: QoS and protocol come with an id, and the id 0 (no VLAN) with neither.
func (p *parser) vlan(written func(bool, value)) {
	idField, qosField, protoField := p.get("vlan"), p.get("vlanQoS"), p.get("vlanProto")
	id := p.whole(idField, 0, 4094, ", 0 for none")
	qos := p.whole(qosField, 0, 7, "")
	proto := p.choice(protoField, true, "802.1q", "802.1ad")
	written(id != nil, idField)
	written(qos != nil, qosField)
	written(proto != "", protoField)

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
	p.cfg.VF.VLAN, p.cfg.VF.VLANQoS, p.cfg.VF.VLANProto = id, qos, proto
}

// rates reads the limits of the transmit rate in Mb/s; 0 is no limit.
func (p *parser) rates(written func(bool, value)) {
	const highest = 1<<31 - 1 // the driver gets 32 bits (struct ifla_vf_rate)
	lowField, highField := p.get("minTxRate", "min_tx_rate"), p.get("maxTxRate", "max_tx_rate")
	low := p.whole(lowField, 0, highest, " Mb/s")
	high := p.whole(highField, 0, highest, " Mb/s, 0 for no limit")
	written(low != nil, lowField)
	written(high != nil, highField)
	if low != nil && high != nil && *high != 0 && *low > *high {
		p.fail(notAllowed(lowField, `at most "`+highField.path+`", which is `+shown(highField.raw)))
		return
	}
	p.cfg.VF.MinTxRate, p.cfg.VF.MaxTxRate = low, high
}

// podAttributes completes the attributes with what is only read where a VF is configured: the pod's args.cni reach each
// plugin of a chain.
func (p *parser) podAttributes() {
	vf := &p.cfg.VF
	if vf.GUID == nil {
		vf.GUID = p.guid(p.find(p.args, "guid"))
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
