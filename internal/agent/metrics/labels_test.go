package metrics

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

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
