package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/scripts/sbom"
)

// checker reads a release as those who download it do.
type checker struct {
	*release
	problems []error
	programs []*buildinfo.BuildInfo
	image    string // image:version@digest
}

func (c *checker) bad(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// verify returns what is wrong with the files. An error means that it could not look.
func (r *release) verify(ctx context.Context) ([]error, error) {
	c := &checker{release: r}
	c.checkSums()
	if len(c.problems) > 0 {
		return c.problems, nil // nothing else would be about the files of this release
	}
	work, err := os.MkdirTemp("", "fabric-verify-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, step := range []func() error{
		func() error { return c.checkBundles(ctx, work) },
		func() error { return c.checkImage(ctx, work) },
		c.checkChart, c.checkManifest, c.checkKrew, c.checkList, c.checkProvenance,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c.problems, nil
}

// checkSums compares the files with the checksums, and both with what a release has.
func (c *checker) checkSums() {
	b, err := os.ReadFile(c.path(sums))
	if err != nil {
		c.bad("%w", err)
		return
	}
	listed := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		listed[name] = sum
	}
	want := c.files()
	entries, err := os.ReadDir(c.out)
	if err != nil {
		c.bad("%w", err)
	}
	for _, e := range entries {
		if e.Name() != sums && !slices.Contains(want, e.Name()) {
			c.bad("%s is no file of a release", e.Name())
		}
	}
	for _, name := range want {
		switch sum, err := checksum(c.path(name)); {
		case errors.Is(err, fs.ErrNotExist):
			c.bad("%s is missing", name)
		case err != nil:
			c.bad("%w", err)
		case listed[name] != sum:
			c.bad("%s: SHA-256 %s, %s has %q", name, sum, sums, listed[name])
		}
	}
}

// checkBundles looks at each program: platform, version, and whether it starts.
func (c *checker) checkBundles(ctx context.Context, work string) error {
	for _, b := range c.bundles() {
		name := c.bundle(b)
		files, err := readTar(c.path(name))
		if err != nil {
			return err
		}
		want := []string{"LICENSE", "NOTICE"}
		for _, p := range b.programs {
			want = append(want, b.file(p))
		}
		if b.hasCompletion() {
			want = append(want, completion)
		}
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			c.bad("%s has %q, want %q", name, got, want)
		}
		for _, p := range b.programs {
			if err := c.checkProgram(ctx, work, b, p, files[b.file(p)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) checkProgram(ctx context.Context, work string, b bundle, name string, content []byte) error {
	archive := c.bundle(b)
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		c.bad("%s: %s is no program of Go: %w", archive, name, err)
		return nil
	}
	c.programs = append(c.programs, info)
	if platform := sbom.Platform(info); platform != b.system+"/"+b.arch || !strings.HasSuffix(info.Path, "/cmd/"+name) {
		c.bad("%s: %s is %s for %s", archive, name, info.Path, platform)
	}
	if name != "fabric" && !bytes.Contains(content, []byte(c.version)) {
		c.bad("%s: %s does not have the version %s in it", archive, name, c.version)
	}
	if !native(b) || name == "fabric" { // whose version is that of the CNI specification
		return nil
	}
	file := filepath.Join(work, name)
	if err := os.WriteFile(file, content, 0o755); err != nil {
		return err
	}
	ask := "version"
	if name == "fabricctl" {
		ask = "--version"
	}
	out, err := exec.CommandContext(ctx, file, ask).CombinedOutput()
	if err != nil || !strings.Contains(string(out), c.version) {
		c.bad("%s: %s %s: %q, %v", archive, name, ask, out, err)
	}
	return nil
}

// checkImage looks for the architectures and the version in the archive of the image.
func (c *checker) checkImage(ctx context.Context, work string) error {
	dir := filepath.Join(work, "oci")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "tar", "-xf", c.path(c.archive()), "-C", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.archive(), err, out)
	}
	p, err := layout.FromPath(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.archive(), err)
	}
	top, err := p.ImageIndex()
	if err != nil {
		return fmt.Errorf("%s: %w", c.archive(), err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		return fmt.Errorf("%s: want one image: %+v, %w", c.archive(), list, err)
	}
	c.image = c.release.image + ":" + c.version + "@" + list.Manifests[0].Digest.String()
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		return fmt.Errorf("%s: %w", c.archive(), err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("%s: %w", c.archive(), err)
	}
	var got []string
	for _, d := range m.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", c.archive(), err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return fmt.Errorf("%s: %w", c.archive(), err)
		}
		got = append(got, config.Architecture)
		if v := config.Config.Labels["org.opencontainers.image.version"]; v != c.version {
			c.bad("%s: the image for %s has the version %q", c.archive(), config.Architecture, v)
		}
	}
	if !slices.Equal(got, c.architectures) {
		c.bad("%s is for %q, want %q", c.archive(), got, c.architectures)
	}
	return nil
}

