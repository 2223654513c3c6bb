package main

import (
	"os"
	"runtime"

	"sigs.k8s.io/yaml"
)

// A plugin's manifest, as Krew reads it: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec krewSpec `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string     `json:"uri"`
	SHA256 string     `json:"sha256"`
	Bin    string     `json:"bin"`
	Files  []krewFile `json:"files"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// writeKrew writes the manifest of `kubectl fabric`, which is fabricctl.
func (r *release) writeKrew() error {
	p := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	p.Metadata.Name = "fabric"
	p.Spec = krewSpec{
		Version:          r.version,
		Homepage:         repository,
		ShortDescription: "RDMA devices of nodes and pods, and what is wrong with them",
		Description: "Shows the HCAs, ports, fabrics and rails of nodes, checks hosts, pods and clusters, explains\n" +
			"messages of NCCL, verbs and Multus, writes Fabrics and workloads, and measures between pods.\n",
		Caveats: "On macOS and Windows it reads recordings and asks clusters; what needs a node runs there.\n" +
			"kubectl completes its arguments once kubectl_complete-fabric, which is in the archive, is in PATH.\n",
	}
	for _, b := range r.bundles() {
		if b.name != ctl {
			continue
		}
		sum, err := checksum(r.path(r.bundle(b)))
		if err != nil {
			return err
		}
		k := krewPlatform{
			URI:    repository + "/releases/download/" + r.version + "/" + r.bundle(b),
			SHA256: sum, Bin: b.file(ctl),
			Files: []krewFile{{From: b.file(ctl), To: "."}, {From: "LICENSE", To: "."}, {From: "NOTICE", To: "."}},
		}
		if b.hasCompletion() {
			k.Files = append(k.Files, krewFile{From: completion, To: "."})
		}
		k.Selector.MatchLabels = map[string]string{"os": b.system, "arch": b.arch}
		p.Spec.Platforms = append(p.Spec.Platforms, k)
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krew), text, 0o644)
}

// native reports whether this machine can run programs of a bundle.
func native(b bundle) bool { return runtime.GOOS == b.system && runtime.GOARCH == b.arch }
