// Package conf_test keeps the examples true: every file here, and every configuration in the documentation, is read by
// the parser of the plugin.
package conf_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/admit"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// want is what a plugin of type fabric is understood to be asked for.
type want struct {
	Network  string
	Mode     netconf.Mode
	RDMA     netconf.RDMAPolicy
	Selector netconf.SelectorKind
	IPAM     string
}

// files are all files but the tests. A new one needs its line.
var files = map[string]want{
	"ib-rail0.conflist":    {"ib-rail0", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByName, "host-local"},
	"ib-rail1.conflist":    {"ib-rail1", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByName, "host-local"},
	"ib-rail2.conflist":    {"ib-rail2", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByName, "host-local"},
	"ib-rail3.conflist":    {"ib-rail3", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByName, "host-local"},
	"ib-vf.conflist":       {"ib-vf", netconf.ModeDevice, netconf.RDMAExclusive, netconf.ByAddress, "whereabouts"},
	"ipoib-child.conflist": {"ipoib-child", netconf.ModeIPoIB, netconf.RDMANone, netconf.ByNothing, "static"},
	"roce-vf.conflist":     {"roce-vf", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByAddress, "whereabouts"},
	"chained.conflist":     {"sriov-rdma", netconf.ModeRDMA, netconf.RDMAAuto, netconf.ByAddress, ""},
	"nad-chained.yaml":     {"sriov-rdma", netconf.ModeRDMA, netconf.RDMAAuto, netconf.ByAddress, ""},
	"nad-ib-pf.yaml":       {"ib-pf", netconf.ModeDevice, netconf.RDMAExclusive, netconf.ByAddress, "whereabouts"},
	"nad-ib-vf.yaml":       {"ib-vf", netconf.ModeDevice, netconf.RDMAExclusive, netconf.ByAddress, "whereabouts"},
	"nad-ipoib-child.yaml": {"ipoib-child", netconf.ModeIPoIB, netconf.RDMANone, netconf.ByNothing, "whereabouts"},
	"nad-roce-vf.yaml":     {"roce-vf", netconf.ModeDevice, netconf.RDMAAuto, netconf.ByAddress, "whereabouts"},
	"fabric.d/policy.json": {},
}

func TestFiles(t *testing.T) {
	seen := map[string]bool{"conf_test.go": true, "docs_test.go": true, "walks_test.go": true,
		"workflows_test.go": true}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || seen[file] {
			return err
		}
		seen[file] = true
		w, known := files[file]
		if !known {
			t.Errorf("%s: no test knows it: add what it asks for to the list", file)
			return nil
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		switch filepath.Ext(file) {
		case ".conflist":
			check(t, file, string(b), w)
		case ".yaml":
			check(t, file, nadConfig(t, string(b)), w)
		case ".json":
			if _, err := policy.Load(file, ""); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file := range files {
		if !seen[file] {
			t.Errorf("%s is in the list, but not here", file)
		}
	}
}

func check(t *testing.T, file, text string, w want) {
	t.Helper()
	configs := plugins(t, text)
	if len(configs) != 1 {
		t.Fatalf("%s: %d plugins of type fabric, want 1", file, len(configs))
	}
	c, err := netconf.Parse(configs[0], add)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	if diff := cmp.Diff(w, want{c.Name, c.Mode, c.RDMA, c.Selector.Kind, c.IPAM.Type}); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
	if len(c.VF.Asked()) > 0 {
		t.Errorf("%s asks for attributes of a virtual function, which other devices do not have", file)
	}
}

var add = netconf.Env{Command: "ADD", ContainerID: "c1", Netns: "/run/netns/c1", IfName: "net1"}

// plugins returns what a runtime hands to each plugin of type fabric: the fields of its entry, name and version of the
// list, and, as Multus does where the resource of a pod has one, the address of a device.
func plugins(t *testing.T, text string) [][]byte {
	t.Helper()
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if list.Plugins == nil {
		var one map[string]any
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		list.Plugins = []map[string]any{one}
	}
	var configs [][]byte
	for i, p := range list.Plugins {
		if p["type"] != "fabric" {
			continue
		}
		if p["name"] == nil {
			p["name"], p["cniVersion"] = list.Name, list.CNIVersion
		}
		selected := p["device"] != nil || p["master"] != nil || p["rdmaDevice"] != nil || p["guid"] != nil ||
			p["hwaddr"] != nil
		if !selected {
			p["deviceID"], p["runtimeConfig"] = "0000:3b:00.2", map[string]any{"deviceID": "0000:3b:00.2"}
		}
		if i > 0 {
			p["prevResult"] = map[string]any{
				"cniVersion": list.CNIVersion,
				"interfaces": []any{map[string]any{"name": "net1", "sandbox": "/run/netns/c1"}},
			}
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, b)
	}
	return configs
}

// nadConfig returns the text of spec.config, which is the last block of these files.
func nadConfig(t *testing.T, text string) string {
	t.Helper()
	_, config, ok := strings.Cut(text, "\nspec:\n  config: |\n")
	if !ok {
		t.Fatalf("no spec.config in\n%s", text)
	}
	return config
}

// TestDocumentation parses the configurations that pages print: of the plugin and of the node policy, and Fabrics.
func TestDocumentation(t *testing.T) {
	fence := regexp.MustCompile("(?s)```(json|yaml)\n(.*?)```")
	judge, err := admit.New(helm.Fabrics)
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]int{}
	for page, text := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			kind, block := m[1], m[2]
			var err error
			switch {
			case kind == "yaml" && isFabric.MatchString(block):
				kind = "Fabric"
				err = parseFabrics(judge, block)
			case strings.Contains(block, `"fabric"`):
				kind = "plugin"
				err = parseAll(plugins(t, block))
			case kind == "json" && page == "docs/policy.md":
				kind = "policy"
				err = loadPolicy(t, block)
			}
			parsed[kind]++
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block)
			}
		}
	}
	for _, kind := range []string{"plugin", "policy", "Fabric"} {
		if parsed[kind] == 0 {
			t.Errorf("no page has a configuration of kind %s: %v", kind, parsed)
		}
	}
}

// TestManifestFabrics judges the Fabrics of the manifests.
func TestManifestFabrics(t *testing.T) {
	judge, err := admit.New(helm.Fabrics)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir("../deployments", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "templates" {
			return fs.SkipDir // of the chart: no YAML yet
		}
		if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !isFabric.Match(b) {
			return nil
		}
		found++
		if err := parseFabrics(judge, string(b)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no manifest has a Fabric")
	}
}

var isFabric = regexp.MustCompile(`(?m)^kind: Fabric$`)

// parseFabrics returns what the API server or the controller would say of the Fabrics among the objects of a block.
func parseFabrics(judge *admit.Judge, block string) error {
	for _, doc := range strings.Split(block, "\n---\n") {
		if !isFabric.MatchString(doc) {
			continue
		}
		wrong, err := judge.Judge(doc)
		if err == nil && wrong != "" {
			err = errors.New(wrong)
		}
		o := &v1alpha1.Fabric{}
		if err == nil {
			err = yaml.UnmarshalStrict([]byte(doc), o)
		}
		if err == nil {
			_, err = fabrics.Parse(o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseAll(configs [][]byte) error {
	for _, config := range configs {
		if _, err := netconf.Parse(config, add); err != nil {
			return err
		}
	}
	return nil
}

func loadPolicy(t *testing.T, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	_, err := policy.Load(file, "")
	return err
}
