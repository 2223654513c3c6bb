package generate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// member is a node with so many devices of a Fabric, of which some are down.
func member(name string, rateGb int32, devices map[string][2]int) doctor.FabricNode {
	n := doctor.FabricNode{}
	n.Name = name
	for fabric, count := range devices {
		nf := v1alpha1.NodeFabric{Name: fabric}
		for i := range count[0] + count[1] {
			d := v1alpha1.FabricDevice{ID: fmt.Sprint(i), RateGb: rateGb}
			if i >= count[0] {
				d.Problem = "PortDown"
			}
			nf.Devices = append(nf.Devices, d)
		}
		n.Status.Fabrics = append(n.Status.Fabrics, nf)
	}
	return n
}

func published(name string, rail int, mode v1alpha1.Attachment) v1alpha1.Fabric {
	f := v1alpha1.Fabric{}
	f.Name, f.Spec.Attachment, f.Status.Published = name, mode, []string{"ml"}
	if rail >= 0 {
		r := int32(rail)
		f.Spec.Match = v1alpha1.Match{LinkLayer: "Ethernet", Rail: &r}
	}
	return f
}

func TestForCluster(t *testing.T) {
	one := []v1alpha1.Fabric{published("ib", -1, v1alpha1.WholeDevice)}
	eight := map[string][2]int{"ib": {8, 0}}
	planes := []v1alpha1.Fabric{
		published("b", 1, v1alpha1.WholeDevice), published("z", 0, v1alpha1.WholeDevice),
		published("ib", -1, v1alpha1.WholeDevice),
	}
	onPlanes := map[string][2]int{"z": {1, 0}, "b": {1, 0}, "ib": {1, 0}}
	gone := member("n3", 400, map[string][2]int{"ib": {2, 0}})
	gone.Spec.Gone = &metav1.Time{}
	for _, c := range []struct {
		name    string
		fabrics []v1alpha1.Fabric
		nodes   []doctor.FabricNode
		fabric  string
		want    string // the annotation, or the error
	}{
		{"all rails", one, []doctor.FabricNode{member("n1", 400, eight)}, "", strings.Repeat("ib, ", 7) + "ib"},
		{"what is down is not counted", one, []doctor.FabricNode{member("n1", 400, map[string][2]int{"ib": {2, 6}})},
			"",
			"ib, ib"},
		{"one node alone changes nothing", one,
			[]doctor.FabricNode{member("n1", 400, map[string][2]int{"ib": {1000, 0}}),
				member("n2", 400, map[string][2]int{"ib": {2, 0}})}, "", "ib, ib"},
		{"a node that is gone", one, []doctor.FabricNode{member("n1", 400, map[string][2]int{"ib": {1, 0}}), gone,
			gone}, "",
			"ib"},
		{"a share of one device", []v1alpha1.Fabric{published("ib", -1, v1alpha1.IPoIBChild)},
			[]doctor.FabricNode{member("n1", 400, eight)}, "", "ib"},
		{"planes, in the order of rails", planes, []doctor.FabricNode{member("n1", 400, onPlanes)}, "", "z, b"},
		{"one of them", planes, []doctor.FabricNode{member("n1", 400, onPlanes)}, "b", "b"},
		{"by name", planes, []doctor.FabricNode{member("n1", 400, onPlanes)}, "ib", "ib"},
		{"nothing healthy", one, []doctor.FabricNode{member("n1", 400, map[string][2]int{"ib": {0, 8}})}, "",
			"no node has a healthy device of a Fabric"},
		{"no such Fabric", one, []doctor.FabricNode{member("n1", 400, eight)}, "x",
			`no Fabric "x" with a device: there are ib`},
	} {
		o := options()
		o.Fabric = c.fabric
		got, err := ForCluster("pod", &Fleet{Fabrics: c.fabrics, Nodes: c.nodes}, o)
		if err != nil {
			got = err.Error()
		} else {
			documents(t, got)
			planes := strings.Contains(c.want, "z")
			if got := strings.Contains(got, "NCCL_CROSS_NIC"); got != planes {
				t.Errorf("%s: planes %v", c.name, got)
			}
			wantShared := c.fabrics[0].Spec.Attachment == v1alpha1.IPoIBChild
			if shared := strings.Contains(got, "An IPoIB interface on"); shared != wantShared {
				t.Errorf("%s: shared %v", c.name, shared)
			}
			got = regexp.MustCompile(`cni.cncf.io/networks: (.*)`).FindStringSubmatch(got)[1]
		}
		if !strings.HasPrefix(got, c.want) || err == nil && got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
