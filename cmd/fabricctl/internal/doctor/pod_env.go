package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// podEnvHCA judges the variables that select ports, each as its library reads it, by what nccl-env would set.
func podEnvHCA(p *Pod) (out []Finding) {
	for i := range nccl.Libraries {
		l := &nccl.Libraries[i]
		if value := p.Env[l.Var]; value != "" {
			out = append(out, p.envHCA(l, value)...)
		}
	}
	if p.Env["NCCL_IB_HCA"] == "" {
		out = append(out, p.noHCA()...)
	}
	return out
}

// noHCA finds ports that NCCL takes as it is told nothing, and should not: those that the container can open.
func (p *Pod) noHCA() []Finding {
	l := &nccl.Libraries[0]
	if len(p.choice.Ports) == 0 {
		return nil
	}
	v := p.choice.Judge(l, "", p.isInterface)
	var ports, others []string
	for _, left := range v.Left {
		if p.opens(left.Port.HCA) && left.Why != nccl.Function {
			ports = append(ports, left.Port.Name()+" ("+left.Why.String()+")")
		}
	}
	for _, name := range slices.Concat(v.Others[node.NetdevElsewhere], v.Others[node.NotNamed]) {
		if hca, _, _ := strings.Cut(name, ":"); p.opens(hca) {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		ports = append(ports, "what was not given to this pod ("+few(others)+")")
	}
	if len(ports) == 0 {
		return nil
	}
	f := finding("pod-env-hca", Warn, l.Var+" is not set here: NCCL takes "+few(ports)+" as well")
	f.Cause = "without the variable NCCL takes every port that it can open"
	f.Cure = l.Var + "=" + p.choice.Value(l) + "; all variables: fabricctl nccl-env"
	return one(f)
}

// opens reports whether the container is known to have the character device of an HCA.
func (p *Pod) opens(hca string) bool {
	for u, name := range p.Verbs {
		if name == hca && slices.Contains(p.Uverbs, u) && !slices.Contains(p.Denied, u) {
			return true
		}
	}
	return false
}

func (p *Pod) envHCA(l *nccl.Library, value string) (out []Finding) {
	v := p.choice.Judge(l, value, p.isInterface)
	text := l.Var + "=" + value
	say := func(s Status, cause, what string) {
		f := finding("pod-env-hca", s, text+": "+what)
		f.Cause = cause
		if len(p.choice.Ports) > 0 {
			f.Cure = l.Var + "=" + p.choice.Value(l) + "; all variables: fabricctl nccl-env"
		}
		out = append(out, f)
	}
	if len(v.Missing) > 0 {
		say(Fail, "names of another node, of the host or of another pod", "not in the pod: "+few(v.Missing))
	}
	const notOurs = "the list has ports that were not given to this pod"
	for _, w := range []struct {
		why  node.ForeignReason
		text string
	}{
		{node.NetdevElsewhere, "the interface is in another network namespace: "},
		{node.NoCharDevice, "the container has no character device of "},
		{node.NotNamed, "given to another pod (" + node.NotNamed.String() + "): "},
	} {
		if ports := v.Others[w.why]; len(ports) > 0 {
			say(Warn, notOurs, w.text+few(ports))
		}
	}
	var left []string
	for i := range v.Left {
		left = append(left, v.Left[i].Say())
	}
	if len(left) > maxLeft {
		left = append(left[:maxLeft:maxLeft], fmt.Sprintf("%d more ports that should not be used", len(left)-maxLeft))
	}
	if len(left) > 0 {
		say(Warn, "the list has ports that are no rails, or can't work", strings.Join(left, "; "))
	}
	const part = "the list was written for other hardware, or before a port went down"
	all := v.Used + len(v.Unused)
	switch last := len(out) - 1; {
	case v.Dead && last >= 0: // that is why
		out[last].Status = Fail
		out[last].Evidence += ". No port that can work: " + l.Without
	case v.Dead:
		say(Fail, "the list leaves out every port of the pod", "no port that can work: "+l.Without)
	case v.Host && all > 0: // its GID may not even be the pod's
		out[last].Status = Fail
		out[last].Evidence += fmt.Sprintf(". None of %s: %s", countRails(all), few(v.Unused))
	case v.Other:
	case v.Used == 0 && all > 0:
		say(Warn, part, fmt.Sprintf("none of %s: %s", countRails(all), few(v.Unused)))
	case len(v.Unused) > 0:
		say(Warn, part, fmt.Sprintf("%d of %s; not used: %s", v.Used, countRails(all), few(v.Unused)))
	}
	if len(out) == 0 {
		return one(finding("pod-env-hca", OK, text))
	}
	return out
}

func countRails(n int) string {
	if n == 1 {
		return "1 rail"
	}
	return strconv.Itoa(n) + " rails"
}

// maxLeft bounds what is said of one variable.
const maxLeft = 8

// isInterface reports whether a name is that of an interface. Where not all of them are known, those of the cluster's
// network may be called anything that is usual for them.
func (p *Pod) isInterface(name string) bool {
	if len(p.Interfaces) > 0 {
		return slices.Contains(p.Interfaces, name)
	}
	return p.Node.Netdev(name) != nil || strings.HasPrefix(name, "eth") || name == "lo"
}

// podGIDIndex judges the index of the GID on the ports that the library uses.
func podGIDIndex(p *Pod) (out []Finding) {
	for _, v := range []struct {
		name, automatic string
		ports           *nccl.Library
	}{
		{"NCCL_IB_GID_INDEX", "-1", &nccl.Libraries[0]},
		{"UCX_IB_GID_INDEX", "auto", &nccl.Libraries[1]},
		{"NVSHMEM_IB_GID_INDEX", "-1", &nccl.Libraries[2]},
	} {
		want, ok := p.Env[v.name]
		if !ok || want == v.automatic {
			continue
		}
		index, err := strconv.Atoi(want)
		if err != nil {
			out = append(out, finding("pod-gid-index", Fail, v.name+"="+want+" is no number"))
			continue
		}
		list := nccl.List{All: true}
		if value := p.Env[v.ports.Var]; value != "" {
			list = v.ports.Parse(value)
		}
		out = append(out, p.gidIndex(v.name, index, &list)...)
	}
	return out
}

func (p *Pod) gidIndex(name string, index int, list *nccl.List) (out []Finding) {
	var missing, local []string
	p.ports(func(h *node.HCA, q *node.Port) {
		if !q.Active() || q.LinkLayer != device.Ethernet || !list.Selects(h.Name, q.Number) {
			return
		}
		i := slices.IndexFunc(q.GIDs, func(g node.GID) bool { return g.Index == index })
		switch {
		case i < 0:
			missing = append(missing, h.Name)
		case q.GIDs[i].Type != device.RoCEv2 || q.GIDs[i].Addr().IsLinkLocalUnicast():
			local = append(local, fmt.Sprintf("%s: %s of type %s", h.Name, q.GIDs[i].GID, q.GIDs[i].Type))
		}
	})
	text := name + "=" + strconv.Itoa(index)
	if len(missing) > 0 {
		out = append(out, finding("pod-gid-index", Fail, text+" is no entry of "+few(missing)))
	}
	if len(local) > 0 {
		f := finding("pod-gid-index", Warn, text+" is not the RoCE v2 GID of an IP address on "+few(local))
		f.Cause = "the order of the table is that in which addresses were added: a link-local GID does not reach " +
			"other subnets, and RoCE v1 is not routed"
		out = append(out, f)
	}
	return pass(out, "pod-gid-index", text)
}

// podEnvCrossNIC finds a value that pairs rails which do not reach each other.
func podEnvCrossNIC(p *Pod) []Finding {
	value, set := p.Env["NCCL_CROSS_NIC"]
	switch {
	case !set || len(p.choice.Ports) < 2 || !p.choice.Fabric.Planes:
		return nil
	case value == "0":
		return one(finding("pod-env-cross-nic", OK, "NCCL_CROSS_NIC=0"))
	case value == "1":
		return one(finding("pod-env-cross-nic", Fail, "NCCL_CROSS_NIC=1, and the rails are planes"))
	}
	return one(finding("pod-env-cross-nic", Warn, "NCCL_CROSS_NIC="+value+", and the rails are planes"))
}

// podEnvDataDirect finds a value that leaves the short way to GPU memory unused.
func podEnvDataDirect(p *Pod) []Finding {
	value, set := p.Env["NCCL_IB_DATA_DIRECT"]
	i := slices.IndexFunc(p.choice.Ports, func(port topology.Port) bool {
		h := p.Node.HCA(port.HCA)
		return h != nil && h.DataDirect != nil
	})
	switch {
	case !set || i < 0:
		return nil
	case value != "0":
		return one(finding("pod-env-data-direct", OK, "NCCL_IB_DATA_DIRECT="+value))
	}
	hca := p.choice.Ports[i].HCA
	return one(finding("pod-env-data-direct", Warn, "NCCL_IB_DATA_DIRECT=0, and "+hca+" has the Data Direct function "+
		p.Node.HCA(hca).DataDirect.PCI))
}

// podEnvSocket judges the variables that name the interface of the bootstrap: NCCL's as NCCL reads it, Gloo's as a list
// of whole names.
func podEnvSocket(p *Pod) (out []Finding) {
	if value := p.Env["NCCL_SOCKET_IFNAME"]; value != "" && !strings.HasPrefix(value, "^") {
		out = append(out, p.ncclSocket(value)...)
	}
	value := p.Env["GLOO_SOCKET_IFNAME"]
	if value == "" {
		return out
	}
	for name := range strings.SplitSeq(value, ",") {
		if !p.isInterface(name) {
			return append(out, finding("pod-env-socket", Fail,
				"GLOO_SOCKET_IFNAME="+value+": the pod has no interface "+strconv.Quote(name)))
		}
	}
	if value == "lo" {
		return append(out, loopback("GLOO_SOCKET_IFNAME="+value))
	}
	return append(out, finding("pod-env-socket", OK, "GLOO_SOCKET_IFNAME="+value))
}

func (p *Pod) ncclSocket(value string) []Finding {
	exact := strings.HasPrefix(value, "=")
	names := p.Interfaces
	if len(names) == 0 {
		for _, d := range p.Node.Netdevs {
			names = append(names, d.Name)
		}
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(value, "="), ",") {
		name, _, _ = strings.Cut(name, ":")
		fits := func(d string) bool { return d == name || !exact && name != "" && strings.HasPrefix(d, name) }
		if name == "lo" {
			return one(loopback("NCCL_SOCKET_IFNAME=" + value))
		}
		if slices.ContainsFunc(names, fits) {
			return one(finding("pod-env-socket", OK, "NCCL_SOCKET_IFNAME="+value))
		}
		// Where not all interfaces are known, the cluster's own is missing.
		if len(p.Interfaces) == 0 && strings.HasPrefix(name, "eth") {
			return nil
		}
	}
	return one(finding("pod-env-socket", Fail, "NCCL_SOCKET_IFNAME="+value+" fits no interface of the pod"))
}

// loopback is what to say of a bootstrap over lo.
func loopback(text string) Finding {
	f := finding("pod-env-socket", Warn, text+": ranks of other pods can't be reached over lo")
	f.Cause = "each pod has a loopback interface of its own: between nodes the bootstrap connects to itself"
	return f
}
