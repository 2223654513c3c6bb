package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sbom lists the modules in the binaries (SPDX 2.3), as the binaries themselves list them.
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
			"creators": []string{"Tool: fabric-cni/internal/image/build"},
		},
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o600)
}
