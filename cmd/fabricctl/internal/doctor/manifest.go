package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Manifest is what matters here of a pod as kubectl get pod -o json prints it. A wrong quantity in a manifest that
// was written by hand would fail the decoding of a whole corev1.Pod: doctor names its container, and judges the rest.
type Manifest struct { //nolint:methods // one for each question about a pod
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Owners      []Owner           `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool              `json:"hostNetwork"`
		HostIPC     bool              `json:"hostIPC"`
		Node        string            `json:"nodeName"`
		Selector    map[string]string `json:"nodeSelector"`
		Containers  []container       `json:"containers"`
		Init        []container       `json:"initContainers"`
		Claims      []podClaim        `json:"resourceClaims"`
		Volumes     []volume          `json:"volumes"`
		Security    security          `json:"securityContext"`
	} `json:"spec"`
	// planned: nothing of it is there yet, it is the template of a pod.
	planned bool
	Status  struct {
		Phase  string     `json:"phase"`
		Claims []podClaim `json:"resourceClaimStatuses"` // with those that were made of templates
	} `json:"status"`

	fabrics []v1alpha1.Fabric // of the cluster; nil: not known
	nads    *NADs             // nil: not known
	node    *node.Node        // the one it is on; nil: not known
}

type container struct {
	Name      string `json:"name"`
	Resources struct {
		Limits   map[string]any `json:"limits"`
		Requests map[string]any `json:"requests"`
		Claims   []struct {
			Name string `json:"name"`
		} `json:"claims"`
	} `json:"resources"`
	SecurityContext struct {
		security
		Privileged   bool `json:"privileged"`
		Capabilities struct {
			Add []string `json:"add"`
		} `json:"capabilities"`
	} `json:"securityContext"`
	Command []string  `json:"command"`
	Args    []string  `json:"args"`
	Env     []envVar  `json:"env"`
	From    []envFrom `json:"envFrom"`
	Mounts  []struct {
		Name string `json:"name"`
		Path string `json:"mountPath"`
	} `json:"volumeMounts"`
}

// security is what securityContext of a pod and of a container have in common.
type security struct {
	User *int64 `json:"runAsUser"`
}

// envVar is a variable of a container. One that comes from elsewhere has no value here.
type envVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  *struct {
		ConfigMap *configKey `json:"configMapKeyRef"`
	} `json:"valueFrom"`
}

// envFrom takes all variables of a ConfigMap.
type envFrom struct {
	Prefix    string `json:"prefix"`
	ConfigMap *struct {
		Name string `json:"name"`
	} `json:"configMapRef"`
}

type configKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// volume is a volume of a pod, as far as it may be /dev/shm.
type volume struct {
	Name     string `json:"name"`
	EmptyDir *struct {
		Medium string `json:"medium"`
		Size   any    `json:"sizeLimit"`
	} `json:"emptyDir"`
	HostPath *struct {
		Path string `json:"path"`
	} `json:"hostPath"`
}

// NADs are NetworkAttachmentDefinitions as kubectl get net-attach-def -A -o json prints them.
type NADs struct {
	Items []NAD `json:"items"`
}

// NAD is one of them.
type NAD struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
		Owners      []Owner           `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// Owner is what an object goes with.
type Owner struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// Annotations of the Kubernetes Network Custom Resource Definition De-facto Standard, and of the device plugins'
// resource.
const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	statusAnnotation   = "k8s.v1.cni.cncf.io/network-status"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
)

// network is one network that a pod asks for.
type network struct{ Namespace, Name string }

func (n network) String() string { return n.Namespace + "/" + n.Name }

// networks reads the annotation, in its short form (a, ns/b@net1) or as JSON.
func networks(annotation, namespace string) (out []network, err error) {
	annotation = strings.TrimSpace(annotation)
	if strings.HasPrefix(annotation, "[") {
		var list []struct{ Name, Namespace string }
		if err := json.Unmarshal([]byte(annotation), &list); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", networksAnnotation, err)
		}
		for _, l := range list {
			if l.Namespace == "" {
				l.Namespace = namespace
			}
			out = append(out, network{l.Namespace, l.Name})
		}
		return out, nil
	}
	for item := range strings.SplitSeq(annotation, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(item), "@")
		n := network{namespace, name}
		if ns, rest, ok := strings.Cut(name, "/"); ok {
			n = network{ns, rest}
		}
		if n.Name != "" {
			out = append(out, n)
		}
	}
	return out, nil
}

// CheckManifest says which step is missing before a pod has its interfaces. nads may be nil: not known.
func CheckManifest(m *Manifest, nads *NADs) ([]Finding, error) {
	if m.Kind != "Pod" {
		return nil, errors.New("this is no pod: want what kubectl get pod NAME -o json prints")
	}
	if m.Metadata.Namespace == "" {
		m.Metadata.Namespace = "default"
	}
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	if err != nil {
		return nil, err
	}
	m.nads = nads
	var out []Finding
	switch {
	case m.Spec.HostNetwork:
		f := finding("pod-annotation", Warn, "hostNetwork: true: the pod uses the host's interfaces, and Multus "+
			"adds none")
		f.Cause = "the pod is in the host's network namespace"
		f.Cure = "nothing, if that is meant; otherwise no hostNetwork, and networks in the annotation"
		out = append(out, f)
	case m.planned && m.label() != "":
		out = append(out, finding("pod-annotation", OK, "the label "+m.label()+": the policies of fabricctl generate "+
			"policy add networks, devices and IPC_LOCK"))
	case len(want) == 0:
		out = append(out, m.withoutNetworks())
	default:
		var names []string
		for _, n := range want {
			names = append(names, n.String())
		}
		out = append(out, finding("pod-annotation", OK, strings.Join(names, ", ")))
		out = append(out, m.multus()...)
	}
	if nads != nil {
		out = append(out, nads.missing(want)...)
		out = append(out, nads.counts(m, want)...)
	} else {
		if len(m.Spec.Claims) == 0 { // whose devices may be those of the networks
			out = append(out, counts(m, want)...)
		}
	}
	return append(out, m.lock()...), nil
}

