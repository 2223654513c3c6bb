package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// objectOf is a Fabric; inForce is the spec of its first generation that is in force, empty: none.
func objectOf(t *testing.T, name, spec, inForce string, age time.Duration) v1alpha1.Fabric {
	t.Helper()
	read := func(spec string) (o v1alpha1.Fabric) {
		if err := yaml.UnmarshalStrict([]byte(testfabrics.Object(name, spec)), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := read(spec)
	o.Generation, o.CreationTimestamp = 1, metav1.NewTime(noon.Add(-age))
	if inForce != "" {
		o.Generation = 2
		o.Status.InForce = &v1alpha1.FabricInForce{Generation: 1, Spec: read(inForce).Spec}
	}
	return o
}

const (
	here26  = `{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26}]}}}`
	here27  = `{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 27}]}}}`
	there26 = `{addresses: {nodeRanges: {ranges: [{range: 10.1.0.0/24, perNodePrefixLength: 26}]}}}`
)

func TestJudge(t *testing.T) {
	errLive := errors.New("an address is in use")
	for name, tt := range map[string]struct {
		objects []v1alpha1.Fabric
		needs   map[string]need
		dra     error
		live    error
		want    string // by name: generation in force, + if that is new, and why the present one is not
	}{
		"a new one is accepted": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", here26, "", 0)}, want: "a 1+",
		},
		"of two with one range the older one has it": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", here26, "", 0), objectOf(t, "b", here27, "", time.Hour)},
			want:    "b 1+, a 0: overlap",
		},
		"what is in force comes before what is older": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", here26, there26, time.Hour),
				objectOf(t, "b", here26, here26, 0)},
			want: "a 1: overlap, b 2+",
		},
		"a wrong one leaves in force what was": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", strings.Replace(here26, "10.0.0.0/24", "x", 1), here26, 0)},
			want:    "a 1: range",
		},
		"the same again is in force already": {
			objects: []v1alpha1.Fabric{func() v1alpha1.Fabric {
				o := objectOf(t, "a", here26, here26, 0)
				o.Generation = 1
				return o
			}()},
			live: errLive, want: "a 1",
		},
		"an older controller did not know a field": {
			objects: []v1alpha1.Fabric{func() v1alpha1.Fabric {
				o := objectOf(t, "a", here26, `{}`, 0)
				o.Generation = 1
				return o
			}()},
			want: "a 1+",
		},
		"one that is being deleted is not judged": {
			objects: []v1alpha1.Fabric{func() v1alpha1.Fabric {
				o := objectOf(t, "a", here27, here26, 0)
				o.DeletionTimestamp = &metav1.Time{Time: noon}
				return o
			}()},
			want: "a 1",
		},
		"its devices need more addresses than a node has": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", here26, "", 0)}, needs: map[string]need{"a": {100, 100}},
			want: "a 0: too few addresses",
		},
		"an address in use is in the way": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", here27, here26, 0)}, live: errLive,
			want: "a 1: an address is in use",
		},
		"the cluster has no DRA": {
			objects: []v1alpha1.Fabric{objectOf(t, "a", `{allocation: DRA}`, "", 0)}, dra: errDRANotServed,
			want: "a 0: allocation DRA",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range strings.Split(tt.want, ", ") {
				j := &judge(tt.objects, tt.needs, tt.dra, func(_, _ *fabrics.Fabric) error { return tt.live })[i]
				generation := int64(0)
				if j.force != nil {
					generation = j.force.Generation
				}
				got := fmt.Sprint(j.object.Name, " ", generation)
				if j.accept {
					got += "+"
				}
				decided, reason, refused := strings.Cut(want, ": ")
				if got != decided || (j.refused != nil) != refused ||
					refused && !strings.Contains(j.refused.Error(), reason) {
					t.Errorf("%s: %v, want %q", got, j.refused, want)
				}
			}
		})
	}
}

// What a newer version has accepted and this one can't read is known by its name, and is not among what is in force.
func TestUnread(t *testing.T) {
	o := objectOf(t, "new", `{}`, `{}`, 0)
	o.Status.InForce.Spec.Attachment = "turbo"
	all := judge([]v1alpha1.Fabric{o, objectOf(t, "old", `{}`, "", 0)}, nil, nil,
		func(_, _ *fabrics.Fabric) error { return errors.New("no") })
	if got := unread(all); len(got) != 1 || !got["new"] {
		t.Errorf("unread: %v", got)
	}
	if got := inForce(all); len(got) != 0 {
		t.Errorf("in force: %v", got)
	}
}

// The condition Ready says what stops pods, the most important thing first.
func TestReady(t *testing.T) {
	plain, force := v1alpha1.Fabric{}, &fabrics.Fabric{Generation: 1}
	in := judged{object: &plain, force: force}
	some := &sum{devices: v1alpha1.DeviceCounts{Total: 2, Healthy: 1}}
	down := &sum{devices: v1alpha1.DeviceCounts{Total: 2}, problems: map[string]int32{"PortDown": 2}}
	bare := &sum{devices: v1alpha1.DeviceCounts{Total: 2, NotConnected: 2}, problems: map[string]int32{notConnected: 2}}
	refused := errors.New("it overlaps")
	deleted, newer := v1alpha1.Fabric{}, objectOf(t, "a", `{}`, `{}`, 0)
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	wrong := &published{reason: publishFailed, err: errors.New("refused by a webhook")}
	harmless := &published{reason: namespaceMissing, err: errors.New("no namespace x"), harmless: true}
	few := &verdict{reason: rangeTooSmall, err: errors.New("too few")}
	for _, tt := range []struct {
		name string
		j    judged
		s    *sum
		p    *published
		a    *verdict
		want string
	}{
		{"all is well", in, some, &published{}, &verdict{}, "Ready"},
		{"a namespace is missing", in, some, harmless, &verdict{}, "Ready"},
		{"no device is healthy", in, down, &published{}, &verdict{}, "DevicesUnhealthy"},
		{"no port was ever connected", in, bare, &published{}, &verdict{}, "NotConnected"},
		{"no node has a device", in, &sum{}, &published{}, &verdict{}, "NoDevices"},
		{"too few addresses", in, &sum{}, &published{}, few, rangeTooSmall},
		{"not published", in, down, wrong, few, publishFailed},
		{"a change is refused", judged{object: &plain, force: force, refused: refused}, some, wrong, few, "Refused"},
		{"never accepted", judged{object: &plain, refused: errDRANotServed}, some, wrong, few, draNotServed},
		{"a newer version's", judged{object: &newer, refused: refused}, some, &published{}, &verdict{}, "Refused"},
		{"deleted", judged{object: &deleted, force: force}, some, wrong, few, "InUse"},
	} {
		if got := ready(&tt.j, tt.s, tt.p, tt.a); got.reason != tt.want || (got.err == nil) != (tt.want == "Ready") {
			t.Errorf("%s: %s: %v, want %s", tt.name, got.reason, got.err, tt.want)
		}
	}
}
