package node

import (
	"fmt"
	"strconv"
	"strings"
)

// staying are the drivers whose RDMA devices can't be moved between network namespaces, by that of the PCI function: in
// all kernels, or as far as that is known up to 6.1 only. See kernel fact 8 in docs/kernel.md.
var staying = []struct {
	function, rdma string
	upTo61         bool
}{
	{"efa", "efa", false}, {"qede", "qedr", false}, {"cxgb4", "iw_cxgb4", false}, {"be2net", "ocrdma", false},
	{"enic", "usnic_verbs", false}, {"hfi1", "hfi1", false}, {"ib_qib", "ib_qib", false},
	{"ib_mthca", "ib_mthca", false}, {"bnxt_en", "bnxt_re", true}, {"mana", "mana_ib", true},
}

// Stays says why the HCA can't be moved between network namespaces with this kernel (as uname -r writes it); empty: it
// can, or it is not known.
func (h *HCA) Stays(kernel string) string {
	for _, d := range staying {
		switch {
		case d.function != h.Driver:
		case !d.upTo61:
			return "driver " + d.rdma
		case KernelAtLeast(kernel, 0, 0) && !KernelAtLeast(kernel, 6, 2):
			return fmt.Sprintf("driver %s of Linux %s", d.rdma, kernel)
		}
	}
	return ""
}

// KernelAtLeast compares the first two numbers of a kernel's release (6.8.0-1021-nvidia-64k). It is false for text that
// has none.
func KernelAtLeast(release string, major, minor int) bool {
	parts := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	b, bad := strconv.Atoi(parts[1])
	return err == nil && bad == nil && (a > major || a == major && b >= minor)
}