// multus tells whether Multus has run. Before a pod has a node it can't have; after that its annotation comes when all
// networks are attached, so that a pod that starts, or fails to, has none.
func (m *Manifest) multus() []Finding {
	switch {
	case m.Metadata.Annotations[statusAnnotation] != "":
		return one(finding("pod-multus", OK, "network-status is there"))
	case m.planned, m.Status.Phase == "", m.Status.Phase == "Pending" && m.Spec.Node == "":
		return nil
	case m.Status.Phase == "Pending":
		name := m.Metadata.Namespace + "/" + m.Metadata.Name
		f := finding("pod-multus", Warn, "the pod is starting on "+m.Spec.Node+", and its networks are not "+
			"attached yet")
		f.Cause = "it has only begun, or attaching a network fails again and again: the Events of the pod say which"
		f.Cure = "fabricctl doctor pod " + name + " explains the Events; or kubectl -n " + m.Metadata.Namespace +
			" describe pod " + m.Metadata.Name
		return one(f)
	}
	return one(finding("pod-multus", Fail, "no annotation "+statusAnnotation))
}

func (n *NADs) find(w network) *NAD {
	i := slices.IndexFunc(
		n.Items,
		func(d NAD) bool { return d.Metadata.Name == w.Name && d.Metadata.Namespace == w.Namespace },
	)
	if i < 0 {
		return nil
	}
	return &n.Items[i]
}

func (n *NADs) missing(want []network) (out []Finding) {
	seen := map[network]bool{}
	for _, w := range want {
		if n.find(w) != nil || seen[w] {
			continue
		}
		seen[w] = true
		evidence := w.String() + " does not exist"
		for _, d := range n.Items {
			if d.Metadata.Name == w.Name {
				evidence += "; there is " + d.Metadata.Namespace + "/" + d.Metadata.Name
			}
		}
		out = append(out, finding("pod-nad", Fail, evidence))
	}
	if len(want) == 0 {
		return nil
	}
	return pass(out, "pod-nad", "all networks exist")
}

// claimed reports whether the devices of a network come from ResourceClaims.
func (n *NAD) claimed() bool {
	c, err := n.conf()
	return err == nil && c.Allocation == "DRA"
}

// counts compares what the networks need with what the pod asks for, by resource. Those whose devices come from
// ResourceClaims are CheckClaims's.
func (n *NADs) counts(m *Manifest, want []network) (out []Finding) {
	need, asked := map[string]int{}, m.resources()
	for _, w := range want {
		if d := n.find(w); d != nil && d.Metadata.Annotations[resourceAnnotation] != "" && !d.claimed() {
			need[d.Metadata.Annotations[resourceAnnotation]]++
		}
	}
	for _, r := range slices.Sorted(maps.Keys(need)) {
		switch {
		case asked[r] < need[r]:
			out = append(
				out,
				finding(
					"pod-count",
					Fail,
					fmt.Sprintf("%d networks take a device of %s, the pod asks for %d", need[r], r, asked[r]),
				),
			)
		case asked[r] > need[r]:
			out = append(
				out,
				finding(
					"pod-count",
					Warn,
					fmt.Sprintf("%d networks take a device of %s, the pod asks for %d", need[r], r, asked[r]),
				),
			)
		default:
			out = append(out, finding("pod-count", OK, fmt.Sprintf("%d of %s", need[r], r)))
		}
	}
	return out
}

// counts without the networks' resources is a guess: one resource that looks like RDMA, fewer than networks.
func counts(m *Manifest, want []network) []Finding {
	asked := m.resources()
	total, status := 0, Fail
	var names []string
	for _, r := range slices.Sorted(maps.Keys(asked)) {
		if strings.HasPrefix(r, sharedPrefix) {
			return nil // one of it is good for any number of networks
		}
		if m.shared(r) { // as far as its name tells
			status = Warn
		}
		if strings.Contains(r, "/") && !isGPU(r) {
			total += asked[r]
			names = append(names, fmt.Sprintf("%s: %d", r, asked[r]))
		}
	}
	if len(want) > 0 && total < len(want) {
		return one(finding("pod-count", status, fmt.Sprintf("%d networks, and device resources for %d (%s)", len(want),
			total, strings.Join(names, ", "))))
	}
	return nil
}

// resources are the extended resources of all containers.
func (m *Manifest) resources() map[string]int {
	out := map[string]int{}
	for _, c := range m.Spec.Containers {
		for r, q := range c.Resources.Limits {
			if n, err := strconv.Atoi(fmt.Sprint(q)); err == nil {
				out[r] += n
			}
		}
	}
	return out
}

func (m *Manifest) lock() (out []Finding) {
	if m.planned && m.label() != "" {
		return nil
	}
	for _, c := range m.working() {
		if !c.SecurityContext.Privileged && !slices.Contains(c.SecurityContext.Capabilities.Add, "IPC_LOCK") {
			f := finding("pod-memlock", Warn, "container "+c.Name+" does not add the capability IPC_LOCK")
			out = append(out, f)
		}
	}
	return out
}
