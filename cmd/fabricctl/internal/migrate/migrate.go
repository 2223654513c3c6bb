package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Kinds of objects.
const (
	policyKind = "NicClusterPolicy"
	nodePolicy = "NicNodePolicy"
	hostDevice = "HostDeviceNetwork"
	ipoib      = "IPoIBNetwork"
	sriovIB    = "SriovIBNetwork"
	sriovEther = "SriovNetwork"
	macvlan    = "MacvlanNetwork"
)

// hostPrefix is what the network operator puts before a resource without a prefix.
const hostPrefix = "nvidia.com"

// What to convert to.
const (
	ToFabric = "fabric" // Fabrics, whose devices fabric-agent offers
	ToNAD    = "nad"    // networks that ask for the resources of today's device plugin
)

// Options are what the objects do not say.
type Options struct {
	To     string
	Prefix string       // of the resources of the SR-IOV network operator
	Nodes  []*node.Node // what the device plugin's selectors are tried on; may be empty
}

// Output is what one object has become.
type Output struct {
	From   string   // kind and name of the object
	Fates  []string // what became of its fields
	Doubts []string // what the user has to check
	Object any      // nil: nothing takes its place
}

type conversion struct {
	Options
	resources []resource
	made      map[string]*fabric // by the resource whose devices it has
}

// errNothing is for input without any object of the operators.
var errNothing = errors.New("no object of the network operator or the SR-IOV network operator: want " +
	"NicClusterPolicy, NicNodePolicy, HostDeviceNetwork, IPoIBNetwork, MacvlanNetwork, SriovNetwork or SriovIBNetwork")

// Convert converts the objects of the operators. The first output is about all of them.
func Convert(list []Object, o Options) ([]Output, error) {
	if len(list) == 0 {
		return nil, errNothing
	}
	c := &conversion{Options: o, made: map[string]*fabric{}}
	for i := range list {
		if list[i].Kind != policyKind && list[i].Kind != nodePolicy {
			continue
		}
		r, err := resources(&list[i])
		if err != nil {
			return nil, err
		}
		c.resources = append(c.resources, r...)
	}
	var out []Output
	for i := range list {
		n, err := c.convert(&list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, *n)
	}
	// Objects last: what is said of the others is read before.
	slices.SortStableFunc(out, func(a, b Output) int { return rank(&a) - rank(&b) })
	return out, nil
}

func rank(o *Output) int {
	if o.Object == nil {
		return 0
	}
	return 1
}

func (c *conversion) convert(o *Object) (*Output, error) {
	switch o.Kind {
	case hostDevice, ipoib:
		if c.To == ToFabric {
			return c.toFabric(o)
		}
		return c.toNetwork(o)
	case sriovIB, sriovEther:
		out, err := c.toNetwork(o)
		if err == nil && c.To == ToFabric {
			out.Fates = append(out.Fates, "a network and no Fabric: its devices are virtual functions")
		}
		return out, err
	case policyKind, nodePolicy:
		return c.policy(o), nil
	}
	out := &Output{From: o.String()}
	if text, ok := stays[o.Kind]; ok {
		out.Fates = []string{text}
	} else {
		out.Doubts = []string{"this kind is not known here: nothing was made of it"}
	}
	if master, _ := o.Spec["master"].(string); o.Kind == macvlan && master != "" {
		out.Doubts = append(out.Doubts, "the port of "+master+" must not be in a Fabric with attachment "+
			"WholeDevice: a pod "+
			"would get the whole port, and the macvlan interfaces of the others would have no link")
	}
	return out, nil
}

