package doctor

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/attach"
)

// What ADD says of a pod's claims is recognised, as it says it.
func TestExplainClaims(t *testing.T) {
	one := []attach.Claimed{{Claim: "ml/rails", Device: "pci/0000:3b:00.0", ID: "0000:3b:00.0"}}
	taken := slices.Clone(one)
	taken[0].Taken = "net1"
	for _, c := range []struct {
		name   string
		claims attach.Claims
		want   string
	}{
		{"no UID", attach.Claims{}, "log-dra-uid"},
		{"bad UID", attach.Claims{PodUID: "../x", BadUID: true}, "log-dra-uid"},
		{"unreadable", attach.Claims{PodUID: "u", Unreadable: errors.New("EIO")}, "log-dra-hook"},
		{"no claim", attach.Claims{PodUID: "u"}, "log-dra-no-claim"},
		{"a network too many", attach.Claims{PodUID: "u", Devices: taken}, "log-dra-no-claim"},
		{"another device", attach.Claims{PodUID: "u", DeviceID: "0000:3c:00.0", Devices: one}, "log-dra-no-claim"},
	} {
		c.claims.Fabric, c.claims.Pod = "ib-200g", "ml/train-0"
		_, refusal := c.claims.Choose()
		if refusal == nil {
			t.Errorf("%s: not refused", c.name)
			continue
		}
		got := Explain("fabric: " + refusal.Message + " (" + refusal.Hint + ")")
		if len(got) != 1 || got[0].ID != c.want {
			t.Errorf("%s: %q is %v, want %s", c.name, refusal.Message, got, c.want)
		}
	}
}
