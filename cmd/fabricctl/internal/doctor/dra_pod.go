package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// podClaim is a claim that a pod asks for, by its name in the pod.
type podClaim struct {
	Name     string `json:"name"`
	Claim    string `json:"resourceClaimName"`
	Template string `json:"resourceClaimTemplateName"`
}

// podRequests are what a claim of the pod asks for, and what it was given.
type podRequests struct {
	name     string // for people: namespace/name, or that in the pod
	resource string // instead of a claim: the scheduler makes one for it
	claim    *claim // nil: not made yet
	requests []request
}

// CheckClaims says why a pod with ResourceClaims, or with networks that need them, does not start. nads may be nil: not
// known; so may d.
func CheckClaims(m *Manifest, nads *NADs, d *DRA) (out []Finding) {
	if m.Metadata.Namespace == "" {
		m.Metadata.Namespace = "default"
	}
	var claims []podRequests
	if d != nil {
		for _, text := range d.Missing {
			out = append(out, finding("pod-claim-access", Warn, text))
		}
		out = append(out, m.unused()...)
		var list []Finding
		list, claims = d.podClaims(m)
		out = append(out, list...)
		if !d.Partial {
			out = append(out, d.podClasses(claims)...)
			out = append(out, d.podAllocated(append(d.podResources(m), claims...))...)
		}
		out = append(out, d.podShared(claims)...)
		out = append(out, d.podEvents(m, slices.ContainsFunc(out, unallocated))...)
	}
	if d != nil || len(m.Spec.Claims) == 0 {
		out = append(out, claimCounts(m, nads, d, claims)...)
	}
	return out
}

// what names a request.
func (p *podRequests) what(r *request) string {
	if p.resource != "" {
		return "resource " + p.resource
	}
	return fmt.Sprintf("claim %s, request %q", p.name, r.Name)
}

// Resource is the prefix of our resources. Of a Fabric whose devices come from claims the scheduler makes a claim for a
// pod that asks for the resource, where it has the feature.
const Resource = draDriver + "/"

// podResources are the claims that the scheduler has to make for the resources of a pod that has no node yet.
func (d *DRA) podResources(m *Manifest) (out []podRequests) {
	asked := m.resources()
	for _, r := range slices.Sorted(maps.Keys(asked)) {
		class := strings.TrimPrefix(r, Resource) + "." + draDriver
		if strings.HasPrefix(r, Resource) && d.classes[class] && m.Spec.Node == "" {
			out = append(out, podRequests{resource: r, requests: []request{{Class: class, Count: asked[r]}}})
		}
	}
	return out
}

// Claimed reports whether a pod has to do with claims: it names one, or asks for a resource that may be made one.
func (m *Manifest) Claimed() bool {
	if len(m.Spec.Claims) > 0 {
		return true
	}
	for r := range m.resources() {
		if strings.HasPrefix(r, Resource) {
			return true
		}
	}
	return false
}

// unused finds claims of the pod that no container has: none of them gets the device files.
func (m *Manifest) unused() (out []Finding) {
	for _, c := range m.Spec.Claims {
		used := false
		for _, k := range slices.Concat(m.Spec.Containers, m.Spec.Init) {
			for _, u := range k.Resources.Claims {
				used = used || u.Name == c.Name
			}
		}
		if !used {
			out = append(out, finding("pod-claim-container", Fail,
				fmt.Sprintf("spec.resourceClaims has %q, and no container has it in resources.claims", c.Name)))
		}
	}
	if len(m.Spec.Claims) == 0 {
		return nil
	}
	return pass(out, "pod-claim-container", "a container has each claim")
}

