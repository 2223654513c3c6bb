package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Site is what is known of the place where a job will run. Parts may be empty: not known.
type Site struct {
	Nodes []*node.Node // their devices
	Rooms []Room       // their resources
}

// Room is what a node of the cluster has for pods.
type Room struct {
	Name        string
	Labels      map[string]string
	Cordoned    bool
	Allocatable map[string]int // of extended resources
	Used        map[string]int // by the pods that are there
}

// RoleRow is what the pods of a role ask for.
type RoleRow struct {
	Workload string   `json:"workload"`
	Role     string   `json:"role,omitempty"`
	Pods     int      `json:"pods"` // -1: one on each node
	GPUs     int      `json:"gpus"` // of each pod
	Networks []string `json:"networks"`
	Devices  []string `json:"devices"` // resources, claims or a label that give RDMA devices
}

// CheckPlan says what is wrong with jobs before they run.
func CheckPlan(p *Plan, site *Site) (rows []RoleRow, out []Finding) {
	computing := slices.ContainsFunc(p.Workloads, func(w Workload) bool {
		return w.Runtime != "" || slices.ContainsFunc(w.Roles, p.computes)
	})
	if !computing {
		out = append(out, finding("job-devices", Warn, p.String()+": the pods ask neither for GPUs nor for RDMA "+
			"devices"))
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		for j := range w.Roles {
			rows = append(rows, p.row(w, &w.Roles[j]))
		}
		out = append(out, p.workload(w, site)...)
	}
	return rows, bounded(out)
}

func (p *Plan) row(w *Workload, r *Role) RoleRow {
	row := RoleRow{Workload: w.String(), Role: r.Name, Pods: r.Count, GPUs: r.Pod.gpus(), Networks: []string{},
		Devices: []string{}}
	want, _ := networks(r.Pod.Metadata.Annotations[networksAnnotation], w.Namespace) // CheckManifest says what is wrong
	for _, n := range want {
		row.Networks = append(row.Networks, n.String())
	}
	asked := r.Pod.resources()
	_, names := r.Pod.rails(p.NADs)
	for _, n := range names {
		row.Devices = append(row.Devices, fmt.Sprintf("%s: %d", n, asked[n]))
	}
	for _, c := range r.Pod.Spec.Claims {
		row.Devices = append(row.Devices, "claim "+cmp.Or(c.Template, c.Claim))
	}
	if l := r.Pod.label(); l != "" {
		row.Devices = append(row.Devices, "label "+l)
	}
	return row
}

// workload checks one of the objects.
func (p *Plan) workload(w *Workload, site *Site) (out []Finding) {
	if w.Runtime != "" {
		return one(finding("job-template", Warn, w.String()+": its pods are described in "+w.Runtime+", which is not "+
			"in the file"))
	}
	pods := 0
	for _, r := range w.Roles {
		if p.computes(r) {
			pods += r.Count
		}
	}
	for i := range w.Roles {
		r := &w.Roles[i]
		var list []Finding
		switch {
		case r.Count == 0:
		case r.Launcher:
			list = append(p.launcher(r), CheckContents(r.Pod, nil)...)
			list = slices.DeleteFunc(list, func(f Finding) bool { return f.ID == "pod-shm" || f.ID == "pod-memory" })
		case !p.computes(*r): // such as a server of etcd beside the job
		case !r.Pod.wants(p.NADs) && !r.Pod.Spec.HostNetwork && (pods == 1 || !w.Together):
			list = p.alone(r, pods)
		default:
			list = p.role(r, site)
		}
		for _, f := range list {
			f.Evidence = w.what(r) + ": " + f.Evidence
			out = append(out, f)
		}
	}
	out = append(out, p.alike(w)...)
	return append(out, w.fit(site)...)
}

// computes reports whether the pods of a role need RDMA, or may.
func (p *Plan) computes(r Role) bool { return !r.Launcher && (r.Pod.gpus() > 0 || r.Pod.wants(p.NADs)) }

// alone is for pods with GPUs and without RDMA devices that need none, as far as it is known.
func (p *Plan) alone(r *Role, pods int) []Finding {
	if pods == 1 {
		return one(finding("job-devices", OK, "one pod, and no RDMA device: its GPUs talk within the node"))
	}
	return append(CheckContents(r.Pod, nil), finding("job-devices", Warn,
		fmt.Sprintf("%d pods with GPUs and without RDMA device: if they are one job, NCCL goes over TCP", pods)))
}

