package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// podGroup is the pods of one controller, or one pod without a controller.
type podGroup struct {
	kind      string
	of        objectName
	pods      []string // names of a few
	count     int
	resources map[string]bool // that no container of Kubernetes itself has
	device    string          // the path of the host below /dev/infiniband that it has; empty: no such path
	host      map[string]bool // hostNetwork, privileged, hostPath /dev: how it could use the HCAs of the host
	hints     map[string]bool // what shows that it may
}

// AddPod takes what matters of a pod that runs, or is to run.
func (p *Preflight) AddPod(o *corev1.Pod) {
	if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return
	}
	kind, name := controllerOf(o)
	key := o.Namespace + "\x00" + kind + "\x00" + name
	w := p.workloads[key]
	if w == nil {
		w = &podGroup{kind: quote.Clip(kind, 64), of: objectName{name, o.Namespace}, resources: map[string]bool{},
			host: map[string]bool{}, hints: map[string]bool{}}
		if p.workloads == nil {
			p.workloads = map[string]*podGroup{}
		}
		p.workloads[key] = w
	}
	w.count++
	if len(w.pods) < mostNames {
		w.pods = append(w.pods, quote.Clip(o.Name, maxName))
	}
	w.add(&o.Spec)
}

// mostNames is how many pods of a workload are named.
const mostNames = 4

// controllerOf is who has made a pod: the Deployment of a ReplicaSet, whose name has a hash of the template at its end.
func controllerOf(o *corev1.Pod) (kind, name string) {
	c := metav1.GetControllerOf(o)
	if c == nil {
		return "Pod", o.Name
	}
	if hash := o.Labels["pod-template-hash"]; c.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(c.Name, "-"+hash); ok {
			return "Deployment", name
		}
	}
	return c.Kind, c.Name
}

// devices is where the device files of HCAs are.
const devices = "/dev/infiniband"

func (w *podGroup) add(s *corev1.PodSpec) {
	if s.HostNetwork {
		w.host["hostNetwork"] = true
	}
	for i := range s.Volumes {
		if h := s.Volumes[i].HostPath; h != nil {
			switch at := path.Clean(h.Path); {
			case at == devices, strings.HasPrefix(at, devices+"/"):
				w.device = cmp.Or(w.device, quote.Clip(at, maxName))
			case at == "/dev", at == "/":
				w.host["hostPath "+at] = true
			}
		}
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for r := range c.Resources.Limits {
			w.resource(string(r))
		}
		for r := range c.Resources.Requests {
			w.resource(string(r))
		}
		for _, e := range c.Env {
			for _, prefix := range []string{"NCCL_IB_", "UCX_"} {
				if strings.HasPrefix(e.Name, prefix) {
					w.hints["variable "+quote.Clip(e.Name, 64)] = true
				}
			}
		}
		sc := c.SecurityContext
		if sc == nil {
			continue
		}
		if sc.Privileged != nil && *sc.Privileged {
			w.host["privileged"] = true
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "IPC_LOCK") {
			w.hints["capability IPC_LOCK"] = true
		}
	}
}

// resource notes one that the pod asks for. With GPUs pods talk to each other over HCAs.
func (w *podGroup) resource(r string) {
	if extended(r) {
		w.resources[r] = true
	}
	if r == "nvidia.com/gpu" {
		w.hints["asks for "+r] = true
	}
}

// String is ml/train (StatefulSet).
func (w *podGroup) String() string { return fmt.Sprintf("%s (%s)", w.of, w.kind) }

// names are those of its pods, unless it is one itself.
func (w *podGroup) names() string {
	if w.kind == "Pod" {
		return ""
	}
	text := fmt.Sprintf(": %d %s: %s", w.count, plural(w.count, "pod"), strings.Join(w.pods, ", "))
	if more := w.count - len(w.pods); more > 0 {
		text += fmt.Sprintf(", %d more", more)
	}
	return text
}

// sorted are the workloads in the order of their names.
func (p *Preflight) sorted() []*podGroup {
	return slices.SortedFunc(maps.Values(p.workloads), func(a, b *podGroup) int {
		return cmp.Or(cmp.Compare(a.of.Namespace, b.of.Namespace), cmp.Compare(a.of.Name, b.of.Name),
			cmp.Compare(a.kind, b.kind))
	})
}

// sharedOf are the resources of the RDMA shared device plugin that a workload asks for.
func (p *Preflight) sharedOf(w *podGroup) (out []string) {
	for _, r := range slices.Sorted(maps.Keys(w.resources)) {
		if p.shared(r) {
			out = append(out, quote.Clip(r, 2*maxName))
		}
	}
	return out
}

func preflightRDMAPods(p *Preflight) (out []Finding) {
	const id = "preflight-rdma-pods"
	for _, w := range p.sorted() {
		if list := p.sharedOf(w); len(list) > 0 {
			out = append(out, p.stopped(id, fmt.Sprintf("%s asks for %s%s", w, few(list), w.names())))
		}
	}
	if len(out) == 0 && !p.Listed["pods"] {
		return nil
	}
	return pass(out, id, fmt.Sprintf("none of %d workloads asks for rdma/...", len(p.workloads)))
}

// inUseByHost is the Problem of a FabricDevice that a program of the host, or the kernel, uses.
const inUseByHost = "InUseByHost"

// preflightHostUsers finds what opens the device files of the host, or may. Of pods that could and show no sign of it
// it says how many they are: kube-proxy is one.
func preflightHostUsers(p *Preflight) (out []Finding) {
	const id = "preflight-host-users"
	var could []string
	for _, w := range p.sorted() {
		how := few(slices.Sorted(maps.Keys(w.host)))
		switch {
		case w.device != "":
			text := fmt.Sprintf("%s has hostPath %s", w, w.device)
			if how != "" {
				text += ", " + how
			}
			out = append(out, p.stopped(id, text+w.names()))
		case how == "" || len(p.sharedOf(w)) > 0: // it is in preflight-rdma-pods
		case len(w.hints) > 0:
			f := p.stopped(id, fmt.Sprintf("%s may use verbs: %s; %s%s", w, how,
				few(slices.Sorted(maps.Keys(w.hints))), w.names()))
			if f.Status == Fail {
				f.Status, f.Cure = Warn, "ask its owner; if it does: "+f.Cure
			}
			out = append(out, f)
		default:
			could = append(could, w.String())
		}
	}
	for i := range p.FabricNodes {
		f := &p.FabricNodes[i]
		for _, nf := range f.Status.Fabrics {
			for _, d := range nf.Devices {
				if d.Problem == inUseByHost {
					out = append(out, p.stopped(id, fmt.Sprintf("node %s: a program of the host uses %s (%s)",
						quote.Clip(f.Name, maxName), quote.Clip(d.HCA, 64), quote.Clip(d.ID, 64))))
				}
			}
		}
	}
	if len(could) > 0 {
		out = append(out, finding(id, OK, fmt.Sprintf("hostNetwork, privileged or /dev, and nothing that shows use of "+
			"verbs: %s", few(could))))
	}
	if len(out) == 0 && !p.Listed["pods"] {
		return nil
	}
	return pass(out, id, fmt.Sprintf("none of %d workloads can open the HCAs of the host", len(p.workloads)))
}