// podClaims finds the claims of the pod, or says which step is missing before there is one.
func (d *DRA) podClaims(m *Manifest) (out []Finding, claims []podRequests) {
	made := map[string]string{}
	for _, s := range m.Status.Claims {
		made[s.Name] = s.Claim
	}
	for _, c := range m.Spec.Claims {
		p := podRequests{name: fmt.Sprintf("%q", c.Name)}
		name := network{m.Metadata.Namespace, c.Claim}
		template := network{m.Metadata.Namespace, c.Template}
		generated, known := made[c.Name]
		if c.Template != "" {
			name.Name = generated
		}
		_, isThere := d.templates[template]
		say := func(format string, args ...any) {
			out = append(out, finding("pod-claim", Fail, "claim "+p.name+": "+fmt.Sprintf(format, args...)))
		}
		switch {
		case name.Name != "":
			if p.claim = d.claim(name); p.claim == nil {
				say("the ResourceClaim %q does not exist in namespace %s", name.Name, name.Namespace)
				break
			}
			p.name, p.requests = p.claim.String(), p.claim.requests
		case known: // and empty: Kubernetes says that none is needed
		case !isThere:
			say("the ResourceClaimTemplate %q does not exist in namespace %s%s", c.Template, m.Metadata.Namespace,
				d.elsewhere(c.Template))
		default:
			p.requests = d.templates[template]
			if m.planned {
				break
			}
			say("Kubernetes has not made it of the ResourceClaimTemplate %q yet", c.Template)
		}
		claims = append(claims, p)
	}
	if len(claims) == 0 {
		return nil, nil
	}
	return pass(out, "pod-claim", fmt.Sprintf("%d, all there", len(claims))), claims
}

// elsewhere names a namespace that has the template.
func (d *DRA) elsewhere(template string) string {
	for _, n := range slices.SortedFunc(maps.Keys(d.templates), func(a, b network) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if n.Name == template {
			return "; there is " + n.String()
		}
	}
	return ""
}

