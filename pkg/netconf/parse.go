package netconf

import (
	"path"
	"slices"
	"strings"
)

// parser holds what the steps of one Parse share.
type parser struct { //nolint:methods // one for each field of a configuration
	cfg     *Config
	env     Env
	top     object  // the configuration itself
	runtime object  // runtimeConfig
	args    object  // args.cni
	cni     cniArgs // CNI_ARGS
	vf      []value // the fields of the configuration that ask for a VF attribute

	lenient bool   // a bad value is dropped instead of an error
	err     *Error // the first error
}

// Parse turns stdin and the environment of one call into a Config, or returns an *Error.
//
// ADD, CHECK and STATUS are strict. DEL and GC are lenient: they have to give back what is there with whatever the
// configuration has become since, so an unknown field or a bad value is dropped, and only text that cannot be decoded,
// names that are not safe in a path and (GC) an unreadable list of valid attachments are errors. A selector is required
// by ADD only: the others find the device in the journal.
func Parse(stdin []byte, env Env) (*Config, error) {
	if err := checkEnv(env); err != nil {
		return nil, err
	}
	p := &parser{cfg: &Config{Raw: stdin}, env: env, lenient: env.Command == "DEL" || env.Command == "GC"}
	most := maxConf
	if p.lenient {
		most = maxStdin
	}
	if err := checkJSON(stdin, most); err != nil {
		return nil, err
	}
	p.top.members = split(stdin[skipSpace(stdin, 0):])
	for _, step := range []func(){
		p.keys, p.names, p.plainFields, p.attachments, p.runtimeFields, p.attributes, p.device, p.rdma,
		p.lists,
	} {
		if step(); p.err != nil {
			return nil, p.err
		}
	}
	return p.cfg, nil
}

// fail records the first error of a strict parse.
func (p *parser) fail(e *Error) {
	if !p.lenient {
		p.must(e)
	}
}

// must records an error that a lenient parse has to report, too.
func (p *parser) must(e *Error) {
	if p.err == nil {
		p.err = e
	}
}

// short refuses a list of too many entries, and returns false for one.
func (p *parser) short(list string, n int) bool {
	e := TooLong(list, n)
	if e != nil {
		p.fail(e)
	}
	return e == nil
}

// get is find in the configuration itself.
func (p *parser) get(names ...string) value { return p.find(p.top, names...) }

// ignore lists a field that is accepted and not applied.
func (p *parser) ignore(vs ...value) {
	for _, v := range vs {
		if v.ok() {
			p.cfg.Ignored = append(p.cfg.Ignored, v.path)
		}
	}
}

// keys brings the top-level fields to our spelling and refuses unknown ones.
func (p *parser) keys() {
	p.short("", len(p.top.members))
	for i := range p.top.members {
		m := &p.top.members[i]
		key, kind, ok := lookup(m.written)
		if !ok && p.err == nil && !p.lenient {
			p.fail(unknown(p.top.at(*m), known()))
		}
		if m.key = key; kind == ignored && !isNull(m.raw) {
			p.ignore(p.top.at(*m))
		}
	}
}

// names reads what becomes part of a path: these are checked for every command.
func (p *parser) names() {
	p.cfg.CNIVersion, _ = p.textWhere(p.get("cniVersion"), `a version as "1.0.0"`, func(s string) bool {
		return len(s) <= 32 && strings.Trim(s, "0123456789.") == ""
	})
	if name := p.get("name"); name.ok() {
		if name.raw[0] != '"' || !isID(unquote(name.raw)) {
			p.must(notAllowed(name, wantID))
			return
		}
		p.cfg.Name = unquote(name.raw)
	} else {
		p.fail(&Error{Code: CodeConfig, Field: "name", Allowed: "the name of the network"})
	}
	const plugin = "the name of a plugin, without a path"
	t := p.get("type")
	if p.cfg.Type, _ = p.textWhere(t, plugin, isID); p.cfg.Type == "" {
		p.fail(&Error{Code: CodeConfig, Field: "type", Allowed: plugin})
	}
	// The IPAM plugin judges the rest of its configuration.
	delegate := p.find(p.object(p.get("ipam")), "type")
	p.cfg.IPAM.Type, _ = p.textWhere(delegate, plugin, isID)
	if t := p.cfg.IPAM.Type; t != "" && (t == p.cfg.Type || slices.Contains(mainPlugins, t)) {
		p.fail(notAllowed(delegate, "an IPAM plugin, which this is not: it would start itself without end"))
		p.cfg.IPAM.Type = "" // nor does DEL start it
	}
}

// mainPlugins start the plugin that "ipam" names, with the configuration that they were given: named there, this plugin
// and those of containernetworking/plugins and of its relatives start themselves until the node has no process left.
var mainPlugins = []string{
	"fabric", "bridge", "dummy", "host-device", "ipvlan", "macvlan", "ptp", "tap", "vlan",
	"ib-sriov", "ib-sriov-cni", "ipoib", "multus", "multus-shim", "ovs", "sriov",
}

