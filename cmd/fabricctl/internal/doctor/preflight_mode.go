package doctor

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// NetnsModes are the values of ib_core's netns_mode, by the mode.
var NetnsModes = map[string]string{device.NetnsExclusive.String(): "0", device.NetnsShared.String(): "1"}

// modes are the RDMA modes of nodes as agents, or the SR-IOV network operator, have reported them.
func (p *Preflight) modes() map[string]string {
	out := map[string]string{}
	add := func(node, mode string) {
		if NetnsModes[mode] != "" {
			out[node] = mode
		}
	}
	for i := range p.States {
		add(p.States[i].Metadata.Name, p.States[i].Status.System.RDMAMode)
	}
	for i := range p.FabricNodes {
		if f := &p.FabricNodes[i]; f.Spec.Gone == nil {
			add(f.Name, f.Status.RDMAMode)
		}
	}
	return out
}

// pending are the nodes with HCAs, or that may have some, that are not known to be in the wanted mode.
func (p *Preflight) pending() (out []*corev1.Node) {
	modes := p.modes()
	list, _ := p.hcaNodes()
	for _, n := range list {
		if modes[n.Name] != p.Mode {
			out = append(out, n)
		}
	}
	return out
}

func preflightMode(p *Preflight) []Finding {
	modes, by := p.modes(), map[string][]string{}
	list, _ := p.hcaNodes()
	for _, n := range list {
		if m := modes[n.Name]; m != "" {
			by[m] = append(by[m], quote.Clip(n.Name, maxName))
		}
	}
	if len(by) == 0 {
		return nil // preflight-local says how to see it
	}
	if len(by) == 1 && len(by[p.Mode]) > 0 {
		return one(finding("preflight-rdma-mode", OK, spread(by, maxName)))
	}
	return one(finding("preflight-rdma-mode", Warn, spread(by, maxName)+", wanted is "+p.Mode))
}

// sealed are systems whose initramfs belongs to their image, by a word of osImage.
var sealed = []string{"Talos", "Bottlerocket", "CoreOS", "Flatcar", "Container-Optimized"}

// preflightModeOwner finds who sets the mode, or the files that decide it.
func preflightModeOwner(p *Preflight) (out []Finding) {
	const id = "preflight-mode-owner"
	say := func(object, mode string) {
		if mode == p.Mode {
			out = append(out, finding(id, OK, object+" sets "+mode))
			return
		}
		out = append(out, finding(id, Warn, object+" sets "+quote.Clip(mode, 40)+", wanted is "+p.Mode))
	}
	for i := range p.Pools {
		if c := &p.Pools[i]; c.Spec.RDMAMode != "" {
			say("SriovNetworkPoolConfig "+c.Metadata.String(), c.Spec.RDMAMode)
		}
	}
	machines := false
	for i := range p.MachineConfigs {
		m := &p.MachineConfigs[i]
		switch modeParameter(strings.Join(m.Spec.KernelArguments, " ")) {
		case "0":
			say("MachineConfig "+m.Metadata.String(), device.NetnsExclusive.String())
		case "1":
			say("MachineConfig "+m.Metadata.String(), device.NetnsShared.String())
		default:
			continue
		}
		machines = true
	}
	pending := p.pending()
	if len(p.Features[featureMachines]) > 0 && !machines && len(pending) > 0 && p.stops() == Fail {
		out = append(out, finding(id, Warn, "the machine config operator writes the files of nodes, and no "+
			"MachineConfig sets the RDMA mode"))
	}
	by := map[string][]string{}
	for _, n := range pending {
		if os := n.Status.NodeInfo.OSImage; slices.ContainsFunc(sealed, func(w string) bool {
			return strings.Contains(os, w)
		}) {
			by[quote.Clip(os, 64)] = append(by[quote.Clip(os, 64)], quote.Clip(n.Name, maxName))
		}
	}
	if len(by) > 0 && p.stops() == Fail && len(p.Features[featureMachines]) == 0 {
		f := finding(id, Warn, "the initramfs is part of the image of the system: "+spread(by, 64))
		f.Cause = "modprobe.d of the node does not reach an ib_core that is loaded from such an initramfs"
		f.Cure = "ib_core.netns_mode=0 on the kernel command line, by the means of that system"
		out = append(out, f)
	}
	return out
}

