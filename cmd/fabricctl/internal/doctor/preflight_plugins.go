package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// preflightMultus finds out whether Multus runs, and where it does not.
func preflightMultus(p *Preflight) (out []Finding) {
	const id = "preflight-multus"
	if p.Features != nil && len(p.Features[featureNetworks]) == 0 {
		return one(finding(id, Fail, "the API server does not serve NetworkAttachmentDefinition"))
	}
	nodes, known := p.hcaNodes()
	var seen []string
	for i := range p.DaemonSets {
		d := &p.DaemonSets[i]
		if !strings.Contains(d.Name, "multus") || strings.Contains(d.Name, "admission") {
			continue
		}
		image, _ := d.has([]string{"multus"})
		text := fmt.Sprintf("%s (%s%s)", d.label(), image, thickness(&d.Spec.Template.Spec))
		seen = append(seen, text)
		s := &d.Status
		switch {
		case s.NumberReady < s.DesiredNumberScheduled:
			out = append(out, finding(id, Warn, fmt.Sprintf("%s is ready on %d of %d nodes", text, s.NumberReady,
				s.DesiredNumberScheduled)))
		case known && int(s.DesiredNumberScheduled) < len(nodes):
			out = append(out, finding(id, Warn, fmt.Sprintf("%s is wanted on %d %s, and HCAs are in %d", text,
				s.DesiredNumberScheduled, plural(int(s.DesiredNumberScheduled), "node"), len(nodes))))
		}
	}
	switch {
	case len(seen) > 0:
		return pass(out, id, few(seen))
	case !p.Listed["daemonsets"]:
		return nil
	}
	f := finding(id, Warn, "no DaemonSet of Multus")
	f.Cause = "only its kind of object is there; or it was installed without a DaemonSet, which can't be seen here"
	return one(f)
}

// thickness tells the two kinds of Multus apart, by what its container runs; empty: it does not show.
func thickness(s *corev1.PodSpec) string {
	for _, c := range s.Containers {
		words := strings.Join(slices.Concat(c.Command, c.Args), " ")
		switch {
		case strings.Contains(words, "multus-daemon"), strings.HasSuffix(c.Image, "-thick"):
			return ", thick"
		case strings.Contains(words, "thin_entrypoint"):
			return ", thin"
		}
	}
	return ""
}

// shared reports whether a resource is one of the RDMA shared device plugin: its prefix is rdma/ unless its
// configuration has another one.
func (p *Preflight) shared(resource string) bool {
	if p.sharedNames == nil {
		p.sharedNames = map[string]bool{}
		for i := range p.Policies {
			p.addShared(&p.Policies[i])
		}
	}
	return strings.HasPrefix(resource, "rdma/") || p.sharedNames[resource]
}

// addShared adds the resources of a policy. A configuration that can't be read adds nothing: the plugin reads
// it no better.
func (p *Preflight) addShared(c *NicPolicy) {
	var conf struct {
		List []struct {
			Name   string `json:"resourceName"`
			Prefix string `json:"resourcePrefix"`
		} `json:"configList"`
	}
	if c.Spec.Shared == nil || json.Unmarshal([]byte(c.Spec.Shared.Config), &conf) != nil {
		return
	}
	for _, r := range conf.List {
		if r.Prefix != "" {
			p.sharedNames[r.Prefix+"/"+r.Name] = true
		}
	}
}

// offers counts the nodes that offer a resource, of those that which takes.
func (p *Preflight) offers(which func(resource string) bool) map[string]int {
	out := map[string]int{}
	for i := range p.Nodes {
		for name := range p.Nodes[i].Status.Allocatable {
			if r := string(name); which(r) && countOf(&p.Nodes[i], r) > 0 {
				out[quote.Clip(r, 2*maxName)]++
			}
		}
	}
	return out
}

// nodesOf is "rdma/a (36 nodes), rdma/b (1 node)", of a few.
func nodesOf(by map[string]int) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s (%d %s)", r, by[r], plural(by[r], "node")))
	}
	return few(parts)
}

func preflightSharedPlugin(p *Preflight) []Finding {
	const id = "preflight-shared-plugin"
	offered := p.offers(p.shared)
	var plugins []string
	for i := range p.DaemonSets {
		d := &p.DaemonSets[i]
		if image, ok := d.has([]string{"rdma-shared"}); ok {
			plugins = append(plugins, fmt.Sprintf("%s (%s)", d.label(), image))
		}
	}
	switch {
	case len(plugins) > 0 && len(offered) > 0:
		return one(p.stopped(id, few(plugins)+"; nodes offer "+nodesOf(offered)))
	case len(plugins) > 0:
		return one(p.stopped(id, few(plugins)))
	case len(offered) > 0:
		return one(p.stopped(id, "nodes offer "+nodesOf(offered)))
	case !p.Listed["nodes"] || !p.Listed["daemonsets"]:
		return nil
	}
	return one(finding(id, OK, "no RDMA shared device plugin, and no node offers rdma/..."))
}

// preflightPlugins finds resources of other device plugins that are HCAs.
func preflightPlugins(p *Preflight) []Finding {
	const id = "preflight-device-plugins"
	offered := p.offers(func(r string) bool {
		return !p.shared(r) && !strings.HasPrefix(r, Resource) && p.NADs.rail(r)
	})
	if len(offered) > 0 {
		return one(finding(id, Warn, "nodes offer "+nodesOf(offered)))
	}
	if !p.Listed["nodes"] {
		return nil
	}
	return one(finding(id, OK, "no node offers HCAs of another device plugin"))
}

// preflightIPAM says which IPAM plugins have pools in the cluster.
func preflightIPAM(p *Preflight) []Finding {
	if p.Features == nil {
		return nil
	}
	var has []string
	for _, f := range []string{featureWhereabout, featureNVIPAM} {
		if len(p.Features[f]) > 0 {
			has = append(has, f)
		}
	}
	if len(has) == 0 {
		return one(finding("preflight-ipam", OK, "neither whereabouts nor nv-ipam: addresses.nodeRanges needs neither"))
	}
	return one(finding("preflight-ipam", OK, strings.Join(has, ", ")+": a Fabric may use it, or addresses.nodeRanges"))
}
