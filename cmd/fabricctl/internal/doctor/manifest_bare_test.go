package doctor

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// A pod without networks is judged by what its resources mean, and by its node.
func TestManifestWithoutNetworks(t *testing.T) {
	fabric := func(name string, mode v1alpha1.Attachment) v1alpha1.Fabric {
		f := v1alpha1.Fabric{}
		f.Name, f.Spec.Attachment = name, mode
		return f
	}
	fabrics := []v1alpha1.Fabric{fabric("ib-200g", v1alpha1.IPoIBChild), fabric("ib-400g", v1alpha1.WholeDevice),
		fabric("ib-dra", v1alpha1.WholeDevice)}
	fabrics[2].Spec.Allocation = v1alpha1.DRA
	for _, c := range []struct {
		limits, security string
		on               string // machine
		want             Status
		says             string
	}{
		{`"rdma/hca_shared_devices_a":1,"nvidia.com/gpu":8`, "", "", Warn, "On InfiniBand that is all it needs"},
		{`"rdma/hca_shared_devices_a":1,"nvidia.com/gpu":8`, "", "gb200", OK, "NCCL's NET/IB and UCX work"},
		{`"rdma/hca_shared_devices_a":1`, "", "h20", Fail, "node h20 is in exclusive mode"},
		{`"rdma/rdma_v100":1,"nvidia.com/v100":4`, "", "a100", OK, "rdma/rdma_v100: 1 is for verbs"},
		{`"rdma/ib_400g":1`, "", "", OK, "InfiniBand"},
		{`"rdma/roce_a":1`, "", "", Fail, "RoCE needs an address in the pod's own network namespace"},
		{`"rdma/hca":1`, "", "roce", Fail, "RoCE needs an address"},
		{`"fabric.dev/ib-200g":1`, "", "", OK, "fabric.dev/ib-200g: 1 is for verbs"},
		{`"fabric.dev/ib-dra":1`, "", "", OK, "ResourceClaims attach what they give (fabric.dev/ib-dra: 1)"},
		{`"fabric.dev/ib-400g":1`, "", "", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"fabric.dev/unknown":1`, "", "gb200", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"nvidia.com/hostdev":1,"rdma/ib":1`, "", "", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"t7d.com/rdma":1`, "", "gb200", OK, "t7d.com/rdma: 1 is for verbs"},
		{`"t7d.com/rdma":1`, "", "", Warn, "On InfiniBand that is all it needs"},
		{`"t7d.com/rdma":1`, "", "h20", Fail, "node h20 is in exclusive mode"},
		{`"nvidia.com/rdma_hostdev":1`, "", "", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"rdma/ib":0`, "", "", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"nvidia.com/gpu":8`, "", "", Fail, "no annotation k8s.v1.cni.cncf.io/networks"},
		{`"nvidia.com/gpu":8`, `"privileged":true`, "", Warn, "container c is privileged"},
		{`"nvidia.com/hostdev":1`, `"privileged":true`, "", Fail, "no annotation"},
	} {
		var m Manifest
		body := `{"kind":"Pod","spec":{"nodeName":"n1","containers":[{"name":"c","resources":{"limits":{` + c.limits +
			`}},"securityContext":{` + c.security + `}}]}}`
		err := json.Unmarshal([]byte(body), &m)
		if err != nil {
			t.Fatal(err)
		}
		var nodes []FabricNode
		if c.on != "" {
			w := machines.Named(c.on)
			if c.on == "roce" {
				w.Live.RDMAMode = "shared"
				w.Done()
			}
			n := FabricNode{Node: host(t, w).Node}
			n.Name = "n1"
			nodes = []FabricNode{{Node: &node.Node{}}, n}
		}
		m.Know(fabrics, nodes)
		got, err := CheckManifest(&m, nil)
		if err != nil || got[0].ID != "pod-annotation" || got[0].Status != c.want ||
			!strings.Contains(got[0].Evidence, c.says) {
			t.Errorf("%s on %q: %v %+v", c.limits, c.on, err, got[0])
		}
	}
}

// One of a shared resource is good for any number of networks.
func TestManifestSharedCount(t *testing.T) {
	m := Manifest{Kind: "Pod"}
	m.Metadata.Annotations = map[string]string{networksAnnotation: "macvlan-a, macvlan-b", statusAnnotation: "[]"}
	m.Spec.Containers = make([]container, 1)
	m.Spec.Containers[0].Resources.Limits = map[string]any{"rdma/roce": 1}
	got, err := CheckManifest(&m, nil)
	if s := text(got); err != nil || strings.Contains(s, "pod-count") {
		t.Errorf("%v %s", err, s)
	}
}
