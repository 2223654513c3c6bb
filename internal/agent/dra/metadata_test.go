package dra

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	api "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// A prepared claim has a file of metadata for each request, which the runtime mounts where KEP-5304 says: by the pod's
// name of a claim that was made of a template, else by the claim's. The annotation is a tenant's, too.
func TestMetadata(t *testing.T) {
	for name, dir := range map[string]string{
		"":              "resourceclaims/rails-c1",
		"mine":          "resourceclaimtemplates/mine",
		"../../../etc":  "resourceclaims/rails-c1",
		"Not-a-label":   "resourceclaims/rails-c1",
		"two\nlines":    "resourceclaims/rails-c1",
		"resource.dots": "resourceclaims/rails-c1",
	} {
		t.Run(name, func(t *testing.T) {
			n := two(t)
			c := given("c1", "p1", "a="+dev1, "b/x="+dev0)
			if name != "" {
				c.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: name}
			}
			if _, err := n.claim(t, c); err != nil {
				t.Fatal(err)
			}
			spec, err := os.ReadFile(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, request := range []string{"a", "b"} {
				path := api.ContainerDir + "/" + dir + "/" + request + "/fabric.dev-metadata.json"
				if !strings.Contains(string(spec), `"containerPath":"`+path+`"`) {
					t.Errorf("not mounted at %s:\n%s", path, spec)
				}
			}
			n.describes(t, "b", "b/x", dev0, "0000:3b:00.0")
			n.describes(t, "a", "a", dev1, "0000:5e:00.0")
			if err := os.Remove(n.file(t, "a")); err != nil {
				t.Fatal(err)
			}
			if _, err := n.claim(t, c); err != nil {
				t.Fatal(err)
			}
			n.describes(t, "a", "a", dev1, "0000:5e:00.0")
			out, err := n.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "c1"}})
			if err != nil || out["c1"] != nil {
				t.Fatal(out, err)
			}
			n.empty(t)
		})
	}
}

// A claim that an older agent has prepared has no metadata, and its containers start.
func TestNoMetadata(t *testing.T) {
	n := two(t)
	c := given("c1", "p1", dev1)
	if _, err := n.claim(t, c); err != nil {
		t.Fatal(err)
	}
	p, err := n.Prepared.Claim("c1")
	if err != nil {
		t.Fatal(err)
	}
	p.Devices[0].Attributes, p.Pool = nil, ""
	if err := n.forget("c1"); err != nil {
		t.Fatal(err)
	}
	if err := n.Prepared.Save(p); err != nil {
		t.Fatal(err)
	}
	if _, err := n.claim(t, c); err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(filepath.Join(n.dir, "cdi", "fabric.dev-claim_c1.json"))
	if err != nil || strings.Contains(string(spec), "mounts") {
		t.Errorf("%s, %v", spec, err)
	}
	if _, err := os.Stat(n.file(t, "rails")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func (n *node) file(t *testing.T, request string) string {
	t.Helper()
	p, err := n.Prepared.Claim("c1")
	if err != nil {
		t.Fatal(err)
	}
	return n.Prepared.MetadataFile(p, request)
}

// describes asserts what the file of a request says before its device is in the pod.
func (n *node) describes(t *testing.T, request, full, name, pci string) {
	t.Helper()
	f, err := os.Open(n.file(t, request))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got api.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(f), &got); err != nil {
		t.Fatal(err)
	}
	if got.Generation != 1 || len(got.Requests) != 1 || len(got.Requests[0].Devices) != 1 {
		t.Fatalf("%+v", got)
	}
	d := got.Requests[0].Devices[0]
	text := []string{got.Requests[0].Name, d.Driver, d.Pool, d.Name}
	for _, a := range []resourceapi.QualifiedName{"resource.kubernetes.io/pciBusID", "fabric"} {
		if s := d.Attributes[a].StringValue; s != nil {
			text = append(text, *s)
		}
	}
	if diff := cmp.Diff([]string{full, "fabric.dev", "n1", name, pci, "ib"}, text); diff != "" || d.NetworkData != nil {
		t.Error(diff, d.NetworkData)
	}
}
