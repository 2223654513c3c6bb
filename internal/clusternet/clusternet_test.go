package clusternet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// world answers with objects by the path of a list: group/version/resource; an error of that path goes first.
type world struct {
	objects map[string][]string
	errors  map[string]error
}

func (w *world) Each(_ context.Context, s *Source, version string, each func(map[string]any)) (bool, error) {
	path := strings.TrimPrefix(s.Group+"/"+version+"/"+s.Resource, "/")
	if err := w.errors[path]; err != nil {
		return false, err
	}
	list, known := w.objects[path]
	for _, text := range list {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			return true, err
		}
		if s.Name == "" || name(o) == s.Name {
			each(o)
		}
	}
	return known, nil
}

func said(n *Net) string {
	var out []string
	for i := range n.Uses {
		u := &n.Uses[i]
		out = append(out, fmt.Sprintf("%v sure=%t idle=%t", u, u.Sure, u.Idle))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Each kind is read where it has its ranges.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		path, object, want string
	}{
		{"v1/nodes", `{metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24, "fd00:1::/64"]},
		  status: {addresses: [{type: InternalIP, address: 192.0.2.7}, {type: Hostname, address: 10.9.9.9}]}}`,
			"address of Node n1 (192.0.2.7/32) sure=false idle=false\n" +
				"podCIDRs of Node n1 (10.244.1.0/24) sure=true idle=false\n" +
				"podCIDRs of Node n1 (fd00:1::/64) sure=true idle=false"},
		{"v1/nodes", `{metadata: {name: n2, annotations: {k8s.ovn.org/node-subnets:
		  '{"default":["10.128.2.0/23"],"blue":"10.7.0.0/24"}'}}}`,
			"OVN's subnets of Node n2 (10.128.2.0/23) sure=true idle=false\n" +
				"OVN's subnets of Node n2 (10.7.0.0/24) sure=false idle=false"},
		{"networking.k8s.io/v1beta1/servicecidrs", `{metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/12]}}`,
			"ServiceCIDR kubernetes (10.96.0.0/12) sure=true idle=false"},
		{"v1/services", `{metadata: {name: kubernetes}, spec: {clusterIP: 10.96.0.1}}`, "the Service kubernetes, an " +
			"address of the range of Services, which this cluster does not tell (10.96.0.1/32) sure=true idle=false"},
		{"config.openshift.io/v1/networks", `{metadata: {name: cluster}, status: {serviceNetwork: [172.30.0.0/16],
		  clusterNetwork: [{cidr: 10.128.0.0/14}]}}`,
			"clusterNetwork of OpenShift's Network cluster (10.128.0.0/14) sure=true idle=false\n" +
				"serviceNetwork of OpenShift's Network cluster (172.30.0.0/16) sure=true idle=false"},
		{"crd.projectcalico.org/v1/ippools", `{metadata: {name: default-ipv4-ippool}, spec: {cidr: 192.168.0.0/16}}`,
			"Calico IPPool default-ipv4-ippool (192.168.0.0/16) sure=true idle=false"},
		{"crd.projectcalico.org/v1/ippools", `{metadata: {name: old}, spec: {cidr: 192.168.0.0/16, disabled: true}}`,
			"Calico IPPool old (192.168.0.0/16) sure=false idle=false"},
		{"cilium.io/v2/ciliumnodes", `{metadata: {name: n1}, spec: {ipam: {podCIDRs: [10.0.3.0/24]}}}`,
			"CiliumNode n1 (10.0.3.0/24) sure=true idle=false"},
		{"cilium.io/v2alpha1/ciliumpodippools", `{metadata: {name: default}, spec: {ipv4: {cidrs: [10.10.0.0/16]},
		  ipv6: {cidrs: ["fd00::/104"]}}}`, "CiliumPodIPPool default (10.10.0.0/16) sure=true idle=false\n" +
			"CiliumPodIPPool default (fd00::/104) sure=true idle=false"},
		{"kubeovn.io/v1/subnets", `{metadata: {name: ovn-default}, spec: {cidrBlock: "10.16.0.0/16,fd00:10:16::/112"}}`,
			"Kube-OVN Subnet ovn-default (10.16.0.0/16) sure=true idle=false\n" +
				"Kube-OVN Subnet ovn-default (fd00:10:16::/112) sure=true idle=false"},
		{"kubeovn.io/v1/subnets", `{metadata: {name: net1}, spec: {cidrBlock: 10.17.0.0/16, provider: net1.default}}`,
			"Kube-OVN Subnet net1 (10.17.0.0/16) sure=false idle=false"},
		{"whereabouts.cni.cncf.io/v1alpha1/ippools", `{metadata: {name: 10.7.0.0-28}, spec: {range: 10.7.0.0/28,
		  allocations: {"1": {}}}}`, "whereabouts IPPool 10.7.0.0-28 (10.7.0.0/28) sure=false idle=false"},
		{"whereabouts.cni.cncf.io/v1alpha1/ippools", `{metadata: {name: 10.7.0.0-28}}`,
			"whereabouts IPPool 10.7.0.0-28 (10.7.0.0/28) sure=false idle=true"},
		{"nv-ipam.nvidia.com/v1alpha1/ippools", `{metadata: {name: a}, spec: {subnet: 10.5.0.0/24}}`,
			"nv-ipam IPPool a (10.5.0.0/24) sure=false idle=false"},
		{"nv-ipam.nvidia.com/v1alpha1/cidrpools", `{metadata: {name: a}, spec: {cidr: 10.5.0.0/24}}`,
			"nv-ipam CIDRPool a (10.5.0.0/24) sure=false idle=false"},
	} {
		n := Read(t.Context(), &world{objects: map[string][]string{c.path: {c.object}}})
		if got := said(n); got != c.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.path, c.object, got, c.want)
		}
		if len(n.Missing) > 0 || !strings.HasSuffix(n.Because(), " (1)") {
			t.Errorf("%s: %s", c.path, n.Because())
		}
	}
}

