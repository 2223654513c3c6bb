package netconf

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// device decides the mode and reads the fields that depend on it.
func (p *parser) device() {
	s := p.selectors()
	p.mode(s)
	p.claim(s)
	p.addressing()
	switch p.cfg.Mode {
	case ModeIPoIB:
		p.ipoib(s)
		p.onlyDevice()
	case ModeRDMA:
		p.selector(s)
		p.onlyDevice()
		p.ignore(p.get("pkey"))
		p.notIn("rdma", "mtu", "ipoibMode", "umcast", "railOrder")
		if p.cfg.IPAM.Type != "" {
			p.fail(
				notAllowed(
					p.get("ipam"),
					`no "ipam" in mode "rdma": the plugin before it in the chain gives the addresses`,
				),
			)
			// A lenient parse keeps it: the mode may be newer than the attachment, and DEL always reaches IPAM.
		}
	case ModeDevice:
		p.podAttributes() // before the selector: the pod's GUID goes before "guid"
		p.selector(s)
		p.pkey()
		p.notIn("device", "ipoibMode", "umcast")
	}
	if p.cfg.Mode != ModeRDMA {
		if mtu := p.get("mtu"); string(mtu.raw) != "0" { // 0 is "as it is" for ipoib-cni
			if n := p.whole(mtu, 68, 65520, ""); n != nil { // an IPv4 link, and IPoIB in connected mode
				p.cfg.MTU = *n
			}
		}
	}
}

// addressing reads what is done with the addresses of an interface.
func (p *parser) addressing() {
	routing := p.object(p.get("routing"))
	for _, m := range routing.members {
		if !slices.Contains(routingFields, m.key) {
			p.fail(unknown(routing.at(m), routingFields))
		}
	}
	p.interfaceOnly("routing", p.find(routing, "sourceBased"), &p.cfg.SourceBased)
	p.interfaceOnly("detectConflicts", p.get("detectConflicts"), &p.cfg.DetectConflicts)
	p.hostAddresses()
}

// allPorts reads whether the interfaces of the RDMA device's other ports go along. What belongs to one interface can't
// be asked for then.
func (p *parser) allPorts() {
	c, v := p.cfg, p.get("allPorts")
	on := p.boolean(v)
	if on == nil || !*on {
		return
	}
	switch {
	case c.Mode != ModeDevice:
		p.fail(notAllowed(v, `it in mode "device" only, in which interfaces of the host move`))
	case c.RDMA == RDMANone:
		p.fail(notAllowed(v, `it with an RDMA device, whose ports it means: "rdma" is "none"`))
	case len(c.IPs) > 0:
		p.fail(notAllowed(v, `it without addresses of the pod's own (runtimeConfig.ips, "ips" of the annotation, IP `+
			`in CNI_ARGS), which are those of one interface`))
	case c.VF.MAC != nil || len(p.vf) > 0:
		p.fail(notAllowed(v, `it without MAC, GUID and settings of a VF, which are those of one interface`))
	default:
		c.AllPorts = true
	}
}

// hostAddresses reads whether the addresses are those that the interface has on the host.
func (p *parser) hostAddresses() {
	c := p.cfg
	if ignore := p.boolean(p.get("ignoreRADefaultRoute")); ignore != nil {
		c.IgnoreRADefaultRoute = *ignore
	}
	v, keep := p.get("hostAddresses"), p.get("keepLeases")
	leases := p.boolean(keep)
	if on := p.boolean(v); on == nil || !*on {
		if leases != nil && *leases {
			p.fail(notAllowed(keep, `it beside "hostAddresses": true`))
		}
		return
	}
	switch {
	case c.Mode != ModeDevice:
		p.fail(notAllowed(v, `it in mode "device" only, in which an interface of the host moves`))
		return
	case c.IPAM.Type != "":
		p.fail(notAllowed(v, `it without "ipam": the addresses are those of the interface on the host`))
		return
	case len(c.IPs) > 0:
		p.fail(notAllowed(v, `it without addresses of the pod's own (runtimeConfig.ips, "ips" of the annotation, IP `+
			`in CNI_ARGS)`))
		return
	}
	c.HostAddresses, c.KeepLeases = true, leases != nil && *leases
}

// interfaceOnly reads true or false, and refuses true in the mode that has no interface.
func (p *parser) interfaceOnly(field string, v value, to *bool) {
	on := p.boolean(v)
	if on != nil && *on && p.cfg.Mode == ModeRDMA {
		p.notIn("rdma", field)
		return
	}
	*to = on != nil && *on
}

// mode takes the mode as written, or tells it from the other fields, so that a peer's file needs no new one.
//
// A prevResult says at ADD that the plugin is chained. At CHECK and DEL it is there for every plugin (the runtime gives
// the result of ADD back), so a mode told from it is a guess, marked by ModeDerived.
func (p *parser) mode(s selectors) {
	c := p.cfg
	if c.Mode = Mode(
		p.choice(p.get("mode"), false, string(ModeDevice), string(ModeIPoIB), string(ModeRDMA)),
	); c.Mode != "" {
		return
	}
	switch c.Type { // installed under the name of a peer
	case "rdma":
		c.Mode = ModeRDMA
		return
	case "ipoib":
		c.Mode = ModeIPoIB
		return
	case "ib-sriov", "sriov", "host-device":
		c.Mode = ModeDevice
		return
	}
	c.ModeDerived = true
	written := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return p.get(n).ok() })
	}
	// What only a plugin that moves a netdev has: a selector of host-device, addresses, an attribute of a VF.
	// A ResourceClaim gives no device to a plugin that is chained.
	netdev := c.FromClaim || len(s.kinds) > 0 && s.kinds[0] != ByRDMADevice || c.IPAM.Type != "" || len(p.vf) > 0 ||
		written("rdmaIsolation", "ibKubernetesEnabled", "vfioPciMode", "pkey", "mtu", "routing", "detectConflicts",
			"hostAddresses", "allPorts")
	switch {
	case s.master.ok() && len(s.chosen) == 0 && (!s.hasAddress() || written("ipoibMode", "umcast")):
		c.Mode = ModeIPoIB
	case c.PrevResult != nil && !netdev:
		c.Mode = ModeRDMA
	default:
		c.Mode = ModeDevice
	}
}

