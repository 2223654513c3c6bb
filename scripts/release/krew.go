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
	}
	b := bundles[1]
	for _, arch := range r.architectures {
		sum, err := checksum(r.path(r.bundle(b, arch)))
		if err != nil {
			return err
		}
		k := krewPlatform{
			URI:    repository + "/releases/download/" + r.version + "/" + r.bundle(b, arch),
			SHA256: sum, Bin: "fabricctl",
			Files: []krewFile{{From: "fabricctl", To: "."}, {From: "LICENSE", To: "."}},
		}
		k.Selector.MatchLabels = map[string]string{"os": "linux", "arch": arch}
		p.Spec.Platforms = append(p.Spec.Platforms, k)
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krew), text, 0o644)
}

// native reports whether this machine can run programs for an architecture.
func native(arch string) bool { return runtime.GOOS == "linux" && runtime.GOARCH == arch }
