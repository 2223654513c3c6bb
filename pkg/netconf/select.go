package netconf

import (
	"net"
	"path"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const (
	wantName = "the name of a netdev or an altname: at most 127 characters without '/', ':', spaces and control " +
		"characters"
	wantAddress = "a PCI address (0000:3b:00.2) or an auxiliary device (mlx5_core.sf.4)"
	wantHWAddr  = "6 or 20 bytes as 02:00:00:00:00:01, or 8 bytes of a GUID; not all zeros"
	wantKernel  = "a path under /sys/devices/ without \"..\""
	wantRDMA    = "the name of an RDMA device: at most 63 characters without '/', ':', '%', spaces and control " +
		"characters"
)

// selectors are the fields that can select the device, as they were written.
type selectors struct {
	addresses []value // runtimeConfig.deviceID, deviceID, pciBusID: the first counts
	chosen    []value // device, hwaddr, kernelpath, rdmaDevice: at most one
	kinds     []SelectorKind
	guid      value
	master    value
}

// selectors collects the fields without judging them: in which mode they count comes later.
func (p *parser) selectors() selectors {
	var s selectors
	filled := func(v value) bool { return v.ok() && string(v.raw) != `""` }
	for _, v := range []value{p.find(p.runtime, "deviceID"), p.get("deviceID"), p.get("pciBusID")} {
		if filled(v) {
			s.addresses = append(s.addresses, v)
		}
	}
	for _, kind := range []SelectorKind{ByName, ByHWAddr, ByKernelPath, ByRDMADevice} {
		if v := p.get(string(kind)); filled(v) {
			s.chosen, s.kinds = append(s.chosen, v), append(s.kinds, kind)
		}
	}
	if v := p.get("guid"); filled(v) {
		s.guid = v
	}
	if v := p.get("master"); filled(v) {
		s.master = v
	}
	return s
}

// hasAddress tells that a bus address is there to select by. The RDMA shared device plugin hands out ids "0" to "N",
// which Multus injects like addresses.
func (s selectors) hasAddress() bool {
	if len(s.addresses) == 0 || s.addresses[0].raw[0] != '"' {
		return false
	}
	_, err := device.ParseAddress(unquote(s.addresses[0].raw))
	return err == nil
}

// injected is the device that Multus has put into the configuration because kubelet has given it to the pod: it writes
// the same value into "deviceID" and "pciBusID" of each plugin, and into runtimeConfig where the configuration has the
// capability (delegateAddDeviceID, multus-cni pkg/types/conf.go). A device that the pod's annotation names is in
// runtimeConfig only, one that a definition names in one of the fields.
func (s selectors) injected() string {
	fields := 0
	for _, v := range s.addresses {
		if string(v.raw) != string(s.addresses[0].raw) || v.raw[0] != '"' {
			return ""
		}
		if v.path == "deviceID" || v.path == "pciBusID" {
			fields++
		}
	}
	if fields != 2 {
		return ""
	}
	return unquote(s.addresses[0].raw)
}

// selector resolves the device of modes device and rdma.
//
// A selector that someone wrote wins over a bus address, as in host-device (getLink looks at device, hwaddr,
// kernelpath, then at the address), because Multus adds the address to each plugin without being asked. "guid" selects
// only where nothing else does; beside another selector it is the GUID that the VF is to have.
func (p *parser) selector(s selectors) {
	if len(s.chosen) > 1 {
		a, b := s.chosen[0], s.chosen[1]
		p.fail(&Error{
			Code:    CodeConfig,
			Field:   b.path,
			Value:   shown(b.raw),
			Problem: `is a second selector beside "` + a.path + `" (` + shown(a.raw) + ")",
			Allowed: "one selector",
		})
	}
	p.ignore(s.master)
	switch {
	case len(s.chosen) > 0:
		p.choose(s.kinds[0], s.chosen[0])
		p.ignore(s.addresses...)
	case len(s.addresses) > 0:
		p.choose(ByAddress, s.addresses[0])
		p.cfg.Injected = s.injected()
		for _, v := range s.addresses[1:] {
			if string(v.raw) != string(s.addresses[0].raw) {
				p.ignore(v)
			}
		}
	case s.guid.ok():
		p.choose(ByGUID, s.guid)
		return
	case p.env.Command == "ADD" && !p.cfg.FromClaim && (p.cfg.Mode == ModeDevice || p.cfg.PrevResult == nil):
		p.fail(noSelector(p.cfg.Mode))
	}
	if g := p.guid(s.guid); g != nil {
		p.vf = append(p.vf, s.guid)
		if p.cfg.VF.GUID == nil {
			p.cfg.VF.GUID = g
		}
	}
}

func noSelector(m Mode) *Error {
	e := &Error{
		Code:    CodeConfig,
		Field:   "deviceID",
		Problem: "is missing, and no other field selects a device",
		Allowed: "one of runtimeConfig.deviceID, deviceID, pciBusID, device, hwaddr, kernelpath, rdmaDevice, guid",
		Hint: "Multus injects deviceID only if the NetworkAttachmentDefinition has the annotation " +
			"k8s.v1.cni.cncf.io/resourceName " +
			"and the pod asks for that resource",
	}
	if m == ModeRDMA {
		e.Allowed += ", or a prevResult to derive it from"
	}
	return e
}

// choose reads the value of the selector that counts.
func (p *parser) choose(kind SelectorKind, v value) {
	allowed := map[SelectorKind]string{
		ByAddress: wantAddress, ByName: wantName, ByHWAddr: wantHWAddr, ByKernelPath: wantKernel,
		ByRDMADevice: wantRDMA, ByGUID: wantGUID,
	}[kind]
	s, ok := p.text(v, allowed)
	if !ok {
		return
	}
	sel := Selector{Kind: kind, Field: v.path, Value: s}
	switch kind {
	case ByAddress:
		var err error
		sel.Address, err = device.ParseAddress(s)
		ok = err == nil
	case ByName:
		ok = isName(s)
	case ByHWAddr:
		sel.HWAddr, ok = parseHWAddr(s)
		if len(sel.HWAddr) == 8 {
			sel.GUID, _ = device.ParseGUID(sel.HWAddr.String())
		}
	case ByKernelPath:
		sel.Value, ok = kernelPath(s)
	case ByRDMADevice:
		ok = isRDMAName(s)
	case ByGUID:
		g := p.guid(v)
		if g == nil {
			return
		}
		sel.GUID = *g
	}
	if !ok {
		e := notAllowed(v, allowed)
		if _, err := device.ParseAddress(s); err == nil {
			e.Hint = `a bus address belongs into "deviceID"`
		} else if kind == ByAddress && strings.Trim(s, "0123456789") == "" {
			e.Hint = "the RDMA shared device plugin hands out numbers, which select no device: name one in this " +
				"configuration"
		}
		p.fail(e)
		return
	}
	p.cfg.Selector = sel
}

// parseHWAddr reads an address of a netdev, or the GUID at the end of the address of an IPoIB netdev.
func parseHWAddr(s string) (net.HardwareAddr, bool) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		g, err := device.ParseGUID(s)
		for shift := 56; err == nil && shift >= 0; shift -= 8 {
			hw = append(hw, byte(g>>shift))
		}
	}
	return hw, (len(hw) == 6 || len(hw) == 8 || len(hw) == 20) && !isZero(hw)
}

// kernelPath tells a path below /sys/devices/ and nowhere else, and returns it without needless slashes. Where symbolic
// links in it lead is for the reader of sysfs to see.
func kernelPath(s string) (string, bool) {
	clean := path.Clean(s)
	return clean, len(s) <= maxPath && !hasControl(s) && strings.HasPrefix(clean, "/sys/devices/") &&
		!strings.Contains(s+"/", "/../")
}
