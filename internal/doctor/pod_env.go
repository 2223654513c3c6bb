package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
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
	for _, name := range slices.Concat(v.Others[node.Elsewhere], v.Others[node.Unnamed]) {
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
	say := func(s Status, what string) {
		f := finding("pod-env-hca", s, text+": "+what)
		if len(p.choice.Ports) > 0 {
			f.Cure = l.Var + "=" + p.choice.Value(l) + "; all variables: fabricctl nccl-env"
		}
		out = append(out, f)
	}
	if len(v.Missing) > 0 {
		say(Fail, "not in the pod: "+few(v.Missing))
	}
	for _, w := range []struct {
		why  node.Why
		text string
	}{
		{node.Elsewhere, "the interface is in another network namespace: "},
		{node.Closed, "the container has no character device of "},
		{node.Unnamed, "given to another pod (" + nccl.WhyOther(node.Unnamed) + "): "},
	} {
		if ports := v.Others[w.why]; len(ports) > 0 {
			say(Warn, w.text+few(ports))
		}
	}
	for i := range v.Left {
		if i == maxLeft {
			say(Warn, fmt.Sprintf("%d more ports that should not be used", len(v.Left)-i))
			break
		}
		say(Warn, v.Left[i].Say())
	}
	all := v.Used + len(v.Unused)
	switch last := len(out) - 1; {
	case v.Dead && last >= 0: // that is why
		out[last].Status = Fail
		out[last].Evidence += ". No port that can work: " + l.Without
	case v.Dead:
		say(Fail, "no port that can work: "+l.Without)
	case v.Other:
	case v.Used == 0 && all > 0:
		say(Warn, fmt.Sprintf("none of %s: %s", countRails(all), few(v.Unused)))
	case len(v.Unused) > 0:
		say(Warn, fmt.Sprintf("%d of %s; not used: %s", v.Used, countRails(all), few(v.Unused)))
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
	p.ports(func(h *node.HCA, q *node.Port) {
		if !q.Active() || q.LinkLayer != device.Ethernet || !list.Selects(h.Name, q.Number) {
			return
		}
		i := slices.IndexFunc(q.GIDs, func(g node.GID) bool { return g.Index == index })
		switch {
		case i < 0:
			out = append(out, finding("pod-gid-index", Fail,
				fmt.Sprintf("%s=%d, and %s has no such entry", name, index, h.Name)))
		case q.GIDs[i].Type != "RoCE v2" || q.GIDs[i].Addr().IsLinkLocalUnicast():
			out = append(out, finding("pod-gid-index", Warn, fmt.Sprintf("%s=%d is %s of type %s on %s", name, index,
				q.GIDs[i].GID, q.GIDs[i].Type, h.Name)))
		}
	})
	return pass(out, "pod-gid-index", name+"="+strconv.Itoa(index))
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
		if slices.ContainsFunc(names, fits) {
			return one(finding("pod-env-socket", OK, "NCCL_SOCKET_IFNAME="+value))
		}
		// Where not all interfaces are known, the cluster's own is missing.
		if len(p.Interfaces) == 0 && (strings.HasPrefix(name, "eth") || strings.HasPrefix(name, "lo")) {
			return nil
		}
	}
	return one(finding("pod-env-socket", Fail, "NCCL_SOCKET_IFNAME="+value+" fits no interface of the pod"))
}
