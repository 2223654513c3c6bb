package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/sbom"
)

const repository = "https://github.com/fabric-cni/fabric-cni"

type release struct {
	root, out, version, image string
	architectures             []string

	created time.Time // of the commit
	commit  string
}

// bundle is an archive of programs for one system and architecture.
type bundle struct {
	name, system, arch string
	programs           []string
}

// bundles are the archives. The plugin and the agent are for nodes without the image, and read the kernel; fabricctl is
// for administrators, and also for what they have on their desks: there it reads recordings and asks clusters.
func (r *release) bundles() (all []bundle) {
	for _, arch := range r.architectures {
		all = append(all, bundle{"fabric-cni", "linux", arch, []string{"fabric", "fabric-agent"}})
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range r.architectures {
			all = append(all, bundle{ctl, system, arch, []string{ctl}})
		}
	}
	return all
}

// ctl is the program that is for all systems.
const ctl = "fabricctl"

func (r *release) bundle(b bundle) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", b.name, r.version, b.system, b.arch)
}

// file is what a program of the bundle is called.
func (b bundle) file(program string) string {
	if b.system == "windows" {
		return program + ".exe"
	}
	return program
}

// completion is the program by which kubectl completes "kubectl fabric", and its source.
const (
	completion       = "kubectl_complete-fabric"
	completionSource = "scripts/" + completion + ".sh"
)

// hasCompletion tells whether the bundle has it. On Windows there is no sh.
func (b bundle) hasCompletion() bool { return b.name == ctl && b.system != "windows" }

func (r *release) archive() string { return "fabric-agent_" + r.version + ".oci.tar" }
func (r *release) chart() string   { return "fabric-cni-" + r.version[1:] + ".tgz" }
func (r *release) list() string    { return "fabric-cni_" + r.version + ".spdx.json" }

const (
	manifest   = "install.yaml"
	krew       = "fabric.yaml" // the name of the plugin, as Krew wants it
	provenance = "provenance.intoto.json"
	sums       = "SHA256SUMS"
)

// files are all files of a release but the checksums.
func (r *release) files() []string {
	var all []string
	for _, b := range r.bundles() {
		all = append(all, r.bundle(b))
	}
	return append(all, r.archive(), r.chart(), manifest, krew, r.list(), provenance)
}

// make makes the files.
func (r *release) make(ctx context.Context) error {
	if there, err := filepath.Glob(filepath.Join(r.out, "*")); err != nil || len(there) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or give another directory", r.out)
	}
	if err := r.source(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "fabric-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	digest, err := r.programs(ctx, work)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return r.others(ctx, work) },
		func() error { return r.writeBundles(work) },
		func() error { return copyFile(filepath.Join(work, "image.oci.tar"), r.path(r.archive())) },
		func() error { return r.writeChart(digest) },
		func() error { return r.writeManifest(ctx, digest) },
		r.writeKrew,
		func() error { return r.writeList(work) },
		r.writeProvenance,
		r.writeSums,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// source asks git which commit this is and when it was made: a build has no other time.
func (r *release) source(ctx context.Context) error {
	out, err := r.output(ctx, "git", "-c", "safe.directory=*", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, at, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("time of commit %s: %w", commit, err)
	}
	r.commit, r.created = commit, time.Unix(seconds, 0).UTC()
	return nil
}

// requireClean refuses a tree that is not that of a commit: the provenance names the commit.
func (r *release) requireClean(ctx context.Context) error {
	out, err := r.output(ctx, "git", "-c", "safe.directory=*", "status", "--porcelain")
	if err != nil {
		return err
	}
	if len(out) > 0 {
		return fmt.Errorf("the working tree is not that of a commit, commit or remove first:\n%s", out)
	}
	return nil
}

// output runs a program at the root of the repository and returns what it prints.
func (r *release) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	// The state of the tree is not in the programs: it differs between a clone and an archive of the sources.
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-buildvcs=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// programs builds the programs and the image, which has the same ones, into the directory work, and returns the digest
// of the image.
func (r *release) programs(ctx context.Context, work string) (digest string, err error) {
	args := []string{"run", "./scripts/image/build", "-name", r.image + ":" + r.version, "-version", r.version,
		"-o", filepath.Join(work, "image.oci.tar")}
	out, err := r.output(ctx, "go", append(args, r.architectures...)...)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(out))
	if len(fields) == 0 || !strings.HasPrefix(fields[len(fields)-1], "sha256:") {
		return "", fmt.Errorf("scripts/image/build prints no digest: %q", out)
	}
	return fields[len(fields)-1], nil
}

// others builds fabricctl for the other systems.
func (r *release) others(ctx context.Context, work string) error {
	for _, b := range r.bundles() {
		if b.system == "linux" {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", image.Program{Name: ctl}.BuildArgs(r.version, b.dir(work))...)
		cmd.Dir = r.root
		cmd.Env = append(cmd.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0", "GOOS="+b.system, "GOARCH="+b.arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s for %s/%s: %w: %s", ctl, b.system, b.arch, err, out)
		}
	}
	return nil
}

// dir is where programs or others has put the programs.
func (b bundle) dir(work string) string {
	if b.system == "linux" {
		return filepath.Join(work, "image", b.arch)
	}
	return filepath.Join(work, b.system, b.arch)
}

func (r *release) writeBundles(work string) error {
	for _, b := range r.bundles() {
		entries := []entry{{name: "LICENSE", source: filepath.Join(r.root, "LICENSE"), mode: 0o644},
			{name: "NOTICE", source: filepath.Join(r.root, "NOTICE"), mode: 0o644}}
		for _, p := range b.programs {
			file := b.file(p)
			entries = append(entries, entry{name: file, source: filepath.Join(b.dir(work), file), mode: 0o755})
		}
		if b.hasCompletion() {
			source := filepath.Join(r.root, completionSource)
			entries = append(entries, entry{name: completion, source: source, mode: 0o755})
		}
		if err := r.writeTar(r.bundle(b), entries); err != nil {
			return err
		}
	}
	return nil
}

// writeManifest writes what `kubectl apply -f` installs: deployments/base with the image of this release.
func (r *release) writeManifest(ctx context.Context, digest string) error {
	out, err := r.output(ctx, "go", "tool", "-modfile=scripts/tools/go.mod", "kustomize", "build", "deployments/base")
	if err != nil {
		return err
	}
	const local = "localhost/fabric-agent:latest"
	if !bytes.Contains(out, []byte(local)) {
		return fmt.Errorf("deployments/base does not have the image %s", local)
	}
	out = bytes.ReplaceAll(out, []byte(local), []byte(r.image+":"+r.version+"@"+digest))
	return os.WriteFile(r.path(manifest), out, 0o644)
}

func (r *release) writeList(work string) error {
	d := sbom.Document{
		Name: "fabric-cni " + r.version, Namespace: repository + "/releases/download/" + r.version + "/" + r.list(),
		Version: r.version, Created: r.created,
	}
	for _, b := range r.bundles() {
		for _, p := range b.programs {
			d.Programs = append(d.Programs, filepath.Join(b.dir(work), b.file(p)))
		}
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		return err
	}
	return os.WriteFile(r.path(r.list()), b.Bytes(), 0o644)
}
