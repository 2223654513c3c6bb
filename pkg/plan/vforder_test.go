package plan

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Every setting of a VF has its place in the order: one that is missing would never be made.
func TestOrderHasEverySetting(t *testing.T) {
	want, got := device.VFAttrNames(), slices.Clone(vfOrder)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the order has %v, the table %v", got, want)
	}
}
