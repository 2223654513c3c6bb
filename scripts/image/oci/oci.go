// Package oci writes container images as OCI archives without a builder, a registry or a daemon: files in, one tar out,
// by go-containerregistry. The same input gives the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
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

// epoch is the time of everything in an image: the time of a build is no part of its input.
var epoch = v1.Time{Time: time.Unix(0, 0).UTC()}

// Write writes the images, one per platform, as an archive with one name ("example.com/fabric-agent:v1"), and returns
// the digest of its index.
func Write(w io.Writer, name string, images ...Image) (digest string, err error) {
	var manifests []mutate.IndexAddendum
	for _, i := range images {
		image, err := i.build()
		if err != nil {
			return "", fmt.Errorf("image for %s: %w", i.Architecture, err)
		}
		manifests = append(
			manifests,
			mutate.IndexAddendum{
				Add:        image,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{Architecture: i.Architecture, OS: "linux"}},
			},
		)
	}
	index := mutate.IndexMediaType(mutate.AppendManifests(empty.Index, manifests...), types.OCIImageIndex)
	sum, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("index: %w", err)
	}
	_, tag, _ := strings.Cut(path.Base(name), ":")
	root := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}}})
	dir, err := os.MkdirTemp("", "oci-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := layout.Write(dir, root); err != nil {
		return "", fmt.Errorf("write layout: %w", err)
	}
	return sum.String(), archive(w, os.DirFS(dir))
}

// build makes one platform's image: one layer on nothing.
func (i *Image) build() (v1.Image, error) {
	content, err := i.content()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed),
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base,
		mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: epoch}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = i.Architecture, "linux", epoch
	config.Config = v1.Config{
		Entrypoint: i.Config.Entrypoint,
		Env:        i.Config.Env,
		User:       i.Config.User,
		Labels:     i.Config.Labels,
	}
	return mutate.ConfigFile(image, config)
}

// content is the layer's tar.
func (i *Image) content() ([]byte, error) {
	files := slices.Clone(i.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, f := range files {
		if err := f.write(t); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return out.Bytes(), t.Close()
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

// archive packs a layout, whose files are walked in the order of their names.
func archive(w io.Writer, dir fs.FS) error {
	t := tar.NewWriter(w)
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(
			&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), Typeflag: tar.TypeReg, Format: tar.FormatPAX},
		); err != nil {
			return err
		}
		_, err = t.Write(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return t.Close()
}
