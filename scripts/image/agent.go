// Package image lists what is in the agent's container image. The OCI archive of make image (scripts/image/build) is
// made from it; a test compares the Dockerfile with it.
package image

import (
	"path"
	"path/filepath"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// Program is a static binary of the image. Its package is cmd/NAME, its file /usr/bin/NAME.
type Program struct {
	Name string
	// OneShot is for a process that lives for milliseconds. The kernel clears a huge page as a whole, for the little of
	// it that is used: this is GODEBUG=disablethp=1 from the first page on.
	OneShot bool
}

// Programs are all programs of the image.
var Programs = []Program{{Name: "fabric", OneShot: true}, {Name: "fabric-agent"}, {Name: "fabricctl"}}

const bin = "/usr/bin"

// dirs are empty but for bin; links are symbolic, by their path. There is no shell.
var (
	dirs  = []string{"/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr", bin, "/var"}
	links = []oci.File{
		{Path: bin + "/kubectl-fabric", Link: "fabricctl"}, // kubectl runs it as its plugin
		{Path: "/var/run", Link: "/run"},                   // where runtimes report namespaces
	}
)

// config is how the image is started. The label with its version is not in it.
var config = oci.Config{
	Entrypoint: []string{path.Join(bin, "fabric-agent")},
	Env:        []string{"PATH=" + bin},
	Labels: map[string]string{
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.title":    "fabric-agent",
	},
}

// versionLabel is the label with the version.
const versionLabel = "org.opencontainers.image.version"

// Agent returns the image for an architecture, of the binaries in a directory of this machine.
func Agent(architecture, binaries, version string) oci.Image {
	i := oci.Image{Architecture: architecture, Config: config}
	i.Config.Labels = map[string]string{versionLabel: version}
	for key, value := range config.Labels {
		i.Config.Labels[key] = value
	}
	for _, dir := range dirs {
		i.Files = append(i.Files, oci.File{Path: dir})
	}
	i.Files = append(i.Files, links...)
	for _, p := range Programs {
		i.Files = append(i.Files, oci.File{Path: path.Join(bin, p.Name), Source: filepath.Join(binaries, p.Name)})
	}
	return i
}

// BuildArgs returns the arguments with which the go command builds the program into the directory out. CGO_ENABLED=0,
// GOOS and GOARCH are the caller's.
func (p Program) BuildArgs(version, out string) []string {
	flags := "-s -w -buildid= -X main.version=" + version
	if p.OneShot {
		flags += " -X runtime.godebugDefault=disablethp=1"
	}
	return []string{"build", "-trimpath", "-ldflags", flags, "-o", out + "/", "./cmd/" + p.Name}
}
