// Package oci writes container images as OCI archives without a builder, a registry or a daemon: files in, one tar out. The same
// input gives the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// File is one entry of the image's file system. With neither Source nor Link it is a directory.
type File struct {
	Path   string // absolute, in the image
	Source string // file on this machine
	Data   []byte // content, instead of Source
	Link   string // target of a symbolic link
	Mode   int64
}

// Image is one platform's image: one layer.
type Image struct {
	Architecture string
	Files        []File
	Config       Config
}

// Config is what a runtime starts (image-spec, config.md).
type Config struct {
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	User       string            `json:"User,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

// descriptor points to a blob (image-spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// epoch is the time of everything in an image: the time of a build is no part of its input.
const epoch = "1970-01-01T00:00:00Z"

// Write writes the images, one per platform, as an archive with one name ("example.com/fabric-agent:v1"), and returns the
// digest of its index.
func Write(w io.Writer, name string, images ...Image) (digest string, err error) {
	blobs := map[string][]byte{}
	add := func(mediaType string, b []byte) descriptor {
		sum := sha256.Sum256(b)
		d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(b)}
		blobs["blobs/sha256/"+hex.EncodeToString(sum[:])] = b
		return d
	}
	var manifests []descriptor
	for _, i := range images {
		d, err := i.manifest(add)
		if err != nil {
			return "", fmt.Errorf("image for %s: %w", i.Architecture, err)
		}
		d.Platform = &platform{i.Architecture, "linux"}
		manifests = append(manifests, d)
	}
	index := func(manifests ...descriptor) ([]byte, error) {
		return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests})
	}
	b, err := index(manifests...)
	if err != nil {
		return "", err
	}
	root := add(typeIndex, b)
	_, tag, _ := strings.Cut(path.Base(name), ":")
	root.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
	if blobs["index.json"], err = index(root); err != nil {
		return "", err
	}
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return root.Digest, archive(w, blobs)
}

func (i *Image) manifest(add func(string, []byte) descriptor) (descriptor, error) {
	layer, diff, err := i.layer()
	if err != nil {
		return descriptor{}, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": i.Architecture, "os": "linux", "created": epoch, "config": i.Config,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{diff}},
		"history": []map[string]any{{"created": epoch}},
	})
	if err != nil {
		return descriptor{}, err
	}
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeManifest,
		"config": add(typeConfig, config), "layers": []descriptor{add(typeLayer, layer)}})
	if err != nil {
		return descriptor{}, err
	}
	return add(typeManifest, b), nil
}

// layer returns the compressed layer and the digest of what is in it.
func (i *Image) layer() ([]byte, string, error) {
	files := slices.Clone(i.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	sum := sha256.New()
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	t := tar.NewWriter(io.MultiWriter(z, sum))
	for _, f := range files {
		if err := f.write(t); err != nil {
			return nil, "", fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, "", err
	}
	return out.Bytes(), "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (f *File) write(t *tar.Writer) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Format: tar.FormatPAX}
	if h.Mode == 0 {
		h.Mode = 0o755
	}
	data := f.Data
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
	case f.Source != "":
		var err error
		if data, err = os.ReadFile(f.Source); err != nil {
			return err
		}
		h.Typeflag = tar.TypeReg
	case data != nil:
		h.Typeflag = tar.TypeReg
	default:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	}
	h.Size = int64(len(data))
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

func archive(w io.Writer, blobs map[string][]byte) error {
	names := make([]string, 0, len(blobs))
	for n := range blobs {
		names = append(names, n)
	}
	slices.Sort(names)
	t := tar.NewWriter(w)
	for _, n := range names {
		if err := t.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(blobs[n])), Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := t.Write(blobs[n]); err != nil {
			return err
		}
	}
	return t.Close()
}
