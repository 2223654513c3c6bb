package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// entry is a file of an archive.
type entry struct {
	name   string
	source string // on this machine
	data   []byte // instead of source
	mode   int64
}

// writeTar writes an archive of which nothing depends on who makes it where and when: the owner is root, the time that
// of the commit.
func (r *release) writeTar(name string, entries []entry) error {
	var buffer bytes.Buffer
	z := gzip.NewWriter(&buffer)
	t := tar.NewWriter(z)
	for _, e := range entries {
		if e.source != "" {
			b, err := os.ReadFile(e.source)
			if err != nil {
				return err
			}
			e.data = b
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: r.created,
			Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}
		if err := t.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %s: %w", name, e.name, err)
		}
		if _, err := t.Write(e.data); err != nil {
			return fmt.Errorf("%s: %s: %w", name, e.name, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(r.path(name), buffer.Bytes(), 0o644)
}

// readTar returns the files of an archive by their names.
func readTar(file string) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t := tar.NewReader(z)
	all := map[string][]byte{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if all[h.Name], err = io.ReadAll(t); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, h.Name, err)
		}
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
