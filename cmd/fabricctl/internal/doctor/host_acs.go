package doctor

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// The ACS extended capability in a function's configuration space (PCI_EXT_CAP_ID_ACS and PCI_ACS_CTRL of
// linux/pci_regs.h). The kernel shows root all 4096 bytes of the space, and others 64.
const (
	extendedStart = 0x100
	acsID         = 0x000d
	acsControl    = 6
)

// The bits of the control register (PCI_ACS_RR, _CR, _UF) that send peer-to-peer traffic up to the root complex, as
// lspci -vv names them.
var redirects = []struct {
	bit  uint16
	name string
}{{1 << 2, "ReqRedir+"}, {1 << 3, "CmpltRedir+"}, {1 << 4, "UpstreamFwd+"}}

// acs returns the ACS control register in a configuration space. ok is false without the capability, and where the
// extended part was not readable.
func acs(config []byte) (control uint16, ok bool) {
	at := extendedStart
	for range 64 { // a broken list may be a circle
		if at < extendedStart || at+8 > len(config) {
			return 0, false
		}
		header := binary.LittleEndian.Uint32(config[at:])
		if header&0xffff == acsID {
			return binary.LittleEndian.Uint16(config[at+acsControl:]), true
		}
		at = int(header>>20) &^ 3
	}
	return 0, false
}

// bridges are the bridges that traffic from one place to another passes when a switch sends it the short way: those
// below the last one that both have. Without a common bridge it goes over the root complex in any case, and there are
// none.
func bridges(a, b []string) []string {
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	if common < 2 || len(a) <= common || len(b) <= common {
		return nil
	}
	return append(slices.Clone(a[common:len(a)-1]), b[common:len(b)-1]...)
}

// collectACS reads the control registers of the bridges between HCAs and their nearest GPUs.
func (h *Host) collectACS(root fs.FS) {
	h.ACS = map[string]uint16{}
	h.pairs(func(_ *node.HCA, _ *node.GPU, between []string) {
		for _, b := range between {
			dir := node.Real(root, path.Join("sys/bus/pci/devices", b))
			if dir == "" {
				continue
			}
			config, err := fs.ReadFile(root, path.Join(dir, "config"))
			if control, ok := acs(config); err == nil && ok {
				h.ACS[b] = control
			}
		}
	})
}

// pairs calls f for each HCA and each of its nearest GPUs that are below one switch. Those that meet by a Data Direct
// function want other settings of ACS on each bridge (rdma_topo check).
func (h *Host) pairs(f func(*node.HCA, *node.GPU, []string)) {
	for i := range h.Node.HCAs {
		hca := &h.Node.HCAs[i]
		for _, near := range hca.GPUs {
			j := slices.IndexFunc(h.Node.GPUs, func(g node.GPU) bool { return g.Index == near.GPU })
			if j < 0 {
				continue
			}
			if hca.DataDirect != nil {
				continue
			}
			if between := bridges(hca.Path, h.Node.GPUs[j].Path); len(between) > 0 {
				f(hca, &h.Node.GPUs[j], between)
			}
		}
	}
}

func hostACS(h *Host, _ topology.Fabrics) (out []Finding) {
	who, order := map[string][]string{}, []string{}
	known := 0
	h.pairs(func(hca *node.HCA, gpu *node.GPU, between []string) {
		for _, b := range between {
			if _, ok := h.ACS[b]; !ok {
				continue
			}
			known++
			if who[b] == nil {
				order = append(order, b)
			}
			who[b] = append(who[b], fmt.Sprintf("%s and GPU %d", hca.Name, gpu.Index))
		}
	})
	for _, b := range order {
		var bits []string
		for _, r := range redirects {
			if h.ACS[b]&r.bit != 0 {
				bits = append(bits, r.name)
			}
		}
		if len(bits) > 0 {
			f := finding(
				"host-acs",
				Warn,
				fmt.Sprintf(
					"%s, between %s: ACSCtl %s",
					b,
					strings.Join(slices.Compact(who[b]), ", "),
					strings.Join(bits, " "),
				),
			)
			f.Cure = "until the next boot: setpci -s " + quote.Shell(b) + " ECAP_ACS+6.w=0000. " + f.Cure
			out = append(out, f)
		}
	}
	if known == 0 {
		return nil // no switch between them, no capability, or not root
	}
	return pass(out, "host-acs", fmt.Sprintf("%d bridges between GPUs and HCAs, none redirects", len(order)))
}
