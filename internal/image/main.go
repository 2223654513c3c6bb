// Command image writes the agent's container image as an OCI archive, without Docker: make image. The same binaries
// give the same digest.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/image/oci"
)

func main() {
	name := flag.String("name", "fabric-agent:latest", "name of the image")
	out := flag.String("o", "fabric-agent.oci.tar", "archive to write; beside it an SBOM, .spdx.json")
	version := flag.String("version", "", "version label")
	flag.Parse()
	if err := run(*name, *out, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run takes ARCHITECTURE=DIRECTORY arguments, each directory with the binaries.
func run(name, out, version string, platforms []string) error {
	var images []oci.Image
	var binaries []string
	for _, p := range platforms {
		arch, dir, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q: want ARCHITECTURE=DIRECTORY", p)
		}
		i := oci.Agent(arch, dir, version)
		images = append(images, i)
		for _, f := range i.Files {
			if f.Source != "" {
				binaries = append(binaries, f.Source)
			}
		}
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	digest, err := oci.Write(f, name, images...)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := sbom(strings.TrimSuffix(out, ".tar")+".spdx.json", name, digest, binaries); err != nil {
		return err
	}
	fmt.Printf("%s: %s %s\n", out, name, digest)
	return nil
}

// sbom lists the modules in the binaries (SPDX 2.3), as the binaries themselves tell them.
func sbom(file, name, digest string, binaries []string) error {
	type pkg struct {
		ID       string `json:"SPDXID"`
		Name     string `json:"name"`
		Version  string `json:"versionInfo"`
		Download string `json:"downloadLocation"`
	}
	seen := map[string]pkg{}
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b)
		if err != nil {
			return fmt.Errorf("modules of %s: %w", filepath.Base(b), err)
		}
		for _, m := range append(info.Deps, &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			id := "SPDXRef-" + strings.Map(func(r rune) rune {
				if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.", r) {
					return r
				}
				return '-'
			}, m.Path+"-"+m.Version)
			seen[id] = pkg{ID: id, Name: m.Path, Version: m.Version, Download: "NOASSERTION"}
		}
		seen["SPDXRef-go"] = pkg{ID: "SPDXRef-go", Name: "go", Version: info.GoVersion, Download: "NOASSERTION"}
	}
	var list []pkg
	for _, p := range seen {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b pkg) int { return strings.Compare(a.ID, b.ID) })
	doc, err := json.MarshalIndent(map[string]any{
		"spdxVersion":       "SPDX-2.3",
		"dataLicense":       "CC0-1.0",
		"SPDXID":            "SPDXRef-DOCUMENT",
		"name":              name,
		"documentNamespace": "https://fabric-cni.invalid/" + digest,
		"packages":          list,
		"creationInfo": map[string]any{
			"created":  "1970-01-01T00:00:00Z",
			"creators": []string{"Tool: fabric-cni/scripts/image"},
		},
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o600)
}
