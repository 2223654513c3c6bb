package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What a run may have that differs from the gate's. Nothing of it is set there.
const (
	envKubernetes = "FABRIC_KUBERNETES" // another version: 1.37
	// containerd listens to NRI plugins, as it does by default. A value other than "1" is how long it waits for them,
	// or the name of one without which no container may be created.
	envNRI = "FABRIC_CLUSTER_NRI"
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
	nri := "disable = false"
	value := os.Getenv(envNRI)
	_, err := time.ParseDuration(value)
	switch {
	case value == "":
		return containerdConfig
	case value == "1":
	case err == nil:
		nri += fmt.Sprintf("\n  plugin_request_timeout = %q", value)
	default:
		nri += fmt.Sprintf("\n  default_validator = {enable = true, required_plugins = [%q]}", value)
	}
	return strings.Replace(containerdConfig, "disable = true", nri, 1)
}
