package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// box writes the image that pods, and their pauses, are made of: a busybox, which sleeps.
func (c *Cluster) box() (string, error) {
	busybox := filepath.Join(c.cache, "debroot/bin/busybox")
	list, err := output(busybox, "--list")
	if err != nil {
		return "", err
	}
	image := oci.Image{Architecture: "amd64", Config: oci.Config{Entrypoint: []string{"/bin/sleep", "2147483647"}, Env: []string{"PATH=/bin"}},
		Files: []oci.File{{Path: "/bin"}, {Path: "/bin/busybox", Source: busybox}, {Path: "/etc"}, {Path: "/proc"}, {Path: "/sys"}, {Path: "/dev"}, {Path: "/tmp"}}}
	for _, name := range strings.Fields(list) {
		if name != "busybox" {
			image.Files = append(image.Files, oci.File{Path: "/bin/" + name, Link: "busybox"})
		}
	}
	return c.image("localhost/box:e2e", image)
}

func (c *Cluster) image(name string, image oci.Image) (string, error) {
	file := filepath.Join(c.run, "image.tar")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	_, err = oci.Write(f, name, image)
	return file, errors.Join(err, f.Close())
}

// networks installs Multus (thin), whereabouts and the plugin, as their DaemonSets would.
func (c *Cluster) networks() error {
	files, err := filepath.Glob(filepath.Join(c.cache, "crds", "*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("manifests of Multus and whereabouts: %w", errors.Join(err, os.ErrNotExist))
	}
	var all bytes.Buffer
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		for _, doc := range regexp.MustCompile(`(?m)^---.*$`).Split(string(b), -1) {
			kind := regexp.MustCompile(`(?m)^kind: *(\w+)`).FindStringSubmatch(doc)
			if kind != nil && kind[1] != "DaemonSet" && kind[1] != "ConfigMap" {
				all.WriteString("---\n" + doc + "\n")
			}
		}
	}
	if err := c.apply(all.String()); err != nil {
		return err
	}
	if _, err := output("kubectl", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	for _, who := range []string{"multus", "whereabouts"} {
		token, err := output("kubectl", "create", "token", "-n", "kube-system", who, "--duration=24h")
		if err != nil {
			return err
		}
		if err := c.kubeconfig("/etc/cni/net.d/"+who+".d/"+who+".kubeconfig", strings.TrimSpace(token)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile("/etc/cni/net.d/whereabouts.d/whereabouts.conf", []byte(whereaboutsConf), 0o600),
		os.WriteFile("/etc/cni/net.d/00-multus.conf", []byte(multusConf), 0o600),
		exec.Command("cp", c.run+"/bin/fabric", "/opt/cni/bin/fabric").Run())
}

const whereaboutsConf = `{"datastore":"kubernetes","kubernetes":{"kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
 "reconciler_cron_expression":"30 4 * * *"}`

const multusConf = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","logToStderr":false,"logLevel":"debug","logFile":"/var/log/multus.log",
 "kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig","confDir":"/etc/cni/multus/net.d","cniDir":"/var/lib/cni/multus","binDir":"/opt/cni/bin",
 "delegates":[{"cniVersion":"1.0.0","name":"default-cni-network","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}]}`

// apply gives YAML to kubectl.
func (c *Cluster) apply(yaml string, more ...string) error {
	cmd := exec.Command("kubectl", append([]string{"apply", "-f", "-"}, more...)...)
	cmd.Stdin = strings.NewReader(yaml)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}