func (d *DRA) podClasses(claims []podRequests) (out []Finding) {
	n := 0
	for _, p := range claims {
		for _, r := range p.requests {
			if r.Class == "" {
				continue
			}
			if n++; d.classes[r.Class] {
				continue
			}
			var ours []string
			for c := range d.classes {
				if c == draDriver || fabricOf(c) != "" {
					ours = append(ours, c)
				}
			}
			slices.Sort(ours)
			out = append(out, finding("pod-claim-class", Fail, fmt.Sprintf("claim %s, request %q: the DeviceClass "+
				"%q does not exist; of %s there are: %s", p.name, r.Name, r.Class, draDriver, orNone(few(ours)))))
		}
	}
	if n == 0 {
		return nil
	}
	return pass(out, "pod-claim-class", "all there")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// podAllocated says which request the scheduler can't satisfy. All claims of a pod have to be satisfied on one node.
func (d *DRA) podAllocated(claims []podRequests) (out []Finding) {
	total := map[string]*demand{}
	waiting := 0
	for _, p := range claims {
		if p.claim != nil && p.claim.allocated {
			continue
		}
		if len(p.requests) > 0 {
			waiting++
		}
		for i := range p.requests {
			want, known := demandOf(&p.requests[i])
			if !known {
				continue
			}
			if why := d.unmet(&want); why != "" {
				out = append(out, finding("pod-claim-allocated", Fail,
					p.what(&p.requests[i])+": "+why))
			}
			if t := total[want.fabric]; t != nil {
				t.count += want.count
				t.tolerations = append(t.tolerations, want.tolerations...)
			} else {
				total[want.fabric] = &demand{
					fabric: want.fabric, count: want.count, tolerations: slices.Clone(want.tolerations),
				}
			}
		}
	}
	if waiting == 0 {
		there := func(p podRequests) bool { return p.claim != nil }
		if !slices.ContainsFunc(claims, there) {
			return nil
		}
		return one(finding("pod-claim-allocated", OK, "the scheduler has given devices to all claims"))
	}
	for _, f := range slices.Sorted(maps.Keys(total)) {
		if why := d.unmet(total[f]); why != "" && len(out) == 0 {
			out = append(out, finding("pod-claim-allocated", Fail, "all requests together: "+why))
		}
	}
	for _, pool := range d.incomplete() {
		out = append(out, finding("pod-claim-pool", Warn, "pool "+pool))
	}
	if len(out) == 0 && len(total) > 0 {
		out = append(out, finding("pod-claim-allocated", Warn, "there are enough devices for each request on "+
			"one node, and the scheduler has not given them: requests for the same device, matchAttribute, other "+
			"drivers or the node's other resources decide"))
	}
	return out
}

// podShared finds claims that several pods have. A device is in one pod only, but for shares.
func (d *DRA) podShared(claims []podRequests) (out []Finding) {
	for _, p := range claims {
		ours := func(r resourcev1.DeviceRequestAllocationResult) bool { return r.Driver == draDriver }
		if p.claim != nil && slices.ContainsFunc(p.claim.results, ours) && len(p.claim.reservedBy) > 1 {
			out = append(out, finding("pod-claim-shared", Fail, fmt.Sprintf("claim %s has been given to %d pods: "+
				"%s", p.name,
				len(p.claim.reservedBy), few(p.claim.reservedBy))))
		}
	}
	return out
}

// unallocated is a finding that says which device the scheduler does not find.
func unallocated(f Finding) bool { return f.ID == "pod-claim-allocated" && f.Status == Fail }

// podEvents says what the messages of kubelet, scheduler and controllers about a pod that does not start mean. known:
// it has been said why the scheduler finds no devices.
func (d *DRA) podEvents(m *Manifest, known bool) (out []Finding) {
	if m.Status.Phase != "Pending" {
		return nil
	}
	seen := map[string]bool{}
	for i := len(d.events) - 1; i >= 0; i-- { // the newest is the last
		e := &d.events[i]
		other := e.Involved.UID != "" && m.Metadata.UID != "" && e.Involved.UID != m.Metadata.UID
		if e.Type != "Warning" || other || e.Involved.Kind != "Pod" || e.Involved.Name != m.Metadata.Name ||
			e.Involved.Namespace != m.Metadata.Namespace {
			continue
		}
		for _, x := range Explain(strings.ReplaceAll(e.Message, "\n", " ")) {
			if seen[x.ID] || known && x.ID == "log-dra-allocate" {
				continue
			}
			seen[x.ID] = true
			f := finding("pod-event", Fail, e.Reason+": "+x.Line)
			f.Cause, f.Cure, f.Docs = x.Cause, x.Cure, x.Docs
			out = append(out, f)
		}
	}
	return out
}

// claimCounts compares networks with the devices of claims, by Fabric. Each network takes one device; the others are
// attached before the first container starts, without a network.
func claimCounts(m *Manifest, nads *NADs, d *DRA, claims []podRequests) (out []Finding) {
	if nads == nil || m.Spec.HostNetwork {
		return nil
	}
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	if err != nil {
		return nil // CheckManifest says it
	}
	need := map[string]int{}
	for _, w := range want {
		if n := nads.find(w); n != nil && n.claimed() {
			need[n.Metadata.Name]++
		}
	}
	have, sure := d.given(claims)
	for r, n := range m.resources() {
		if f, ok := strings.CutPrefix(r, Resource); ok && need[f] > 0 {
			have[f] += n
		}
	}
	for _, f := range slices.Sorted(maps.Keys(union(need, have))) {
		text := fmt.Sprintf("fabric %s: %d %s of it in the annotation, %d %s of it in the pod's claims", f, need[f],
			plural(need[f], "network"), have[f], plural(have[f], "device"))
		switch {
		case need[f] > have[f] && sure:
			out = append(out, finding("pod-claim-count", Fail, text))
		case need[f] <= have[f]:
			out = append(out, finding("pod-claim-count", OK, text))
		}
	}
	if len(want) == 0 && len(have) == 0 && len(m.Spec.Claims) > 0 && sure {
		out = append(out, finding("pod-annotation", Fail, "no annotation "+networksAnnotation+", and no ResourceClaim "+
			"of the pod gives it a device of a Fabric"))
	}
	return out
}

func union(a, b map[string]int) map[string]int {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// given is how many devices of each Fabric the claims give, or will give; sure: all of them are known.
func (d *DRA) given(claims []podRequests) (have map[string]int, sure bool) {
	have, sure = map[string]int{}, true
	by := map[[2]string]string{} // pool, device -> Fabric
	if d != nil {
		for _, o := range d.offers() {
			by[[2]string{o.pool, o.name}] = o.fabric
		}
	}
	for _, p := range claims {
		if p.claim != nil && p.claim.allocated {
			for _, r := range p.claim.results {
				if r.Driver != draDriver {
					continue
				}
				f := by[[2]string{r.Pool, r.Device}]
				if f == "" {
					f = fabricOf(p.class(r.Request))
				}
				if f == "" {
					sure = false
					continue
				}
				have[f]++
			}
			continue
		}
		sure = sure && len(p.requests) > 0
		for _, r := range p.requests {
			if f := fabricOf(r.Class); f != "" && !r.All {
				have[f] += r.Count
			} else if r.Class == "" || r.Class == draDriver || r.All {
				sure = false
			}
		}
	}
	return have, sure
}

// class is the DeviceClass of a request.
func (p *podRequests) class(name string) string {
	i := slices.IndexFunc(p.requests, func(r request) bool { return r.Name == name })
	if i < 0 {
		return ""
	}
	return p.requests[i].Class
}