// plainFields reads the fields that depend on no other.
func (p *parser) plainFields() {
	c := p.cfg
	if prev := p.get("prevResult"); p.object(prev).path != "" {
		c.PrevResult = prev.raw
	}
	p.object(p.get("capabilities"))

	dns := p.object(p.get("dns"))
	c.DNS.Nameservers = p.texts(p.find(dns, "nameservers"))
	c.DNS.Domain, _ = p.text(p.find(dns, "domain"), "a domain name")
	c.DNS.Search = p.texts(p.find(dns, "search"))
	c.DNS.Options = p.texts(p.find(dns, "options"))

	// "panic" is the level of sriov-cni that logs least.
	if c.LogLevel = p.choice(
		p.get("logLevel"),
		true,
		"error",
		"warning",
		"info",
		"debug",
		"panic",
	); c.LogLevel == "panic" {
		c.LogLevel = "error"
	}
	c.LogFile, _ = p.textWhere(p.get("logFile"), "the absolute path of a file", func(s string) bool {
		return path.IsAbs(s) && s != "/" && path.Clean(s) == s && len(s) <= maxPath && !hasControl(s)
	})

	order := p.boolean(p.get("railOrder"))
	c.Unsorted = order != nil && !*order
	c.FromClaim = p.choice(p.get("allocation"), true, AllocationDRA) != ""
	if down := p.boolean(p.get("allowDown")); down != nil {
		c.AllowDown = *down
	}
}

// attachments reads the list of GC. Here nothing is dropped: an attachment missed in the list would be taken from a pod
// that runs. A name that could not have been added is no attachment of ours. Without a list (cnitool, libcni's
// GCNetworkList without arguments) ValidAttachments stays nil.
func (p *parser) attachments() {
	if p.env.Command != "GC" {
		return
	}
	// libcni up to 1.3 writes both names; the second is the one of a draft of the specification.
	var list value
	for _, m := range p.top.members {
		if m.key == "cni.dev/valid-attachments" ||
			m.key == "cni.dev/attachments" && list.path != "cni.dev/valid-attachments" {
			list = p.top.at(m)
		}
	}
	const allowed = `a list of {"containerID": "...", "ifname": "..."}`
	if !list.ok() {
		return
	}
	p.cfg.ValidAttachments = []Attachment{}
	switch {
	case isNull(list.raw): // an empty Go slice
		return
	case list.raw[0] != '[':
		p.must(notAllowed(list, allowed))
		return
	}
	all := elements(list.raw)
	if e := TooLong("cni.dev/valid-attachments", len(all)); e != nil {
		p.must(e)
		return
	}
	for _, e := range all {
		var a Attachment
		if e[0] != '{' {
			p.must(notAllowed(value{list.path, e}, allowed))
			return
		}
		for _, m := range split(e) {
			if m.raw[0] != '"' && (m.key == "containerID" || m.key == "ifname") {
				p.must(notAllowed(value{list.path + "." + m.key, m.raw}, allowed))
				return
			}
			switch m.key {
			case "containerID":
				a.ContainerID = unquote(m.raw)
			case "ifname":
				a.IfName = unquote(m.raw)
			}
		}
		if isID(a.ContainerID) && isIfName(a.IfName) {
			p.cfg.ValidAttachments = append(p.cfg.ValidAttachments, a)
		}
	}
}

// runtimeFields reads what the runtime and the pod's annotation add: runtimeConfig, args.cni and CNI_ARGS.
func (p *parser) runtimeFields() {
	p.runtime = p.object(p.get("runtimeConfig"))
	p.args = p.object(p.find(p.object(p.get("args")), "cni"))
	if c := p.env.Command; c == "ADD" || c == "CHECK" || c == "DEL" {
		var err *Error
		if p.cni, err = parseArgs(p.env.Args); err != nil {
			p.fail(err)
		}
		p.cfg.Pod = p.cni.pod
	}

	ips := p.find(p.runtime, "ips")
	for _, s := range p.texts(ips) {
		prefix, ok := parseIP(s)
		if !ok {
			p.fail(notAllowed(ips, wantIP))
			continue
		}
		p.cfg.IPs = append(p.cfg.IPs, prefix)
	}
	if p.cfg.IPs == nil {
		p.cfg.IPs = p.cni.ips
	}
	p.podIPs()
	p.cfg.DeviceInfo, _ = p.textWhere(
		p.find(p.runtime, "CNIDeviceInfoFile"),
		"the path of a file",
		func(s string) bool {
			return s != "" && len(s) <= maxPath && !hasControl(s)
		},
	)
	p.ignore(p.find(p.args, "rdmaDeviceName"))
	if debug := p.find(p.args, "debug"); debug.ok() && strings.Trim(string(debug.raw), `"`) == "true" {
		p.cfg.LogLevel = "debug" // rdma-cni
	}
}
