package oci

import "path/filepath"

// Agent is the agent's image: three static binaries and nothing else, no shell. fabricctl has its name as kubectl
// plugin too. /var/run is where runtimes tell namespaces to be.
func Agent(architecture, binaries, version string) Image {
	i := Image{
		Architecture: architecture,
		Config: Config{
			Entrypoint: []string{"/usr/bin/fabric-agent"},
			Env:        []string{"PATH=/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "fabric-agent",
				"org.opencontainers.image.version":  version,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	}
	for _, dir := range []string{"/etc", "/dev", "/proc", "/sys", "/run", "/tmp", "/usr", "/usr/bin", "/var"} {
		i.Files = append(i.Files, File{Path: dir})
	}
	i.Files = append(i.Files, File{Path: "/var/run", Link: "/run"})
	for _, name := range []string{"fabric", "fabric-agent", "fabricctl"} {
		i.Files = append(i.Files, File{Path: "/usr/bin/" + name, Source: filepath.Join(binaries, name)})
	}
	i.Files = append(i.Files, File{Path: "/usr/bin/kubectl-fabric", Link: "fabricctl"})
	return i
}
