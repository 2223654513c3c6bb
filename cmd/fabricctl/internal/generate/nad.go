package generate

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

// networkDocs are the networks, as NetworkAttachmentDefinitions or as objects of NVIDIA's network operator.
func (d *data) networkDocs() (docs []doc, err error) {
	if d.Target != "" && !d.VFs {
		policy, err := d.nicClusterPolicy()
		if err != nil {
			return nil, err
		}
		docs = append(docs, policy)
	}
	for i := range d.Networks {
		n := &d.Networks[i]
		head := append([]string{n.Name + ": " + n.Reason + "."}, warnings(n.Fabric.Warnings, n.Warnings())...)
		if d.Target != "" {
			more, err := d.operatorDocs(n)
			if err != nil {
				return nil, err
			}
			more[0].head = append(head, more[0].head...)
			docs = append(docs, more...)
			continue
		}
		one, err := d.definition(n)
		if err != nil {
			return nil, err
		}
		if d.Note != "" {
			head = append(head, warnings([]string{d.Note})...)
		}
		one.head = head
		docs = append(docs, one)
	}
	return docs, nil
}

// sourceBased tells whether the rails of a pod share a subnet, and more than one is there.
func (n *Network) sourceBased() bool { return !n.Fabric.Planes && len(n.Rails) > 1 }

// whereabouts is the section of a network's addresses.
func (n *Network) whereabouts() fields {
	out := fields{"type": "whereabouts", "range": n.Range}
	if len(n.Exclude) > 0 {
		out["exclude"] = n.Exclude
	}
	return out
}

// definition is the NetworkAttachmentDefinition of a network.
func (d *data) definition(n *Network) (doc, error) {
	c := fields{"ipam": n.whereabouts()}
	switch {
	case n.Master != "" && n.InfiniBand():
		c["mode"], c["master"] = "ipoib", n.Master
	case n.Master != "":
		c["type"], c["mode"], c["master"] = "macvlan", "bridge", n.Master
	case n.VFs && n.InfiniBand():
		c["capabilities"] = fields{"infinibandGUID": true}
	case n.VFs:
		c["capabilities"] = fields{"mac": true}
	}
	if n.sourceBased() {
		c["routing"] = fields{"sourceBased": true}
	}
	config, err := fabrics.Configuration(n.Name, c)
	if err != nil {
		return doc{}, fmt.Errorf("network %s: %w", n.Name, err)
	}
	o := object{
		TypeMeta: kind(fabrics.Definitions.GroupVersion().String(), fabrics.Definitions.Kind),
		Metadata: d.named(n.Name), Spec: fields{"config": string(config) + "\n"},
	}
	notes := map[string]string{"config": n.note()}
	if n.Master == "" {
		o.Metadata.Annotations = map[string]string{fabrics.ResourceAnnotation: d.Prefix + "/" + n.Resource}
		notes[fabrics.ResourceAnnotation] = "Multus takes a device of this resource from the pod and passes its " +
			"address on as deviceID."
	}
	return doc{object: o, notes: notes}, nil
}

// note is the comment of a network's configuration.
func (n *Network) note() (text string) {
	switch {
	case n.Master != "" && n.InfiniBand():
		text = "An IPoIB interface on that of the host, for IP and for programs that connect by rdma_cm. NCCL " +
			"and other\n" +
			"users of verbs need no network on InfiniBand. Devices of the RDMA shared device plugin belong to no " +
			"network.\n"
	case n.Master != "":
		text = "A macvlan interface on that of the host: its address makes the GID (RoCE v2) that a pod with " +
			"shared devices\n" +
			"needs. Devices of the RDMA shared device plugin belong to no network.\n"
	}
	per := fmt.Sprintf("%d per node", len(n.Rails))
	if n.VFs {
		per = "one per VF"
	}
	text += fmt.Sprintf("whereabouts gives addresses that are unique in the cluster: %d in this range, %d are needed "+
		"now (%s).", n.Have, n.Need, per)
	switch {
	case n.Fabric.Planes:
		text += "\nA range of its own: planes are subnets that do not reach each other."
	case n.Master != "":
		text += "\nA range of its own: each rail is a subnet, so that packets leave through the interface of their " +
			"address."
	}
	if n.sourceBased() {
		text += "\nsourceBased: " + sharedSubnet
	}
	switch {
	case n.VFs && n.InfiniBand():
		text += "\ninfinibandGUID: the GUID comes from the pod's annotation, or from ib-kubernetes. To give one " +
			"here:\n" +
			`"guid": "02:00:00:00:00:00:00:01", which one VF only can have. Without any it is the ` +
			"administrator's:\n" +
			"ip link set PF vf N node_guid GUID, and port_guid. " + `"linkState": "enable" brings the VF's port up.`
	case n.VFs:
		text += "\n" + `For a VLAN: "vlan": 100, and "vlanQoS": 3 for the class that the switches treat as lossless. ` +
			`"spoofchk" and "trust" are` + "\n" + `"on" or "off", "maxTxRate" is in Mb/s. All of it is put back on ` +
			"return."
	}
	return text
}

