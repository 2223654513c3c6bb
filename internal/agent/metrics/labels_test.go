package metrics

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// What DEL has not found is a series for each network and device, whose parent may have several missing children.
func TestMissing(t *testing.T) {
	gone := func(network, claim string, missing bool) *journal.Entry {
		return &journal.Entry{Network: network, DeviceKey: claim, Missing: missing, Attached: true}
	}
	got := missing(journalState{entries: []*journal.Entry{
		gone("rail", "pci/0000:3b:00.0", true), gone("rail", "pci/0000:3b:00.0", true),
		gone("rail", "pci/0000:3b:00.1", false), gone("other", "pci/0000:3b:00.0", true),
	}})
	want := []sample{{1, []string{"rail", "pci/0000:3b:00.0"}}, {1, []string{"other", "pci/0000:3b:00.0"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Series name the pod that has a device, not its container of 64 digits; what a runtime passes is quoted.
func TestPodLabels(t *testing.T) {
	for args, want := range map[string][2]string{
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0": {"ml", "train-0"},
		"K8S_POD_NAMESPACE=ml\xff;K8S_POD_NAME=a\nb":                {`ml\xff`, `a\nb`},
		"": {"", "container 0123456789ab"},
	} {
		e := &journal.Entry{Key: journal.Key{ContainerID: strings.Repeat("0123456789abcdef", 4)}, Args: args}
		if got := podOf(e); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
