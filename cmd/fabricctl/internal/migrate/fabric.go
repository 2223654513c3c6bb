package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// fabric is a Fabric as it is written: without status.
type fabric struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Metadata   metadata            `json:"metadata"`
	Spec       v1alpha1.FabricSpec `json:"spec"`
}

// toFabric makes the Fabric that takes the place of a HostDeviceNetwork and its resource, or of an IPoIBNetwork.
func (c *conversion) toFabric(o *Object) (*Output, error) {
	s := newSpec(o)
	namespace, res, err := c.common(s)
	if err != nil {
		return nil, err
	}
	f := &fabric{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fabric", Metadata: metadata{Name: o.Name},
		Spec: v1alpha1.FabricSpec{
			Attachment: v1alpha1.WholeDevice, Namespaces: v1alpha1.Namespaces{Names: []string{namespace}},
		},
	}
	if first := c.made[res]; o.Kind == hostDevice && first != nil {
		return second(s, first, namespace, res)
	}
	if o.Kind == ipoib {
		err = c.shared(s, f)
	} else if !c.exclusive(s, f, res) {
		return &Output{From: o.String(), Fates: s.fates, Doubts: s.doubts}, nil
	}
	if err != nil {
		return nil, err
	}
	conf := map[string]any{}
	if err := s.ipam(conf); err != nil {
		return nil, err
	}
	if conf["ipam"] != nil {
		raw, err := json.Marshal(conf["ipam"])
		if err != nil {
			return nil, fmt.Errorf("%s: spec.ipam: %w", o, err)
		}
		f.Spec.Addresses = &v1alpha1.Addresses{IPAM: &v1alpha1.IPAM{}}
		if err := json.Unmarshal(raw, f.Spec.Addresses.IPAM); err != nil {
			return nil, fmt.Errorf("%s: spec.ipam: %w", o, err)
		}
	}
	s.rest()
	if o.Kind == hostDevice {
		c.made[res] = f
	}
	check := &v1alpha1.Fabric{Spec: f.Spec}
	check.Name = o.Name
	if _, err := fabrics.Parse(check); err != nil {
		return nil, fmt.Errorf("%s: the Fabric would be refused: %w", o, err)
	}
	return &Output{From: o.String(), Fates: s.fates, Doubts: s.doubts, Object: f}, nil
}

// second is a network with the resource of another one, whose Fabric has the devices: a device is in one Fabric.
func second(s *spec, first *fabric, namespace, res string) (*Output, error) {
	names := &first.Spec.Namespaces.Names
	if !slices.Contains(*names, namespace) {
		*names = append(*names, namespace)
	}
	s.fate("no Fabric of its own: %s has the devices of %s, and is for namespace %s, too", first.Metadata.Name, res,
		namespace)
	s.doubt("its pods ask for fabric.dev/%[1]s, name %[1]s in their annotation, and get its addresses and settings",
		first.Metadata.Name)
	return &Output{From: s.of.String(), Fates: s.fates, Doubts: s.doubts}, nil
}

// exclusive fills in a Fabric for whole devices. It returns false if nothing is known of the devices.
func (c *conversion) exclusive(s *spec, f *fabric, res string) bool {
	i := slices.IndexFunc(c.resources, func(r resource) bool { return r.name == res && !r.shared })
	if i < 0 {
		s.doubt("no Fabric: which devices the resource %s has is in the NicClusterPolicy or NicNodePolicy, which "+
			"is not here (or in a ConfigMap of the device plugin): give it too, or use --to nad", res)
		return false
	}
	r := &c.resources[i]
	if len(r.nodes) > 0 {
		f.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: r.nodes}
	}
	for _, other := range c.resources[i+1:] {
		if other.name == res && !other.shared {
			s.doubt("%s has the resource %s, too: a Fabric for its nodes, or one match and nodeSelector for both",
				other.policy, res)
		}
	}
	f.Spec.Match = r.match(s, c.Nodes)
	if m := &f.Spec.Match; m.LinkLayer == "" && m.RateGb == nil && len(m.Devices) == 0 {
		m.Discovered = f.Metadata.Name // a placeholder: a doubt has been raised
	}
	if len(c.Nodes) > 0 && !slices.ContainsFunc(c.Nodes, func(n *node.Node) bool {
		return n.RDMAMode != device.NetnsExclusive.String()
	}) {
		f.Spec.Network.RDMAMode = v1alpha1.RDMAExclusive
	}
	s.fate("pods ask for fabric.dev/%s instead of %s, as many; the annotation for the network stays", f.Metadata.Name,
		res)
	s.fate("remove %s from sriovDevicePlugin of %s: two device plugins must not offer one device",
		res, r.policy)
	return true
}

// shared fills in a Fabric whose pods share devices.
func (c *conversion) shared(s *spec, f *fabric) error {
	master, pkey, err := s.master()
	if err != nil {
		return err
	}
	f.Spec.Attachment = v1alpha1.IPoIBChild
	f.Spec.Match = v1alpha1.Match{LinkLayer: "InfiniBand", Devices: []string{master}}
	f.Spec.Network.PKey = pkey
	mtu, there, err := s.number("mtu")
	if err != nil {
		return err
	}
	if there && mtu != 0 {
		m := int32(min(max(mtu, 0), 1<<20)) // refused below if no interface can have it
		f.Spec.Network.MTU = &m
	}
	name := f.Metadata.Name
	i := slices.IndexFunc(c.resources, func(r resource) bool { return r.shared && slices.Contains(r.devices, master) })
	if i < 0 {
		s.doubt("pods ask for fabric.dev/%s instead of the resource of the RDMA shared device plugin: none here names "+
			"%s, so how many pods may share a device (shares) has its default", name, master)
		return nil
	}
	r := &c.resources[i]
	if r.most > 0 {
		const most = 1000 // shares of a Fabric
		n := int32(min(r.most, most))
		f.Spec.Shares = &n
	}
	s.fate("pods ask for fabric.dev/%s instead of %s; the annotation for the network stays", name, r.name)
	if len(r.devices) > 1 {
		s.doubt("the resource %s is for other interfaces too (%s): a Fabric for each, or all in its match", r.name,
			strings.Join(r.devices, ", "))
	} else {
		s.fate("remove %s from rdmaSharedDevicePlugin of %s", r.name, r.policy)
	}
	return nil
}
