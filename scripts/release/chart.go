package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const chartName = "fabric-cni"

// site is where the documentation is read, a directory for each version: make site.
const site = "https://fabric-cni.github.io/fabric-cni/"

// writeChart packs the Helm chart, as `helm package` does, but with the same bytes each time. It gets the version, also
// in its links, and the image of this release with its digest.
func (r *release) writeChart(digest string) error {
	dir := filepath.Join(r.root, "deployments/helm", chartName)
	edits := map[string]map[string]string{
		"Chart.yaml": {
			`(?m)^version: .*$`:                      "version: " + r.version[1:],
			`(?m)^appVersion: .*$`:                   "appVersion: " + r.version,
			`(?m)^  artifacthub\.io/prerelease: .*$`: "  artifacthub.io/prerelease: " + strconv.Quote(r.prerelease()),
			`/blob/main/`:                            "/blob/" + r.version + "/",
		},
		"files/alerts.yaml": {
			site + "main/": site + r.version + "/",
		},
		"values.yaml": {
			`(?m)^  repository: localhost/fabric-agent$`: "  repository: " + r.image,
			`(?m)^  tag: latest`:                         `  tag: ""`,
			`(?m)^  digest: ""`:                          "  digest: " + digest,
		},
	}
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text := string(b)
		for pattern, line := range edits[name] {
			re := regexp.MustCompile(pattern)
			if !re.MatchString(text) {
				return fmt.Errorf("%s has no line %s", file, pattern)
			}
			text = re.ReplaceAllLiteralString(text, line)
		}
		entries = append(entries, entry{name: path.Join(chartName, name), data: []byte(text), mode: 0o644})
		return nil
	})
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return r.writeTar(r.chart(), entries)
}

// prerelease says whether the version is before one: v1.0.0-rc.1.
func (r *release) prerelease() string { return strconv.FormatBool(strings.Contains(r.version, "-")) }