// Nonsense in an object is no range, and what it is called stays one line of text.
func TestHostileObjects(t *testing.T) {
	for _, o := range []string{`{}`, `{metadata: 1, spec: 2, status: 3}`, `{spec: {podCIDRs: {a: b}, cidrs: [1, {}],
	  cidr: 7, ipam: [], ipv4: x, cidrBlock: ",,", range: [], subnet: {}, clusterIP: None, allocations: 1},
	  status: {addresses: [1, {type: InternalIP, address: 1}], clusterNetwork: [1], serviceNetwork: x},
	  metadata: {annotations: {k8s.ovn.org/node-subnets: "[1"}}}`} {
		w := &world{objects: map[string][]string{}}
		for i := range Sources {
			s := &Sources[i]
			w.objects[strings.TrimPrefix(s.Group+"/"+s.Versions[0]+"/"+s.Resource, "/")] = []string{o}
		}
		if n := Read(t.Context(), w); len(n.Uses) > 0 {
			t.Errorf("%s: %s", o, said(n))
		}
	}
	evil := `{metadata: {name: "` + `a\n\e[31m` + strings.Repeat("x", 500) + `"}, spec: {cidrs: [10.0.0.0/8]}}`
	n := Read(t.Context(), &world{objects: map[string][]string{"networking.k8s.io/v1/servicecidrs": {evil}}})
	if got := said(n); strings.ContainsAny(got, "\n\x1b") || len(got) > 250 || !strings.Contains(got, "10.0.0.0/8") {
		t.Errorf("%q", got)
	}
}

// What may not be listed is named, and the Service stands in for ServiceCIDRs that can't be read.
func TestForbidden(t *testing.T) {
	n := Read(t.Context(), &world{
		errors: map[string]error{
			"networking.k8s.io/v1/servicecidrs": errors.New("servicecidrs is forbidden\n" + strings.Repeat("x", 1000)),
			"v1/nodes":                          errors.New("no"),
		},
		objects: map[string][]string{
			"v1/services": {`{metadata: {name: kubernetes}, spec: {clusterIPs: [10.96.0.1]}}`},
		},
	})
	if len(n.Missing) != 2 || !strings.HasPrefix(n.Missing[1], `ServiceCIDRs: servicecidrs is forbidden\nx`) ||
		len(n.Missing[1]) > 300 || !strings.Contains(said(n), "10.96.0.1/32") {
		t.Errorf("%q\n%s", n.Missing, said(n))
	}
	const want = "compared with address of the Service kubernetes (1); not with Nodes: no; "
	if got := n.Because(); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
	if got := Read(t.Context(), &world{}).Because(); got != "compared with nothing" {
		t.Error(got)
	}
}
