package attach

import (
	"fmt"
	"strings"
)

// refuseBPFPrograms refuses a netdev that has BPF programs of the host. They stay on it when it moves (kernel fact 30):
// the pod's packets would go through them, and once the pod has removed one whose loader is gone, it can't be put back.
func (d *decider) refuseBPFPrograms() {
	n := d.Device.Netdev
	if n == nil || len(n.Kept.Programs) == 0 {
		return
	}
	var names []string
	for _, p := range n.Kept.Programs {
		names = append(names, p.String())
	}
	d.refuse(&Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("%s has BPF programs of the host on it: %s", n.Name, strings.Join(names, ", ")),
		Hint: "take them off (ip link set NAME xdp off, bpftool net), or tell the program that has put them there " +
			"to leave this device alone",
	})
}
