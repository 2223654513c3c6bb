package cdi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	lib "tags.cncf.io/container-device-interface/pkg/cdi"
)

// The runtime's own library finds in the file what a container is to get: one request's files, and the hook once.
func TestRuntimeReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	d, err := In(path, "/opt/cni/bin/fabric", "/run/fabric-cni")
	if err != nil {
		t.Fatal(err)
	}
	if claims, err := d.Claims(); err != nil || len(claims) != 0 {
		t.Errorf("without a directory: %v, %v", claims, err)
	}
	requests := []Request{
		{
			Name: "rails", Files: []string{"/dev/zero", "/dev/null", "/dev/zero"},
			Metadata: "/state/m", MetadataPath: "/in/m",
		},
		{Name: "other", Files: []string{"/dev/full"}, Metadata: "/state/o", MetadataPath: "/in/o"}, {Name: "none"},
	}
	if err := d.Write("c1", requests); err != nil {
		t.Fatal(err)
	}
	runtime, err := lib.NewCache(lib.WithSpecDirs(path), lib.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	spec := &oci.Spec{}
	if missing, err := runtime.InjectDevices(spec, ID("c1", "rails"), ID("c1", "none")); err != nil {
		t.Fatal(missing, err)
	}
	var files []string
	for _, f := range spec.Linux.Devices {
		files = append(files, f.Path)
	}
	if diff := cmp.Diff([]string{"/dev/null", "/dev/zero"}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"FABRIC_CLAIM_NONE=c1"}, spec.Process.Env); diff != "" {
		t.Error(diff)
	}
	mounts := []oci.Mount{{
		Source: "/state/m", Destination: "/in/m", Options: []string{"ro", "bind", "nosuid", "nodev", "noexec"},
	}}
	if diff := cmp.Diff(mounts, spec.Mounts); diff != "" {
		t.Error(diff)
	}
	hooks := spec.Hooks.CreateRuntime
	if len(hooks) != 1 {
		t.Fatalf("hooks: %v", hooks)
	}
	want := []string{"fabric", "claim-attached", "--state-dir", "/run/fabric-cni", "c1"}
	if diff := cmp.Diff(want, hooks[0].Args); diff != "" || hooks[0].Path != "/opt/cni/bin/fabric" {
		t.Errorf("%s %s", hooks[0].Path, diff)
	}
}

func TestFiles(t *testing.T) {
	path := t.TempDir()
	d, err := In(path, "/opt/cni/bin/fabric", "/run/fabric-cni")
	if err != nil {
		t.Fatal(err)
	}
	requests := []Request{{Name: "rails", Files: []string{"/dev/null"}}}
	if d.Same("c1", requests) {
		t.Error("a file that is not there is the same")
	}
	for _, uid := range []string{"c1", "c2", "c1"} {
		if err := d.Write(uid, requests); err != nil {
			t.Fatal(err)
		}
	}
	if !d.Same("c1", requests) || d.Same("c1", []Request{{Name: "rails", Files: []string{"/dev/zero"}}}) {
		t.Error("Same is wrong")
	}
	for _, foreign := range []string{"nvidia.json", "fabric.dev-claim_x.tmp", "fabric.dev-other_c.json"} {
		if err := os.WriteFile(filepath.Join(path, foreign), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Remove("c2"); err != nil {
		t.Error(err)
	}
	if err := d.Remove("c2"); err != nil {
		t.Errorf("again: %v", err)
	}
	claims, err := d.Claims()
	if diff := cmp.Diff([]string{"c1"}, claims); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
