package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// network is a NetworkAttachmentDefinition of fabric-cni.
type network struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// toNetwork makes the NetworkAttachmentDefinition that takes the place of the one that the operator has made of an
// object: same name, namespace and resource, so that no pod changes.
func (c *conversion) toNetwork(o *Object) (*Output, error) {
	s := newSpec(o)
	namespace, res, err := c.common(s)
	if err != nil {
		return nil, err
	}
	conf := map[string]any{}
	switch o.Kind {
	case ipoib:
		err = s.ipoib(conf)
	case sriovIB, sriovEther:
		err = s.virtual(conf)
	}
	if err != nil {
		return nil, err
	}
	if err := s.ipam(conf); err != nil {
		return nil, err
	}
	chain, err := s.chain()
	if err != nil {
		return nil, err
	}
	s.rest()
	text, err := fabrics.Configuration(o.Name, conf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	if _, err := fabrics.Judge(text); err != nil {
		return nil, fmt.Errorf("%s: fabric would refuse the network: %w", o, err)
	}
	if text, err = fabrics.Configuration(o.Name, conf, chain...); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	n := &network{
		APIVersion: "k8s.cni.cncf.io/v1", Kind: "NetworkAttachmentDefinition",
		Metadata: metadata{Name: o.Name, Namespace: namespace},
		Spec:     map[string]any{"config": string(text) + "\n"},
	}
	if res != "" {
		n.Metadata.Annotations = map[string]string{"k8s.v1.cni.cncf.io/resourceName": res}
		s.fate("the resource %s stays: pods and the device plugin do not change", res)
	}
	return &Output{From: o.String(), Fates: s.fates, Doubts: s.doubts, Object: n}, nil
}

// common takes the fields that all networks have: where it is published, and the resource with its prefix.
func (c *conversion) common(s *spec) (namespace, res string, err error) {
	if namespace, err = s.text("networkNamespace"); err != nil {
		return "", "", err
	}
	if namespace == "" {
		// Those of the network operator belong to no namespace and are published in default; those of the SR-IOV
		// network operator where they are.
		namespace = cmp.Or(s.of.Namespace, "default")
	}
	if res, err = s.text("resourceName"); err != nil {
		return "", "", err
	}
	switch {
	case res == "" && s.of.Kind != ipoib:
		return "", "", fmt.Errorf("%s: spec.resourceName is missing: the device plugin's resource", s.of)
	case res != "" && !strings.Contains(res, "/"):
		prefix := hostPrefix
		if s.of.Kind != hostDevice {
			prefix = c.Prefix
		}
		res = prefix + "/" + res
	}
	return namespace, res, nil
}

// childOf is the name that an IPoIB child interface usually has: its parent's, and its PKey.
var childOf = regexp.MustCompile(`^(.+)\.([0-9a-fA-F]{4})$`)

// ipoib takes the fields of an IPoIBNetwork.
func (s *spec) ipoib(conf map[string]any) error {
	master, pkey, err := s.master()
	if err != nil {
		return err
	}
	conf["mode"], conf["master"] = string(netconf.ModeIPoIB), master
	if pkey != "" {
		conf["pkey"] = pkey
	}
	mtu, there, err := s.number("mtu")
	if there && mtu != 0 {
		conf["mtu"] = mtu
	}
	return err
}

// master takes the parent of the children. One that is a child itself becomes its parent and its PKey.
func (s *spec) master() (master, pkey string, err error) {
	if master, err = s.text("master"); err != nil {
		return "", "", err
	}
	if master == "" {
		return "", "", fmt.Errorf("%s: spec.master is missing: the interface of the HCA, such as ibs108", s.of)
	}
	if m := childOf.FindStringSubmatch(master); m != nil {
		s.fate("spec.master %s is a child interface: %s with pkey 0x%s gives the same partition", master, m[1], m[2])
		return m[1], "0x" + strings.ToLower(m[2]), nil
	}
	return master, "", nil
}

// renamed are the fields of SriovNetwork and SriovIBNetwork, as fabric calls them. All of them mean the same.
var renamed = map[string]string{"linkState": "linkState", "spoofChk": "spoofchk", "trust": "trust"}

// virtual takes the settings of a virtual function.
func (s *spec) virtual(conf map[string]any) error {
	for field, name := range renamed {
		v, err := s.text(field)
		if err != nil {
			return err
		}
		if v != "" {
			conf[name] = v
		}
	}
	for _, field := range []string{"vlan", "vlanQoS", "minTxRate", "maxTxRate"} {
		n, there, err := s.number(field)
		if err != nil {
			return err
		}
		if there && (n != 0 || strings.HasSuffix(field, "TxRate")) {
			conf[field] = n
		}
	}
	if conf["vlan"] != nil || conf["minTxRate"] != nil || conf["trust"] == "on" || conf["spoofchk"] == "off" {
		s.fate("vlan, trust on, spoofchk off and rates: the field vf of the node policy has to allow them, see " +
			"docs/policy.md")
	}
	proto, err := s.text("vlanProto")
	if err != nil {
		return err
	}
	if proto != "" {
		conf["vlanProto"] = strings.ToLower(proto)
	}
	for _, field := range []string{"allMulticast", "logLevel", "logFile", "interfaceName", "scanGuids"} {
		if v, ok := s.left[field]; ok {
			delete(s.left, field)
			s.doubt("spec.%s: %s has no counterpart and was left out", field, compact(v))
		}
	}
	pkey, err := s.text("pkey")
	if err != nil {
		return err
	}
	if pkey != "" {
		conf["pkey"] = pkey
		s.fate("spec.pkey %s is a condition: ib-kubernetes and the subnet manager put the port into it, and a pod "+
			"waits for that", pkey)
	}
	capabilities, err := s.object("capabilities")
	if len(capabilities) > 0 {
		conf["capabilities"] = capabilities
	}
	return err
}

// ipam takes the addresses.
func (s *spec) ipam(conf map[string]any) error {
	v, err := s.object("ipam")
	if err != nil {
		return err
	}
	if len(v) == 0 {
		s.fate("spec.ipam is empty: the interfaces have no addresses; RoCE needs some, and so does IP over InfiniBand")
		return nil
	}
	name, _ := v["type"].(string)
	if name == "" {
		return fmt.Errorf("%s: spec.ipam: field \"type\" is missing: the IPAM plugin, such as whereabouts", s.of)
	}
	conf["ipam"] = v
	s.fate("spec.ipam stays as it is (%s): no address is given twice, as the pool is the same", name)
	return nil
}

// chain takes the plugins behind the operator's one. rdma is not needed: fabric moves the RDMA device.
func (s *spec) chain() (out []any, err error) {
	text, err := s.text("metaPlugins")
	if err != nil || strings.TrimSpace(text) == "" {
		return nil, err
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte("["+text+"]"), &list); err != nil {
		return nil, fmt.Errorf("%s: spec.metaPlugins: want configurations of CNI plugins: %w", s.of, err)
	}
	for _, p := range list {
		if p["type"] == "rdma" {
			s.fate("spec.metaPlugins: rdma is not needed: fabric moves the RDMA device with the interface")
			continue
		}
		out = append(out, p)
	}
	return out, nil
}
