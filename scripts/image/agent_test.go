package image_test

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// The image has all three programs, and fabricctl under the name that kubectl looks for.
func TestAgentPrograms(t *testing.T) {
	i := image.Agent("amd64", "bin", "v1")
	for _, want := range []oci.File{
		{Path: "/usr/bin/fabric", Source: "bin/fabric"},
		{Path: "/usr/bin/fabric-agent", Source: "bin/fabric-agent"},
		{Path: "/usr/bin/fabricctl", Source: "bin/fabricctl"},
		{Path: "/usr/bin/kubectl-fabric", Link: "fabricctl"},
	} {
		if !slices.ContainsFunc(i.Files, func(f oci.File) bool {
			return f.Path == want.Path && f.Source == want.Source && f.Link == want.Link
		}) {
			t.Errorf("%+v is missing in %+v", want, i.Files)
		}
	}
	if v := i.Config.Labels["org.opencontainers.image.version"]; v != "v1" {
		t.Errorf("the label with the version is %q", v)
	}
}
