package generate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/migrate"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// The controller, generate and migrate give one network the same configuration.
func TestOneConfigurationOfANetwork(t *testing.T) {
	shared := options()
	shared.Shared, shared.Prefix = true, SharedPrefix
	vfs := options()
	vfs.VFs = true
	for _, c := range []struct {
		machine  string
		o        Options
		operator string // apiVersion, kind and spec of the operators' object; its ipam is that of the network
		fabric   string // spec; empty: no Fabric gives such a network
	}{
		{"roce", options(), "mellanox.com/v1alpha1 HostDeviceNetwork {resourceName: x", "{attachment: WholeDevice"},
		{"gb200", shared, "mellanox.com/v1alpha1 IPoIBNetwork {master: %s", "{attachment: IPoIBChild"},
		{"v100", vfs,
			`sriovnetwork.openshift.io/v1 SriovIBNetwork {resourceName: x, capabilities: ` +
				`'{"infinibandGUID": true}'`, ""},
		{"roce", vfs, `sriovnetwork.openshift.io/v1 SriovNetwork {resourceName: x, capabilities: '{"mac": true}'`, ""},
	} {
		text, err := Generate("nad", open(t, c.machine), c.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			name, want := configOf(t, d)
			ipam, err := json.Marshal(want["ipam"])
			if err != nil {
				t.Fatal(err)
			}
			master, _ := want["master"].(string)
			api, spec, _ := strings.Cut(c.operator, " ")
			kind, spec, _ := strings.Cut(spec, " ")
			if strings.Contains(spec, "%s") {
				spec = fmt.Sprintf(spec, master)
			}
			list, err := migrate.Read(strings.NewReader(fmt.Sprintf(
				"{apiVersion: %s, kind: %s, metadata: {name: %s}, spec: %s, ipam: "+
					"'%s'}}", api, kind, name, spec, ipam)))
			if err != nil {
				t.Fatal(err)
			}
			out, err := migrate.Convert(list, migrate.Options{To: migrate.ToNAD, Prefix: "nvidia.com"})
			if err != nil || len(out) != 1 {
				t.Fatal(out, err)
			}
			var object map[string]any
			as(t, out[0].Object, &object)
			if _, got := configOf(t, object); !cmp.Equal(want, got) {
				t.Errorf("migrate (-generate +migrate):\n%s", cmp.Diff(want, got))
			}
			if c.fabric == "" {
				continue
			}
			f := &v1alpha1.Fabric{}
			f.Name = name
			text := fmt.Sprintf("%s, match: {linkLayer: InfiniBand}, addresses: {ipam: %s}}", c.fabric, ipam)
			if err := yaml.UnmarshalStrict([]byte(text), &f.Spec); err != nil {
				t.Fatal(err)
			}
			parsed, err := fabrics.Parse(f)
			if err != nil {
				t.Fatal(err)
			}
			b, err := parsed.Config(fabrics.NodeParams{Master: master})
			var got map[string]any
			if err != nil || json.Unmarshal(b, &got) != nil || !cmp.Equal(want, got) {
				t.Errorf("controller: %v (-generate +controller):\n%s", err, cmp.Diff(want, got))
			}
		}
	}
}

// configOf is the name of a network, and its configuration.
func configOf(t *testing.T, definition map[string]any) (name string, conf map[string]any) {
	t.Helper()
	var d struct {
		Metadata struct{ Name string }
		Spec     struct{ Config string }
	}
	as(t, definition, &d)
	if err := json.Unmarshal([]byte(d.Spec.Config), &conf); err != nil || conf["cniVersion"] != "1.0.0" {
		t.Fatalf("%v: %s", err, d.Spec.Config)
	}
	return d.Metadata.Name, conf
}
