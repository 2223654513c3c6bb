package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// box writes the image that pods, and their pauses, are made of: a busybox, which sleeps.
func (c *Cluster) box() (string, error) {
	busybox := filepath.Join(c.cache, "debroot/bin/busybox")
	list, err := output(busybox, "--list")
	if err != nil {
		return "", err
	}
	image := oci.Image{
		Architecture: "amd64",
		Config: oci.Config{
			// The first process of a container is not ended by SIGTERM unless it handles it.
			Entrypoint: []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"},
			Env:        []string{"PATH=/bin"},
		},
		Files: []oci.File{{Path: "/bin"}, {Path: "/bin/busybox", Source: busybox}, {Path: "/etc"}, {Path: "/proc"},
			{Path: "/sys"}, {Path: "/dev"}, {Path: "/tmp"}},
	}
	for _, name := range strings.Fields(list) {
		if name != "busybox" {
			image.Files = append(image.Files, oci.File{Path: "/bin/" + name, Link: "busybox"})
		}
	}
	return c.image("localhost/box:e2e", image)
}

// image writes an archive with one image, named after it.
func (c *Cluster) image(name string, image oci.Image) (string, error) {
	base, _, _ := strings.Cut(filepath.Base(name), ":")
	file := filepath.Join(c.run, base+".tar")
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
	var all strings.Builder
	for _, f := range files {
		docs, err := documents(f, func(kind string) bool {
			return !slices.Contains([]string{"DaemonSet", "Deployment", "ConfigMap"}, kind)
		})
		if err != nil {
			return err
		}
		all.WriteString(docs)
	}
	if err := c.apply(all.String()); err != nil {
		return err
	}
	if err := c.await("the CRDs are established", time.Minute,
		"wait", "--for=condition=Established", "--timeout=15s", "crd", "--all"); err != nil {
		return err
	}
	for _, who := range []string{"multus", "whereabouts"} {
		token, err := c.token(who)
		if err != nil {
			return err
		}
		if err := c.kubeconfig("/etc/cni/net.d/"+who+".d/"+who+".kubeconfig", token); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile("/etc/cni/net.d/whereabouts.d/whereabouts.conf", []byte(whereaboutsConf), 0o600),
		os.WriteFile("/etc/cni/net.d/whereabouts.d/nodename", []byte("rig\n"), 0o600),
		os.WriteFile("/etc/cni/net.d/00-multus.conf", []byte(multusConf), 0o600),
		exec.Command("cp", c.run+"/bin/fabric", "/opt/cni/bin/fabric").Run())
}

// documents are those of a YAML file that have a kind that is wanted.
func documents(file string, want func(kind string) bool) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, doc := range regexp.MustCompile(`(?m)^---.*$`).Split(string(b), -1) {
		if kind := regexp.MustCompile(`(?m)^kind: *(\w+)`).FindStringSubmatch(doc); kind != nil && want(kind[1]) {
			out.WriteString("---\n" + doc + "\n")
		}
	}
	return out.String(), nil
}

// token is one for a service account in kube-system.
func (c *Cluster) token(account string) (string, error) {
	token, err := output("kubectl", "create", "token", "-n", "kube-system", account, "--duration=24h")
	return strings.TrimSpace(token), err
}

const whereaboutsConf = `{"datastore":"kubernetes","configuration_path":"/etc/cni/net.d/whereabouts.d",
 "kubernetes":{"kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
 "reconciler_cron_expression":"30 4 * * *"}`

const multusConf = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus",
 "logToStderr":false,"logLevel":"debug","logFile":"/var/log/multus.log",
 "kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig","confDir":"/etc/cni/multus/net.d",
 "cniDir":"/var/lib/cni/multus","binDir":"/opt/cni/bin",
 "delegates":[` + bridgeConf + `]}`

// bridgeConf is the cluster's own network.
const bridgeConf = `{"cniVersion":"1.0.0","name":"default-cni-network","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`

// apply gives YAML to kubectl.
func (c *Cluster) apply(yaml string, more ...string) error {
	cmd := exec.Command("kubectl", append([]string{"apply", "-f", "-"}, more...)...)
	cmd.Stdin = strings.NewReader(yaml)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}
