package attach

import (
	"fmt"
	"strings"
)

// refuseUpperDevices refuses a netdev on which something of the host sits: a VLAN, a macvlan, a tunnel. What sits there
// stays on the host, without a link, and its routes are gone: the kernel removes them when the netdev below goes down
// or leaves, and nothing restores them. Some kinds are deleted with it (drivers/net/vxlan/vxlan_core.c,
// vxlan_handle_lowerdev_unregister). A bond, bridge or VRF that it is part of is the policy's to judge.
func (d *decider) refuseUpperDevices() {
	n := d.Device.Netdev
	if n == nil {
		return
	}
	var names []string
	for i := range d.Uppers {
		u := &d.Uppers[i]
		if u.On != n.Index || u.Index == n.Master {
			continue
		}
		kind := u.Kind
		if kind == "" {
			kind = "netdev"
		}
		names = append(names, kind+" "+u.Name)
	}
	if len(names) == 0 {
		return
	}
	d.refuse(&Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("%s carries %s of the host, which would lose its link and its routes",
			n.Name, strings.Join(names, ", ")),
		Hint: "remove it first (ip link del NAME), or select a device that carries none",
	})
}

// refuseStrayDevices refuses a netdev on which something of another network namespace sits: a macvlan of another plugin
// in its pod would lose its link, and one that takes all frames, as in mode passthru, would have those of this pod.
func (d *decider) refuseStrayDevices() {
	if len(d.Strays) == 0 {
		return
	}
	s := d.Strays[0]
	d.refuse(&Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("%s carries %q in the network namespace %s", d.Device.Netdev.Name, s.Interface,
			s.Netns),
		Hint:    "remove it there (ip link del), or end the pod that has it",
		Passing: true,
	})
}
