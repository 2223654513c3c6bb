package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// Multus as a daemon, by its own manifest: the runtime calls a shim, and the daemon calls plugins from its container,
// with the node's root as theirs.
func TestThickMultus(t *testing.T) {
	thick(t)
	rail(t, "rail0")
	rail(t, "rail1")
	network(t, "ib0", fabricOn("rail0", "ib0"))
	network(t, "ib1", fabricOn("rail1", "ib1"))
	pod(t, "p1", "ib0, ib1")
	ready(t, "p1")
	s := status(t, "p1")
	if len(s) != 3 || s[1].Interface != "net1" || s[2].Interface != "net2" || len(s[1].IPs) != 1 ||
		len(s[2].IPs) != 1 ||
		s[1].IPs[0] == s[2].IPs[0] {
		t.Errorf("network-status: %+v", s)
	}
	gone(t, "p1")
	home(t, "rail0")
	home(t, "rail1")
	inRailOrder(t)
	nothingLeft(t)
}

// thick replaces thin Multus for the test.
func thick(t *testing.T) {
	t.Helper()
	const conf, away = "/etc/cni/net.d/00-multus.conf", "/etc/cni/00-multus.conf"
	const bridge = "/etc/cni/net.d/10-bridge.conflist"
	var image oci.Image
	image.Architecture = "amd64"
	for _, dir := range []string{"/etc", "/dev", "/proc", "/sys", "/run", "/tmp", "/opt", "/var", "/usr", "/usr/src",
		"/usr/src/multus-cni", "/usr/src/multus-cni/bin"} {
		image.Files = append(image.Files, oci.File{Path: dir})
	}
	image.Files = append(image.Files, oci.File{Path: "/var/run", Link: "/run"}, // where runtimes tell namespaces to be
		oci.File{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/\n")}) // the daemon asks who it is
	dir := filepath.Join(current.cache, "thick")
	for _, name := range []string{"multus-daemon", "multus-shim", "install_multus", "passthru"} {
		image.Files = append(image.Files,
			oci.File{Path: "/usr/src/multus-cni/bin/" + name, Source: filepath.Join(dir, name)})
	}
	imported(t, "localhost/multus-thick:e2e", image)
	manifest, err := documents(filepath.Join(dir, "multus-daemonset-thick.yml"), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(conf, away), os.WriteFile(bridge, []byte(bridgeConf), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := output("kubectl", "-n", "kube-system", "logs", "daemonset/kube-multus-ds", "--all-containers",
				"--tail=40")
			t.Logf("%s\n%s", k(t, "-n", "kube-system", "describe", "pods"), logs)
		}
		removed(t, "-n", "kube-system", "daemonset/kube-multus-ds", "configmap/multus-daemon-config",
			"--cascade=foreground")
		if err := errors.Join(os.Rename(away, conf), os.Remove(bridge)); err != nil {
			t.Error(err)
		}
	})
	apply(t, regexp.MustCompile(`ghcr\.io/\S+`).ReplaceAllString(manifest, "localhost/multus-thick:e2e"))
	rolledOut(t, "kube-system", "daemonset/kube-multus-ds")
	until(t, "the runtime knows the shim", func() error {
		return exec.Command("grep", "-q", "multus-shim", conf).Run()
	})
}
