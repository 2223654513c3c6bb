package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Input is the Fabrics of files, and what was wrong with the files.
type Input struct {
	Findings []Finding
	items    []item
	files    []string
}

// Selects reports whether a Fabric may have a nodeSelector, for which the labels of Nodes are needed.
func (in *Input) Selects() bool {
	return slices.ContainsFunc(in.items, func(i item) bool { return bytes.Contains(i.raw, []byte(`"nodeSelector"`)) })
}

// item is a Fabric of a file.
type item struct {
	file     string
	document int
	version  string
	name     string
	raw      json.RawMessage
}

// head is what tells the objects apart. Helm's values have fabrics and no kind.
type head struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   struct{ Name string } `json:"metadata"`
}

// Read adds the Fabrics of a file: objects, those of lists, and those of the values of the Helm chart. Other objects
// are left out: a file may have whatever else belongs to a deployment.
func (in *Input) Read(file string, r io.Reader) error {
	in.files = append(in.files, file)
	return manifest.Each(r, func(d *manifest.Document) error {
		before := len(in.items)
		if err := in.document(file, d); err != nil {
			return err
		}
		if len(in.items) > maxFabrics {
			return fmt.Errorf("there are more than %d Fabrics", maxFabrics)
		}
		if len(in.items) > before {
			in.twice(file, d)
		}
		return nil
	})
}

func (in *Input) document(file string, d *manifest.Document) error {
	objects, err := d.Objects()
	if err != nil {
		return err
	}
	for _, raw := range objects {
		i := item{file: file, document: d.Number, raw: raw}
		var h head
		if err := json.Unmarshal(raw, &h); err != nil {
			if bytes.Contains(raw, []byte(`"Fabric"`)) {
				in.Findings = append(in.Findings, Finding{
					Status: doctor.Fail, File: file, Document: d.Number, By: byServer, Message: err.Error(),
				})
			}
			continue
		}
		i.version, i.name = h.APIVersion, h.Metadata.Name
		group, _, _ := strings.Cut(h.APIVersion, "/")
		switch {
		case h.Kind == "" && h.APIVersion == "":
			if err := in.values(&i); err != nil {
				return err
			}
		case h.Kind == "Fabric" && (group == v1alpha1.GroupVersion.Group || !strings.Contains(h.APIVersion, "/")):
			in.items = append(in.items, i)
		}
	}
	return nil
}

// values adds the Fabrics in the values of the Helm chart, as its template makes them.
func (in *Input) values(i *item) error {
	var v struct {
		Fabrics []struct {
			Name string          `json:"name"`
			Spec json.RawMessage `json:"spec"`
		} `json:"fabrics"`
	}
	if err := json.Unmarshal(i.raw, &v); err != nil {
		return fmt.Errorf("fabrics: %w", err)
	}
	for _, f := range v.Fabrics {
		spec := f.Spec
		if spec == nil {
			spec = json.RawMessage("null")
		}
		raw, err := json.Marshal(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Fabric",
			"metadata": map[string]any{"name": f.Name}, "spec": spec,
		})
		if err != nil {
			return err
		}
		in.items = append(in.items, item{
			file: i.file, document: i.document, version: v1alpha1.GroupVersion.String(), name: f.Name, raw: raw,
		})
	}
	return nil
}

// twice finds keys that are there twice, of which kubectl takes the last without a word. With << that is how a key is
// replaced.
func (in *Input) twice(file string, d *manifest.Document) {
	if d.YAML == nil || bytes.Contains(d.YAML, []byte("<<")) {
		return
	}
	if _, err := yaml.YAMLToJSONStrict(d.YAML); err != nil {
		in.Findings = append(in.Findings, Finding{
			Status: doctor.Fail, File: file, Document: d.Number, By: byReader,
			Message: strings.Join(strings.Fields(err.Error()), " "),
		})
	}
}
