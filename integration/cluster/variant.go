package cluster

import (
	"os"
	"path/filepath"
	"strings"
)

// What a run may have that differs from the gate's. Nothing of it is set there.
const (
	envKubernetes = "FABRIC_KUBERNETES"  // another version: 1.37
	envNRI        = "FABRIC_CLUSTER_NRI" // containerd listens to NRI plugins, as it does by default
)

// kubernetesDir is where the binaries are.
func kubernetesDir(cache string) string {
	if v := os.Getenv(envKubernetes); v != "" {
		return filepath.Join(cache, "kube"+strings.ReplaceAll(v, ".", ""))
	}
	return filepath.Join(cache, "bin")
}

// runtimeConfig is containerd's.
func runtimeConfig() string {
	if os.Getenv(envNRI) == "" {
		return containerdConfig
	}
	return strings.Replace(containerdConfig, "disable = true", "disable = false", 1)
}