// role checks the pods of a role that compute.
func (p *Plan) role(r *Role, site *Site) []Finding {
	r.Pod.Know(p.Fabrics, nil)
	out, err := CheckManifest(r.Pod, p.NADs)
	if err != nil {
		return one(finding("pod-annotation", Fail, err.Error()))
	}
	for i := range out {
		if f := &out[i]; f.ID == "pod-nad" && f.Status == Fail && !p.AllNADs && !strings.Contains(f.Evidence, "there "+
			"is") {
			f.Status, f.Evidence = Warn, f.Evidence+" in the files; --nads or --cluster tells of the others"
		}
	}
	if p.NADs == nil {
		out = append(out, r.Pod.ourCounts()...)
	}
	out = append(out, CheckContents(r.Pod, site.Nodes)...)
	claims := r.Pod.unused()
	if p.DRA != nil {
		claims = CheckClaims(r.Pod, p.NADs, p.DRA)
	}
	for i := range claims {
		if f := &claims[i]; f.ID == "pod-claim" && f.Status == Fail && p.fromFiles {
			f.Status, f.Evidence = Warn, f.Evidence+" in the files; --cluster asks the cluster"
		}
	}
	return slices.Concat(out, claims, site.share(r.Pod))
}

// launcher finds devices that a launcher takes from the workers.
func (p *Plan) launcher(r *Role) (out []Finding) {
	var takes []string
	if n := r.Pod.gpus(); n > 0 {
		takes = append(takes, fmt.Sprintf("%d %s", n, plural(n, "GPU")))
	}
	_, names := r.Pod.rails(p.NADs)
	takes = append(takes, names...)
	if a := r.Pod.Metadata.Annotations[networksAnnotation]; a != "" {
		takes = append(takes, "networks "+a)
	}
	if len(r.Pod.Spec.Claims) > 0 {
		takes = append(takes, "resource claims")
	}
	if len(takes) == 0 {
		return one(finding("job-launcher", OK, "it takes no device"))
	}
	return one(finding("job-launcher", Warn, "it asks for "+strings.Join(takes, ", ")))
}

// alike compares the rails of the workers: NCCL pairs them one by one.
func (p *Plan) alike(w *Workload) []Finding {
	if !w.Together {
		return nil
	}
	has := map[int][]string{}
	for i := range w.Roles {
		r := &w.Roles[i]
		if !p.computes(*r) || r.Count == 0 || r.Pod.gpus() == 0 || r.Pod.Spec.HostNetwork || r.Pod.label() != "" {
			continue
		}
		n, known := p.railCount(r.Pod)
		if !known {
			return nil
		}
		has[n] = append(has[n], cmp.Or(r.Name, "its pods"))
	}
	if len(has) < 2 {
		return nil
	}
	var text []string
	for _, n := range slices.Sorted(maps.Keys(has)) {
		text = append(text, fmt.Sprintf("%s: %d", strings.Join(has[n], ", "), n))
	}
	status := Warn
	if has[0] != nil {
		status = Fail
	}
	return one(finding("job-workers", status, w.String()+": rails of a pod: "+strings.Join(text, "; ")))
}

// railCount is how many rails a pod will have.
func (p *Plan) railCount(m *Manifest) (n int, known bool) {
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	if err != nil {
		return 0, false
	}
	if len(want) > 0 || len(m.Spec.Claims) > 0 {
		return len(want), len(want) > 0
	}
	m.nads = p.NADs
	n, names := m.rails(p.NADs)
	for _, r := range names {
		if m.shared(r) { // of the shared device plugin: one is all
			return 0, false
		}
	}
	return n, true
}

// share compares a pod's rails with the part of a node's rails that goes with its GPUs.
func (s *Site) share(m *Manifest) []Finding {
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	gpus := m.gpus()
	if err != nil || gpus == 0 || len(want) == 0 {
		return nil
	}
	least, most, text := 0, 0, ""
	for _, n := range s.Nodes {
		rails, name := bestRails(n)
		if len(n.GPUs) < gpus || rails == 0 {
			continue
		}
		most = max(most, rails)
		part := (rails*gpus + len(n.GPUs) - 1) / len(n.GPUs)
		if least == 0 || part < least {
			least = part
			text = fmt.Sprintf("%s has %d %s of %s for %d "+
				"GPUs", n.Name, rails, plural(rails, "rail"), name, len(n.GPUs))
		}
	}
	at := fmt.Sprintf("%d %s and %d %s", gpus, plural(gpus, "GPU"), len(want), plural(len(want), "network"))
	switch {
	case least == 0:
		return nil
	case len(want) > most && slices.IndexFunc(s.Nodes, hasVFs) < 0:
		return one(finding("job-rails", Fail, fmt.Sprintf("%s: no node that is known has more than %d "+
			"rails", at, most)))
	case len(want) < least:
		return one(finding("job-rails", Warn, fmt.Sprintf("%s: %s, the part of these GPUs is %d", at, text, least)))
	}
	return one(finding("job-rails", OK, at))
}

func hasVFs(n *node.Node) bool {
	return slices.ContainsFunc(n.HCAs, func(h node.HCA) bool { return h.Kind != "PF" })
}