// ModeOwners are the findings for which the mode of these nodes is not node-mode's to change: an operator sets it, a
// driver container loads ib_core with its own modprobe.d, or the initramfs is part of the image of the system.
func ModeOwners(p *Preflight, mode string, nodes []string) (out []Finding) {
	few := *p
	few.Mode = device.NetnsExclusive.String() // in shared mode nothing stops, and owners would not be looked for
	few.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), func(n corev1.Node) bool {
		return !slices.Contains(nodes, n.Name)
	})
	few.FabricNodes, few.States = nil, nil // in which mode they are does not matter
	for _, f := range slices.Concat(preflightModeOwner(&few), preflightDriver(&few)) {
		switch {
		case f.ID == "preflight-mode-owner":
			out = append(out, f)
		case f.Status == Warn:
			f.Cure = strings.ReplaceAll(f.Cure, "=0", "="+NetnsModes[mode])
			out = append(out, f)
		}
	}
	return out
}

// preflightLocal names the nodes of which the API server does not know enough.
func preflightLocal(p *Preflight) []Finding {
	modes := p.modes()
	var dark, seen []*corev1.Node
	for _, n := range p.pending() {
		if modes[n.Name] == "" {
			dark = append(dark, n)
		} else {
			seen = append(seen, n)
		}
	}
	var parts []string
	if len(dark) > 0 {
		parts = append(parts, "RDMA mode, driver and programs of the host are not known of "+few(nodeNames(dark)))
	}
	if len(seen) > 0 && p.stops() == Fail { // exclusive mode stops what is not seen here
		parts = append(parts, "driver and programs of the host are not known of "+few(nodeNames(seen)))
	}
	if len(parts) == 0 {
		return nil
	}
	return one(finding("preflight-local", Warn, strings.Join(parts, "; ")))
}

// driverWords are in the names and images of the containers that load NVIDIA's driver.
var driverWords = []string{"mofed", "doca-driver"}

// preflightDriver finds driver containers. Which driver the node itself has is not in the API.
func preflightDriver(p *Preflight) (out []Finding) {
	const id = "preflight-driver"
	status := Warn
	if p.stops() == OK || len(p.pending()) == 0 {
		status = OK
	}
	for i := range p.DaemonSets {
		d := &p.DaemonSets[i]
		image, ok := d.has(driverWords)
		if !ok || !p.selects(d.Spec.Template.Spec.NodeSelector) {
			continue
		}
		out = append(out, finding(id, status, fmt.Sprintf("driver container %s (%s), on %d nodes", d.label(), image,
			d.Status.DesiredNumberScheduled)))
	}
	for i := range p.Policies {
		c := &p.Policies[i]
		if d := c.Spec.Driver; d != nil && len(out) == 0 && p.selects(c.Spec.NodeSelector) {
			out = append(out, finding(id, status, fmt.Sprintf("%s %s has a driver container (%s %s)", c.Kind,
				c.Metadata, quote.Clip(d.Image, 64), quote.Clip(d.Version, 64))))
		}
	}
	if len(out) > 0 || !p.Listed["daemonsets"] {
		return out
	}
	text := "no driver container"
	drivers := map[string]bool{}
	for i := range p.FabricNodes {
		if n := p.FabricNodes[i].Node; n != nil {
			for j := range n.HCAs {
				if d := n.HCAs[j].Driver; d != "" {
					drivers[quote.Clip(d, 40)] = true
				}
			}
		}
	}
	if len(drivers) > 0 {
		text += "; HCAs have " + few(slices.Sorted(maps.Keys(drivers)))
	}
	return one(finding(id, OK, text))
}

// selects reports whether a nodeSelector may fit one of the nodes: all fit nodes that are not known.
func (p *Preflight) selects(labelled map[string]string) bool {
	if !p.Listed["nodes"] {
		return true
	}
	selector := labels.SelectorFromSet(labelled)
	return slices.ContainsFunc(p.Nodes, func(n corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) })
}

// label is namespace/name, bounded.
func (d *DaemonSet) label() string { return objectName{d.Name, d.Namespace}.String() }

// has finds a word in the name or in an image of a DaemonSet; image is the one that it is in, else the first.
func (d *DaemonSet) has(words []string) (image string, ok bool) {
	in := func(s string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	}
	ok = in(d.Name)
	for _, c := range slices.Concat(d.Spec.Template.Spec.Containers, d.Spec.Template.Spec.InitContainers) {
		if at := path.Base(c.Image); image == "" || in(at) {
			image, ok = quote.Clip(at, 128), ok || in(at)
		}
	}
	return image, ok
}