// stays are the kinds that nothing takes the place of.
var stays = map[string]string{
	macvlan: "stays: its pods share a port with RoCE, in RDMA mode shared, and nothing is moved",
	"SriovNetworkNodePolicy": "stays: it makes the virtual functions and names their resource. fabric needs the " +
		"driver of the kernel: deviceType netdevice, isRdma true",
	"SriovNetworkPoolConfig":   "stays: it sets the RDMA mode of the nodes, among other things",
	"SriovNetworkNodeState":    "stays: the operator writes it",
	"SriovOperatorConfig":      "stays",
	"OVSNetwork":               "stays: fabric makes no port of a virtual switch",
	"IPPool":                   "stays: ipam of type nv-ipam takes its addresses from it",
	"CIDRPool":                 "stays: ipam of type nv-ipam takes its addresses from it",
	"NicDevice":                "stays: the operator writes it",
	"NicConfigurationTemplate": "stays: settings of firmware",
	"NicFirmwareSource":        "stays: firmware",
	"NicFirmwareTemplate":      "stays: firmware",
}

// sections of a NicClusterPolicy or NicNodePolicy and what becomes of them.
var sections = map[string]string{
	"ofedDriver":               "stays: drivers. After an upgrade of them: fabricctl repair --dry-run",
	"nvIpam":                   "stays if an ipam of type nv-ipam is used",
	"nicFeatureDiscovery":      "stays: labels of nodes",
	"docaTelemetryService":     "stays",
	"nicConfigurationOperator": "stays: settings of firmware",
	"spectrumXOperator":        "stays",
	"ibKubernetes": "stays: it gives virtual functions GUIDs and partitions. It looks for the CNI type ib-sriov " +
		"only: install the plugin under that name too, and write that type (docs/migration.md)",
	"secondaryNetwork": "multus and ipamPlugin stay; ipoib and cniPlugins can go when no network of those " +
		"types is left",
	"nodeAffinity": "", "tolerations": "", "deploymentNodeAffinity": "", "deploymentTolerations": "",
	"nodeSelector": "", "labels": "", "annotations": "",
}

// policy says what becomes of the parts of a policy.
func (c *conversion) policy(o *Object) *Output {
	out := &Output{From: o.String()}
	var names []string
	for k := range o.Spec {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		switch text, ok := sections[k]; {
		case k == "sriovDevicePlugin" || k == "rdmaSharedDevicePlugin":
			out.Fates = append(out.Fates, "spec."+k+": "+c.left(o, k == "rdmaSharedDevicePlugin"))
		case !ok:
			out.Doubts = append(out.Doubts, fmt.Sprintf("spec.%s is not known here: nothing was made of it", k))
		case text != "":
			out.Fates = append(out.Fates, "spec."+k+": "+text)
		}
	}
	return out
}

// left says what becomes of a device plugin of a policy.
func (c *conversion) left(o *Object, shared bool) string {
	var names []string
	for _, r := range c.resources {
		if r.policy == o.String() && r.shared == shared {
			names = append(names, r.name)
		}
	}
	text := "no resource in its configuration"
	if len(names) > 0 {
		text = "resources " + strings.Join(names, ", ")
	}
	if c.To == ToNAD {
		return text + "; stays as it is"
	}
	return text + "; stays without those that become Fabrics, and can go when none is left"
}

// Text writes the outputs as YAML, with what became of each field as comments.
func Text(list []Output, head []string) (string, error) {
	var docs []string
	var loose []string // comments about objects that nothing takes the place of
	loose = append(loose, head...)
	for i := range list {
		o := &list[i]
		lines := []string{o.From + ":"}
		for _, f := range o.Fates {
			lines = append(lines, "- "+f)
		}
		for _, d := range o.Doubts {
			lines = append(lines, "- CHECK: "+d)
		}
		if o.Object == nil {
			loose = append(loose, lines...)
			continue
		}
		doc, err := encode.Manifest(o.Object, append(loose, lines...), nil)
		if err != nil {
			return "", fmt.Errorf("%s: %w", o.From, err)
		}
		docs, loose = append(docs, doc), nil
	}
	if len(loose) > 0 {
		doc, err := encode.Comments(loose)
		if err != nil {
			return "", err
		}
		docs = append(docs, doc)
	}
	return strings.Join(docs, "---\n"), nil
}
