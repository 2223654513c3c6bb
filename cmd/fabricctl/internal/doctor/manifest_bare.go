package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Know adds what the cluster says of the devices that a pod asks for: its Fabrics, and the nodes. Either may be nil.
func (m *Manifest) Know(fabrics []v1alpha1.Fabric, nodes []FabricNode) {
	m.fabrics = fabrics
	for i := range nodes {
		if n := &nodes[i]; n.Name == m.Spec.Node && n.Node != nil {
			m.node = n.Node
		}
	}
}

// Bare reports whether the pod asks for no networks.
func (m *Manifest) Bare() bool {
	return strings.TrimSpace(m.Metadata.Annotations[networksAnnotation]) == "" && !m.Spec.HostNetwork
}

// What a resource is for.
type meant int

const (
	forNetworks meant = iota // its devices come with networks
	forVerbs                 // HCAs of the node, without interfaces
	forClaim                 // of a Fabric with allocation DRA: the scheduler makes a ResourceClaim of it
)

// sharedPrefix is that of the RDMA shared device plugin's resources, unless its configuration has another one
// (resourcePrefix).
const sharedPrefix = "rdma/"

var fabricPrefix = v1alpha1.GroupVersion.Group + "/"

// meaning tells what a resource is for, and the link layer of its devices if that is known.
func (m *Manifest) meaning(resource string) (meant, device.LinkLayer) {
	if name, ok := strings.CutPrefix(resource, fabricPrefix); ok {
		for i := range m.fabrics {
			switch f := &m.fabrics[i]; {
			case f.Name != name:
			case f.Spec.Allocation == v1alpha1.DRA:
				return forClaim, ""
			case f.Spec.Attachment == v1alpha1.IPoIBChild:
				return forVerbs, device.InfiniBand // its interfaces are IPoIB children
			}
		}
		return forNetworks, ""
	}
	if m.shared(resource) {
		_, name, _ := strings.Cut(resource, "/")
		return forVerbs, m.layer(name)
	}
	return forNetworks, ""
}

// shared reports whether a resource is one of the RDMA shared device plugin: by its prefix, or by its name, if it is no
// network's and has no prefix that is usual for SR-IOV.
func (m *Manifest) shared(resource string) bool {
	prefix, name, _ := strings.Cut(strings.ToLower(resource), "/")
	switch {
	case prefix+"/" == sharedPrefix:
		return true
	case m.nads.named(resource), prefix+"/" == fabricPrefix:
		return false
	case strings.Contains(name, "shared"):
		return strings.Contains(name, "rdma") || strings.Contains(name, "hca")
	}
	return !slices.Contains([]string{"nvidia.com", "mellanox.com", "intel.com", "openshift.io"}, prefix) &&
		(strings.Contains(name, "rdma") || strings.Contains(name, "hca"))
}

