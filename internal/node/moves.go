package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// staying are the drivers whose RDMA devices can't be moved between network namespaces, by that of the PCI function.
// Until is the last kernel in which that is known; empty: it is so in all. See kernel fact 8 in docs/kernel.md.
var staying = []struct{ function, rdma, until string }{
	{"efa", "efa", ""}, {"qede", "qedr", ""}, {"cxgb4", "iw_cxgb4", ""}, {"be2net", "ocrdma", ""},
	{"enic", "usnic_verbs", ""}, {"hfi1", "hfi1", ""}, {"ib_qib", "ib_qib", ""}, {"ib_mthca", "ib_mthca", ""},
	{"bnxt_en", "bnxt_re", "6.1"}, {"mana", "mana_ib", "6.1"},
}

// Stays says why the HCA can't be moved between network namespaces with this kernel (as uname -r writes it); empty: it
// can, or it is not known.
func (h *HCA) Stays(kernel string) string {
	for _, d := range staying {
		if d.function != h.Driver {
			continue
		}
		if d.until == "" {
			return "driver " + d.rdma
		}
		if now := release(kernel); now != nil && slices.Compare(now, release(d.until)) <= 0 {
			return fmt.Sprintf("driver %s of Linux %s", d.rdma, kernel)
		}
	}
	return ""
}

// release is the major and minor number of a kernel; nil for other text.
func release(kernel string) []int {
	var out []int
	for _, part := range strings.SplitN(kernel, ".", 3) {
		digits := strings.TrimRight(part, strings.TrimLeft(part, "0123456789"))
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil
		}
		if out = append(out, n); len(out) == 2 {
			return out
		}
	}
	return nil
}
