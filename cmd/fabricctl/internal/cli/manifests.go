package cli

import (
	"encoding/json"
	"io"
	"os"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// open opens a file, or standard input for "-".
func (c *console) open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.stdin), nil
	}
	return os.Open(name)
}

// manifests reads the objects in a file, or in standard input for "-". Lists are taken apart.
func (c *console) manifests(name string) ([]json.RawMessage, error) {
	f, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return manifest.Objects(f)
}