// layer is the link layer of the node's ports if all of those that are up have the same, or what a name says.
func (m *Manifest) layer(name string) device.LinkLayer {
	layers := map[device.LinkLayer]bool{}
	if m.node != nil {
		m.node.EachPort(func(h *node.HCA, p *node.Port) {
			if p.Active() && h.Bond == "" {
				layers[p.LinkLayer] = true
			}
		})
	}
	if len(layers) == 1 {
		return slices.Collect(maps.Keys(layers))[0]
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	for _, w := range words {
		switch {
		case w == "ib" || w == "infiniband" || w == "ipoib":
			return device.InfiniBand
		case strings.HasPrefix(w, "roce") || w == "eth" || w == "ethernet":
			return device.Ethernet
		}
	}
	return ""
}

const (
	verbsDo = "NCCL's NET/IB and UCX work; IPoIB and rdma_cm by IP address do not"
	roceGID = "RoCE needs an address in the pod's own network namespace, for its GID"
)

// withoutNetworks judges a pod without networks by what it was meant to be, which its resources tell: one of the RDMA
// shared device plugin, or of a Fabric with attachment IPoIBChild, is for verbs on the node's HCAs.
func (m *Manifest) withoutNetworks() Finding {
	const none = "no annotation " + networksAnnotation
	var verbs, claims []string
	var layers []device.LinkLayer
	asked := m.resources()
	for _, r := range slices.Sorted(maps.Keys(asked)) {
		if !strings.Contains(r, "/") || isGPU(r) || asked[r] == 0 {
			continue
		}
		text := fmt.Sprintf("%s: %d", r, asked[r])
		switch what, layer := m.meaning(r); what {
		case forNetworks:
			f := finding("pod-annotation", Fail, none)
			f.Cure = m.networksFor(r, asked[r])
			return f
		case forClaim:
			claims = append(claims, text)
		default:
			verbs, layers = append(verbs, text), append(layers, layer)
		}
	}
	for _, c := range m.Spec.Claims { // CheckClaims says whether they give it a device of a Fabric
		claims = append(claims, c.Name)
	}
	if len(verbs) == 0 {
		if len(claims) > 0 {
			return finding("pod-annotation", OK, none+", and none is needed: ResourceClaims attach what they give ("+
				strings.Join(claims, ", ")+")")
		}
		if c := m.privileged(); c != "" {
			return finding("pod-annotation", Warn, none+"; container "+c+" is privileged: in shared RDMA mode it can "+
				"open every HCA of the node (InfiniBand works so; "+roceGID+"), in exclusive mode it has none")
		}
		return finding("pod-annotation", Fail, none)
	}
	evidence := none + "; " + strings.Join(verbs, ", ") + " is for verbs on the node's HCAs without an interface, in " +
		"shared RDMA mode"
	switch {
	case m.node != nil && m.node.RDMAMode == device.NetnsExclusive.String():
		return finding("pod-annotation", Fail, evidence+", and node "+m.node.Name+" is in exclusive mode")
	case slices.Contains(layers, device.Ethernet):
		f := finding("pod-annotation", Fail, evidence+". "+roceGID)
		f.Cause, f.Cure = noRoCEFace, addRoCEFace
		return f
	case !slices.Contains(layers, ""):
		return finding("pod-annotation", OK, evidence+". InfiniBand: "+verbsDo)
	}
	f := finding("pod-annotation", Warn, evidence+". On InfiniBand that is all it needs: "+verbsDo+". On RoCE it "+
		"is not: "+
		roceGID)
	f.Cause = "the RDMA shared device plugin gives character devices and no interfaces"
	f.Cure = "InfiniBand: nothing. RoCE: " + addRoCEFace
	return f
}

// networksFor says what annotation a pod with some devices of a resource needs.
func (m *Manifest) networksFor(resource string, n int) string {
	name, _ := strings.CutPrefix(resource, fabricPrefix)
	if name == resource {
		name = ""
	}
	if i := m.nads.of(resource); i >= 0 {
		d := &m.nads.Items[i].Metadata
		if name = d.Name; d.Namespace != m.Metadata.Namespace {
			name = d.Namespace + "/" + d.Name
		}
	}
	const most = 16 // devices in a pod
	if name == "" || n > most {
		return fmt.Sprintf("%s: as many networks of the resource %s as devices, which are %d here: kubectl get "+
			"network-attachment-definitions -A lists them with their resourceName; fabricctl generate nad writes one",
			networksAnnotation, resource, n)
	}
	return "metadata: {annotations: {" + networksAnnotation + ": \"" +
		strings.Join(slices.Repeat([]string{name}, n), ", ") + "\"}}"
}

// privileged is the name of a container that is.
func (m *Manifest) privileged() string {
	for _, c := range m.Spec.Containers {
		if c.SecurityContext.Privileged {
			return c.Name
		}
	}
	return ""
}

// models are names that clusters give to resources of NVIDIA's GPUs, by model.
var models = regexp.MustCompile(`^((gpu\.|mig-|tesla|geforce|rtx).*|[vpthabl]\d{1,4}[a-z]?|g[bh]\d{3})([-_.].*)?$`)

// isGPU reports whether a resource is one of GPUs, by the names that the vendors' device plugins give, and those that
// clusters give to models of them (nvidia.com/v100).
func isGPU(r string) bool {
	vendor, name, _ := strings.Cut(r, "/")
	switch vendor {
	case "nvidia.com":
		return name == "gpu" || models.MatchString(name)
	case "amd.com", "gpu.intel.com", "habana.ai", "huawei.com", "metax-tech.com", "hygon.com", "mthreads.com",
		"cambricon.com", "kunlunxin.com", "iluvatar.ai", "enflame.com":
		return true
	}
	return strings.HasSuffix(name, "gpu")
}
