package oci_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// of returns an image with every kind of file.
func of(arch, dir string) oci.Image {
	return oci.Image{
		Architecture: arch,
		Config:       oci.Config{Entrypoint: []string{"/bin/b"}, Labels: map[string]string{"version": "v1"}},
		Files: []oci.File{
			{Path: "/run"}, {Path: "/bin"}, {Path: "/bin/a", Source: filepath.Join(dir, "a")},
			{Path: "/bin/b", Source: filepath.Join(dir, "b")}, {Path: "/bin/c", Link: "b"},
			{Path: "/d", Data: []byte("d")},
		},
	}
}

func image(t *testing.T, arch, content string) oci.Image {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return of(arch, dir)
}

func write(t *testing.T, images ...oci.Image) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	digest, err := oci.Write(&b, "example.com/agent:v1", images...)
	if err != nil {
		t.Fatal(err)
	}
	return digest, b.Bytes()
}

func TestSameInputSameBytes(t *testing.T) {
	digest, first := write(t, image(t, "amd64", "a"), image(t, "arm64", "b"))
	time.Sleep(1100 * time.Millisecond) // times of files have seconds
	again, second := write(t, image(t, "amd64", "a"), image(t, "arm64", "b"))
	if digest != again || !bytes.Equal(first, second) {
		t.Errorf("%s, then %s", digest, again)
	}
	if other, _ := write(t, image(t, "amd64", "a"), image(t, "arm64", "c")); other == digest {
		t.Error("another binary, the same digest")
	}
}

// Every blob has the name of its digest, and everything that is pointed to is there.
func TestArchiveIsWhole(t *testing.T) {
	digest, b := write(t, image(t, "amd64", "a"), image(t, "arm64", "b"))
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	type descriptor struct {
		Digest    string
		Size      int
		Platform  struct{ Architecture string }
		Manifests []descriptor
		Config    *descriptor
		Layers    []descriptor
	}
	var platforms []string
	var follow func(d descriptor)
	blob := func(d descriptor) []byte {
		content := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		sum := sha256.Sum256(content)
		if "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || len(content) != d.Size {
			t.Errorf("blob %s has %d bytes, want %d", d.Digest, len(content), d.Size)
		}
		return content
	}
	follow = func(d descriptor) {
		if a := d.Platform.Architecture; a != "" {
			platforms = append(platforms, a)
		}
		var in descriptor
		if err := json.Unmarshal(blob(d), &in); err != nil {
			t.Fatal(err)
		}
		for _, m := range in.Manifests {
			follow(m)
		}
		for _, l := range in.Layers {
			blob(l)
		}
		if in.Config != nil {
			blob(*in.Config)
		}
	}
	var index descriptor
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 ||
		index.Manifests[0].Digest != digest {
		t.Fatalf("%+v, %v", index, err)
	}
	follow(index.Manifests[0])
	if strings.Join(platforms, " ") != "amd64 arm64" || files["oci-layout"] == nil {
		t.Errorf("platforms %v, files %d", platforms, len(files))
	}
}

func TestMissingBinary(t *testing.T) {
	_, err := oci.Write(io.Discard, "x:y", of("amd64", "/nowhere"))
	if err == nil || !strings.Contains(err.Error(), "/nowhere/a") {
		t.Errorf("%v", err)
	}
}