// nicClusterPolicy is the device plugin that NVIDIA's network operator runs.
func (d *data) nicClusterPolicy() (doc, error) {
	g := &d.Groups[0]
	config, err := g.config(d.Shared)
	if err != nil {
		return doc{}, err
	}
	section := "sriovDevicePlugin"
	if d.Shared {
		section = "rdmaSharedDevicePlugin"
	}
	head := append([]string{
		"The device plugin that NVIDIA's network operator runs. To leave the rest of your NicClusterPolicy as it is:",
		"kubectl apply --server-side --force-conflicts --field-manager=fabricctl -f FILE. It replaces the list of",
		"resources: add those that stay.",
	}, g.reasons()...)
	if d.Note != "" {
		head = append(head, warnings([]string{d.Note})...)
	}
	return doc{object: object{
		TypeMeta: kind("mellanox.com/v1alpha1", "NicClusterPolicy"),
		Metadata: metav1.ObjectMeta{Name: "nic-cluster-policy"},
		Spec:     fields{section: fields{"config": config}},
	}, head: head}, nil
}

// operatorNamespace is that of the operator's own objects.
const operatorNamespace = "nvidia-network-operator"

// operatorDocs are the objects of NVIDIA's network operator for a network.
func (d *data) operatorDocs(n *Network) ([]doc, error) {
	ipam, err := json.MarshalIndent(n.whereabouts(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", n.Name, err)
	}
	spec := fields{"networkNamespace": d.Namespace, "ipam": string(ipam) + "\n"}
	network := func(kind metav1.TypeMeta, meta metav1.ObjectMeta, head ...string) doc {
		return doc{object: object{kind, meta, spec, nil}, head: head}
	}
	meta := metav1.ObjectMeta{Name: n.Name}
	switch {
	case n.VFs:
		return d.operatorVFs(n, spec)
	case n.Master != "" && n.InfiniBand():
		spec["master"] = n.Master
		return []doc{network(kind("mellanox.com/v1alpha1", "IPoIBNetwork"), meta,
			"Pods have an IPoIB interface on "+n.Master+", and verbs by the shared device plugin, in RDMA mode shared.",
			"The operator writes a network of type ipoib: install fabric under that name, and PKey and mode can "+
				"be given.",
		)}, nil
	case n.Master != "":
		spec["master"], spec["mode"] = n.Master, "bridge"
		return []doc{network(kind("mellanox.com/v1alpha1", "MacvlanNetwork"), meta,
			"Pods have a macvlan interface on "+n.Master+", and verbs by the shared device plugin, in RDMA mode "+
				"shared.",
		)}, nil
	}
	spec["resourceName"] = d.OperatorResource(*n)
	head := []string{
		"The operator writes a network of type host-device, which leaves the RDMA device on the host: in RDMA mode",
		"exclusive the pod has no verbs. Install fabric under that name (docs/migration.md), or use generate nad " +
			"without --target.",
	}
	if n.sourceBased() {
		head = append(head, warnings([]string{"the rails of a pod share this subnet, and a HostDeviceNetwork can't " +
			"ask for routing.sourceBased: all traffic by IP leaves through one of them. generate nad without " +
			"--target asks for it"})...)
	}
	return []doc{network(kind("mellanox.com/v1alpha1", "HostDeviceNetwork"), meta, head...)}, nil
}

// operatorVFs are the virtual functions with their resource, and the network of them.
func (d *data) operatorVFs(n *Network, spec fields) ([]doc, error) {
	link, network, cni, capabilities := "eth", "SriovNetwork", "sriov", `{"mac": true, "CNIDeviceInfoFile": true}`
	if n.InfiniBand() {
		link, network, cni = "ib", "SriovIBNetwork", "ib-sriov"
		capabilities = `{"infinibandGUID": true, "CNIDeviceInfoFile": true}`
	}
	const api = "sriovnetwork.openshift.io/v1"
	meta := metav1.ObjectMeta{Name: n.Name, Namespace: operatorNamespace}
	spec["resourceName"], spec["capabilities"] = n.Resource, capabilities
	return []doc{
		{object: object{kind(api, "SriovNetworkNodePolicy"), meta, fields{
			"resourceName": n.Resource, "numVfs": n.PerNode(), "deviceType": "netdevice", "isRdma": true,
			"linkType":     link,
			"nodeSelector": fields{"feature.node.kubernetes.io/network-sriov.capable": "true"},
			"nicSelector":  fields{"rootDevices": d.Roots(*n)},
		}, nil}, head: []string{
			"The virtual functions, and their resource. numVfs is what the nodes have, or could have; restrict",
			"nodeSelector to the nodes that have these ports.",
		}},
		{object: object{kind(api, network), meta, spec, nil}, head: []string{
			"The operator writes a network of type " + cni + ": install fabric under that name, and it moves the " +
				"RDMA device too.",
		}},
	}, nil
}
