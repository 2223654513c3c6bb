package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// extended reports whether a resource is one of devices: its domain is not that of Kubernetes.
func extended(resource string) bool {
	domain, _, ok := strings.Cut(resource, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// railWords are what the names of resources for RDMA devices have in them.
var railWords = []string{"rdma", "hca", "roce", "hostdev", "mlnx", "mellanox", "mlx", "rail", "sriov", "infiniband",
	"ib-", "ib_", "_ib", "-ib", "connectx", "bf3", "bluefield", "efa", "erdma", "vf"}

// Rail reports whether a resource is one of RDMA devices: a network names it, it is one of ours, or its name shows it.
func (n *NADs) rail(resource string) bool {
	if !extended(resource) {
		return false
	}
	if strings.HasPrefix(resource, Resource) {
		return true
	}
	if n.named(resource) {
		return true
	}
	_, name, _ := strings.Cut(strings.ToLower(resource), "/")
	return strings.HasPrefix(resource, "rdma/") || name == "ib" ||
		slices.ContainsFunc(railWords, func(w string) bool { return strings.Contains(name, w) })
}

// named reports whether a network takes its devices from a resource.
func (n *NADs) named(resource string) bool { return n.of(resource) >= 0 }

// of is the index of the first network of a resource; -1: no network, or unknown.
func (n *NADs) of(resource string) int {
	if n == nil {
		return -1
	}
	return slices.IndexFunc(n.Items, func(d NAD) bool { return d.Metadata.Annotations[resourceAnnotation] == resource })
}

// whole reports whether a quantity is a count.
func whole(q any) bool {
	_, err := strconv.Atoi(fmt.Sprint(q))
	return err == nil
}

// gpus are the GPUs that a pod asks for.
func (m *Manifest) gpus() (n int) {
	for r, q := range m.resources() {
		if isGPU(r) {
			n += q
		}
	}
	return n
}

// rails are the RDMA devices that a pod asks for by resources, and their names.
func (m *Manifest) rails(nads *NADs) (n int, names []string) {
	asked := m.resources()
	for _, r := range slices.Sorted(maps.Keys(asked)) {
		if nads.rail(r) && asked[r] > 0 {
			n += asked[r]
			names = append(names, r)
		}
	}
	return n, names
}

// labels that the policies of generate policy turn into networks, resources and IPC_LOCK.
const (
	railsLabel  = "fabric.dev/rails"
	fabricLabel = "rails.fabric.dev/"
)

// label is the label by which a policy gives the pod its rails: "fabric.dev/rails=4". It may be empty.
func (m *Manifest) label() string {
	for _, k := range slices.Sorted(maps.Keys(m.Metadata.Labels)) {
		if k == railsLabel || strings.HasPrefix(k, fabricLabel) {
			return k + "=" + m.Metadata.Labels[k]
		}
	}
	return ""
}

// wants reports whether a pod is meant to have RDMA.
func (m *Manifest) wants(nads *NADs) bool {
	n, _ := m.rails(nads)
	return n > 0 || m.label() != "" || m.Metadata.Annotations[networksAnnotation] != "" || len(m.Spec.Claims) > 0
}

// working are the containers that compute: those with devices, or all where none has any.
func (m *Manifest) working() (out []*container) {
	for i := range m.Spec.Containers {
		c := &m.Spec.Containers[i]
		has := len(c.Resources.Claims) > 0
		for r := range c.Resources.Limits {
			has = has || extended(r)
		}
		if has {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		for i := range m.Spec.Containers {
			out = append(out, &m.Spec.Containers[i])
		}
	}
	return out
}

// requests finds resources of devices whose request is not their limit: the API server refuses that.
func (m *Manifest) requests() (out []Finding) {
	n := 0
	for _, c := range slices.Concat(m.Spec.Containers, m.Spec.Init) {
		for _, r := range slices.Sorted(maps.Keys(overlaid(c.Resources.Limits, c.Resources.Requests))) {
			if !extended(r) {
				continue
			}
			n++
			limit, limited := c.Resources.Limits[r]
			request, requested := c.Resources.Requests[r]
			where := fmt.Sprintf("container %s: %s: ", c.Name, r)
			switch {
			case !limited:
				out = append(out, finding("pod-requests", Fail, where+fmt.Sprintf("requests has %v, limits nothing",
					request)))
			case !whole(limit):
				out = append(out, finding("pod-requests", Fail, where+fmt.Sprintf("limits has %v: want a whole number",
					limit)))
			case requested && fmt.Sprint(request) != fmt.Sprint(limit):
				out = append(out, finding("pod-requests", Fail, where+fmt.Sprintf("requests has %v, limits %v", request,
					limit)))
			}
		}
	}
	if n == 0 {
		return nil
	}
	return pass(out, "pod-requests", "requests of devices equal their limits")
}

// ourCounts compares networks with resources of Fabrics, whose networks have the same name, where the networks
// themselves are not known.
func (m *Manifest) ourCounts() (out []Finding) {
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	if err != nil || len(want) == 0 {
		return nil
	}
	asked := m.resources()
	for _, r := range slices.Sorted(maps.Keys(asked)) {
		name, ok := strings.CutPrefix(r, Resource)
		n := 0
		for _, w := range want {
			if w.Name == name {
				n++
			}
		}
		if ok && n != asked[r] {
			out = append(out, finding("pod-count", Warn, fmt.Sprintf("%d %s called %s in the annotation, the pod asks "+
				"for %d of %s", n, plural(n, "network"), name, asked[r], r)))
		}
	}
	return out
}