// pkey reads the partition: of an IPoIB child, or the one that a device's port is promised to be in. The subnet manager
// puts it there.
func (p *parser) pkey() {
	v := p.get("pkey")
	if !v.ok() || string(v.raw) == `""` {
		return
	}
	s := string(v.raw)
	if v.raw[0] == '"' {
		s = unquote(v.raw)
	}
	var err error
	if p.cfg.PKey, err = device.ParsePKey(s); err != nil {
		p.fail(notAllowed(v, "0x0001 to 0x7fff, or 0x8001 to 0xffff with the full-member bit"))
	}
}

// ipoib reads the fields of mode ipoib. The bus address that Multus adds is not looked at: the parent is the master.
func (p *parser) ipoib(s selectors) {
	c := p.cfg
	for _, v := range append(s.chosen, s.guid) {
		if v.ok() {
			p.fail(notAllowed(v, `no selector in mode "ipoib": the parent is "master"`))
		}
	}
	p.ignore(s.addresses...)
	p.notIn("ipoib", "railOrder")
	var ok bool
	if c.Master, ok = p.textWhere(s.master, wantName, isName); !ok && !s.master.ok() && p.env.Command == "ADD" &&
		!c.FromClaim {
		p.fail(&Error{Code: CodeConfig, Field: "master", Allowed: "the netdev of the parent"})
	}
	p.pkey()
	c.IPoIBMode = p.choice(p.get("ipoibMode"), false, "datagram", "connected")
	switch v := p.get("umcast"); string(v.raw) {
	case "0", "1": // as ip link writes it
		on := string(v.raw) == "1"
		c.Umcast = &on
	default:
		c.Umcast = p.boolean(v)
	}
}

// notIn refuses fields that the mode has no use for and that no peer has.
func (p *parser) notIn(mode string, names ...string) {
	for _, name := range names {
		if v := p.get(name); v.ok() {
			p.fail(notAllowed(v, `no "`+name+`" in mode "`+mode+`"`))
		}
	}
}

const onlyMoved = `it only where the RDMA device is moved: in mode "device" or "rdma", with "rdma" "auto" or ` +
	`"exclusive"`

// rdma reads what happens to the RDMA device. rdmaIsolation is ib-sriov's: true moves the device and needs the
// exclusive mode, false leaves it and does not look.
func (p *parser) rdma() {
	c := p.cfg
	policy, isolation := p.get("rdma"), p.get("rdmaIsolation")
	c.RDMA = RDMAPolicy(
		p.choice(policy, false, string(RDMAAuto), string(RDMAExclusive), string(RDMAShared), string(RDMANone)),
	)
	if isolate := p.boolean(isolation); isolate != nil {
		moves := c.RDMA == RDMAAuto || c.RDMA == RDMAExclusive
		switch {
		case c.RDMA != "" && moves != *isolate:
			p.fail(notAllowed(isolation, `one of "rdmaIsolation" and "rdma", which is `+shown(policy.raw)))
		case *isolate:
			c.RDMA = RDMAExclusive
		case c.RDMA == "":
			c.RDMA = RDMANone
		}
	}
	field := policy
	if !field.ok() {
		field = isolation
	}
	switch {
	case c.RDMA == "":
		c.RDMA = RDMAAuto
	case c.Mode == ModeRDMA && c.RDMA == RDMANone:
		p.fail(notAllowed(field, `a policy other than "none" in mode "rdma", which does nothing else`))
		c.RDMA = RDMAAuto
	case c.Mode == ModeIPoIB && c.RDMA == RDMAExclusive:
		p.fail(
			notAllowed(field, `"auto", "shared" or "none" in mode "ipoib": the master's RDMA device stays on the host`),
		)
		c.RDMA = RDMANone
	}
	if c.Mode == ModeIPoIB && c.RDMA == RDMAAuto {
		c.RDMA = RDMANone
	}

	name := p.get("rdmaName") // or RDMANameAuto, which looks like any other name
	c.RDMAName, _ = p.textWhere(name, wantRDMA, isRDMAName)
	if c.RDMAName != "" && (c.Mode == ModeIPoIB || c.RDMA == RDMAShared || c.RDMA == RDMANone) {
		p.fail(notAllowed(name, onlyMoved))
		c.RDMAName = ""
	}
	p.roce()
	p.allPorts()
}

// roce reads what connections over a RoCE port are given.
func (p *parser) roce() {
	c := p.cfg
	tos, mode, class := p.get("tos"), p.get("roceMode"), p.get("trafficClass")
	const eight = ": DSCP * 4 + ECN, such as 106"
	if n := p.whole(tos, 0, 255, eight); n != nil {
		c.TOS = new(uint8(*n))
	}
	if n := p.whole(class, 0, 255, eight); n != nil {
		c.Class = new(uint8(*n))
	}
	c.RoCEMode = p.choice(mode, false, "v1", "v2")
	if c.Mode != ModeIPoIB && c.RDMA != RDMAShared && c.RDMA != RDMANone {
		return
	}
	for _, v := range []value{tos, mode, class} {
		if v.ok() {
			p.fail(notAllowed(v, onlyMoved))
		}
	}
	c.TOS, c.RoCEMode, c.Class = nil, "", nil
}
