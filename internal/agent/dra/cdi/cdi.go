// Package cdi writes the CDI specs (Container Device Interface) of prepared claims: one file for each claim, with a
// device for each of its requests, so that a container that refers to one request gets no other's device files. Every
// container that gets any of them has a hook that keeps it from starting without what the claim promises.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	lib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The kind of our devices is Vendor/Class.
const (
	Vendor = netconf.Domain
	Class  = "claim"
)

// version is the oldest of the format that has all that is used: every runtime with CDI reads it.
const version = "0.5.0"

// hookTimeout in seconds ends a hook that hangs, and with it the start of the container. kubelet gives up after two
// minutes (runtimeRequestTimeout).
const hookTimeout = 110

// Dir is where the runtime looks for specs.
type Dir struct {
	path     string
	plugin   string
	stateDir string
	cache    *lib.Cache
}

// In is a directory for specs. The plugin and the state directory are those of the hook: paths on the host.
func In(path, plugin, stateDir string) (*Dir, error) {
	cache, err := lib.NewCache(lib.WithSpecDirs(path), lib.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("use %s for CDI specs: %w", path, err)
	}
	return &Dir{path: path, plugin: plugin, stateDir: stateDir, cache: cache}, nil
}

// Request is what containers get that refer to a request of a claim.
type Request struct {
	Name  string
	Files []string // device files
	// Metadata is the file on the host that they may read at the path MetadataPath; empty: none.
	Metadata, MetadataPath string
}

// ID is the name by which kubelet asks the runtime for a request of a claim.
func ID(claimUID, request string) string {
	return parser.QualifiedName(Vendor, Class, device(claimUID, request))
}

func device(claimUID, request string) string { return claimUID + "-" + request }

// The name of a claim's file is prefix, UID and ext.
var prefix = lib.GenerateTransientSpecName(Vendor, Class, "")

const ext = ".json"

func (d *Dir) file(claimUID string) string { return filepath.Join(d.path, prefix+claimUID+ext) }

// Write writes the file of a claim, whole or not at all.
func (d *Dir) Write(claimUID string, requests []Request) error {
	if err := d.cache.WriteSpec(d.spec(claimUID, requests), prefix+claimUID+ext); err != nil {
		return fmt.Errorf("write the CDI spec of claim %s in %s: %w", claimUID, d.path, err)
	}
	return nil
}

func (d *Dir) spec(claimUID string, requests []Request) *specs.Spec {
	timeout := hookTimeout
	s := &specs.Spec{
		Version: version, Kind: Vendor + "/" + Class,
		ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{{
			HookName: lib.CreateRuntimeHook, Path: d.plugin, Timeout: &timeout,
			Args: []string{"fabric", "claim-attached", "--state-dir", d.stateDir, claimUID},
		}}},
	}
	for _, r := range requests {
		var e specs.ContainerEdits
		for _, f := range slices.Compact(slices.Sorted(slices.Values(r.Files))) {
			e.DeviceNodes = append(e.DeviceNodes, &specs.DeviceNode{Path: f, HostPath: f, Permissions: "rw"})
		}
		if r.Metadata != "" {
			e.Mounts = []*specs.Mount{{
				HostPath: r.Metadata, ContainerPath: r.MetadataPath,
				Options: []string{"ro", "bind", "nosuid", "nodev", "noexec"},
			}}
		}
		// The library rejects a device without edits, and then the hook is lost too.
		if len(e.DeviceNodes)+len(e.Mounts) == 0 {
			e.Env = []string{"FABRIC_CLAIM_" + variable(r.Name) + "=" + claimUID}
		}
		s.Devices = append(s.Devices, specs.Device{Name: device(claimUID, r.Name), ContainerEdits: e})
	}
	return s
}

// variable makes a part of a variable's name of a request, which is a DNS label.
func variable(request string) string { return strings.ToUpper(strings.ReplaceAll(request, "-", "_")) }

// Same reports whether the file of a claim says just this.
func (d *Dir) Same(claimUID string, requests []Request) bool {
	b, err := os.ReadFile(d.file(claimUID))
	if err != nil {
		return false
	}
	want, err := json.Marshal(d.spec(claimUID, requests))
	return err == nil && bytes.Equal(bytes.TrimSpace(b), want)
}

// Remove removes the file of a claim. What is not there is no error.
func (d *Dir) Remove(claimUID string) error {
	err := os.Remove(d.file(claimUID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the CDI spec of claim %s: %w", claimUID, err)
	}
	return nil
}

// Claims are the UIDs of the claims that have a file.
func (d *Dir) Claims() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var out []string
	for _, e := range entries {
		uid, ours := strings.CutPrefix(e.Name(), prefix)
		uid, whole := strings.CutSuffix(uid, ext)
		if ours && whole && uid != "" {
			out = append(out, uid)
		}
	}
	return out, nil
}

// Files counts the device files that a claim's file has, and tells whether there is one.
func (d *Dir) Files(claimUID string) (n int, there bool) {
	b, err := os.ReadFile(d.file(claimUID))
	if err != nil {
		return 0, false
	}
	s, err := lib.ParseSpec(b)
	if err != nil {
		return 0, false
	}
	for i := range s.Devices {
		n += len(s.Devices[i].ContainerEdits.DeviceNodes)
	}
	return n, true
}