// checkChart looks for the version in the chart, and for the image of this release in its values.
func (c *checker) checkChart() error {
	files, err := readTar(c.path(c.chart()))
	if err != nil {
		return err
	}
	var chart struct{ Name, Version, AppVersion string }
	var values struct {
		Image struct{ Repository, Tag, Digest string }
	}
	err = errors.Join(yaml.Unmarshal(files[chartName+"/Chart.yaml"], &chart),
		yaml.Unmarshal(files[chartName+"/values.yaml"], &values))
	if err != nil {
		return fmt.Errorf("%s: %w", c.chart(), err)
	}
	if chart.Name != chartName || chart.Version != c.version[1:] || chart.AppVersion != c.version {
		c.bad("%s: %+v, want the version %s", c.chart(), chart, c.version)
	}
	image := values.Image
	if got := image.Repository + ":" + c.version + "@" + image.Digest; got != c.image || image.Tag != "" {
		c.bad("%s installs %s, the image is %s", c.chart(), got, c.image)
	}
	for _, dir := range []string{"templates", "crds"} {
		sources, err := filepath.Glob(filepath.Join(c.root, "deployments/helm", chartName, dir, "*"))
		if err != nil || len(sources) == 0 {
			return fmt.Errorf("templates of the chart: %q, %w", sources, err)
		}
		for _, s := range sources {
			if len(files[chartName+"/"+dir+"/"+filepath.Base(s)]) == 0 {
				c.bad("%s lacks %s/%s", c.chart(), dir, filepath.Base(s))
			}
		}
	}
	return nil
}

var anImage = regexp.MustCompile(`(?m)^ *(?:- )?image: "?([^\s"]+)"?$`)

// checkManifest looks which images the manifest starts.
func (c *checker) checkManifest() error {
	b, err := os.ReadFile(c.path(manifest))
	if err != nil {
		return err
	}
	images := anImage.FindAllStringSubmatch(string(b), -1)
	if len(images) == 0 || !bytes.Contains(b, []byte("kind: CustomResourceDefinition")) {
		c.bad("%s: %d images, or no CustomResourceDefinition", manifest, len(images))
	}
	for _, i := range images {
		if i[1] != c.image {
			c.bad("%s starts %s, the image is %s", manifest, i[1], c.image)
		}
	}
	return nil
}

func (c *checker) checkKrew() error {
	b, err := os.ReadFile(c.path(krew))
	if err != nil {
		return err
	}
	var p krewPlugin
	if err := yaml.UnmarshalStrict(b, &p); err != nil {
		return fmt.Errorf("%s: %w", krew, err)
	}
	if p.Metadata.Name != "fabric" || p.Spec.Version != c.version {
		c.bad("%s: plugin %s, version %s", krew, p.Metadata.Name, p.Spec.Version)
	}
	left := map[string]krewPlatform{}
	for _, k := range p.Spec.Platforms {
		left[k.Selector.MatchLabels["os"]+"/"+k.Selector.MatchLabels["arch"]] = k
	}
	for _, b := range c.bundles() {
		if b.name != ctl {
			continue
		}
		k := left[b.system+"/"+b.arch]
		delete(left, b.system+"/"+b.arch)
		if err := c.checkKrewPlatform(b, k); err != nil {
			return err
		}
	}
	for platform := range left {
		c.bad("%s: no archive is for %s", krew, platform)
	}
	return nil
}

// checkKrewPlatform does what Krew does with a platform: it compares the checksum and takes the files out.
func (c *checker) checkKrewPlatform(b bundle, k krewPlatform) error {
	name := c.bundle(b)
	sum, err := checksum(c.path(name))
	if err != nil {
		return err
	}
	if k.SHA256 != sum || k.URI != repository+"/releases/download/"+c.version+"/"+name {
		c.bad("%s: %s has SHA-256 %s, the file %s %s", krew, k.URI, k.SHA256, name, sum)
	}
	files, err := readTar(c.path(name))
	if err != nil {
		return err
	}
	installed := map[string]bool{}
	for _, f := range k.Files {
		if _, ok := files[f.From]; !ok || f.To != "." {
			c.bad("%s: %s has no file %s, or it is not installed at the top (%s)", krew, name, f.From, f.To)
		}
		installed[f.From] = true
	}
	if !installed[k.Bin] || !installed["LICENSE"] || k.Bin != b.file(ctl) {
		c.bad("%s: of %s it installs %v, and starts %q", krew, name, k.Files, k.Bin)
	}
	return nil
}

// checkList looks for every module of every program in the SBOM.
func (c *checker) checkList() error {
	f, err := os.Open(c.path(c.list()))
	if err != nil {
		return err
	}
	defer f.Close()
	doc, err := spdxjson.Read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", c.list(), err)
	}
	have := map[string]bool{}
	for _, p := range doc.Packages {
		for _, ref := range p.PackageExternalReferences {
			have[ref.Locator] = true
		}
	}
	for _, info := range c.programs {
		for _, m := range sbom.Modules(info) {
			if purl := sbom.PURL(m); !have[purl] {
				c.bad("%s lacks %s, which is in %s", c.list(), purl, info.Path)
			}
		}
	}
	return nil
}

func (c *checker) checkProvenance() error {
	b, err := os.ReadFile(c.path(provenance))
	if err != nil {
		return err
	}
	var s statement
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: %w", provenance, err)
	}
	digests := map[string]string{}
	for _, subject := range s.Subject {
		digests[subject.Name] = subject.Digest["sha256"]
	}
	for _, name := range c.files() {
		if name == provenance {
			continue
		}
		if sum, err := checksum(c.path(name)); err != nil || digests[name] != sum {
			c.bad("%s: %s has %q, the file %s (%v)", provenance, name, digests[name], sum, err)
		}
	}
	return nil
}
