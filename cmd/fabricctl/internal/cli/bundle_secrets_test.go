package cli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cli"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/apiserver"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// planted numbers the secrets of a test, so that each can be told from the others.
var planted, secret = regexp.MustCompile(`HIDE`), regexp.MustCompile(`.{0,60}QQ\d{3}QQ`)

func plantSecrets(n *int, text string) string {
	return planted.ReplaceAllStringFunc(text, func(string) string { *n++; return fmt.Sprintf("QQ%03dQQ", *n) })
}

// hostFiles are those of a node, with secrets in every form that is known.
var hostFiles = map[string]string{
	"etc/systemd/system/containerd.service": "[Service]\nLimitMEMLOCK=infinity\nExecStart=/usr/bin/containerd" +
		" --token HIDE\n",
	"etc/systemd/system/containerd.service.d/http-proxy.conf": "[Service]\n" +
		"Environment=\"HTTP_PROXY=http://user:HIDE@proxy:3128\" \\\n  \"DB_PASS=HIDE x HIDE\"\n#" +
		" HIDE\nEnvironment=A=HIDE\n",
	"proc/cmdline": "BOOT_IMAGE=/vmlinuz intel_iommu=on ib_core.netns_mode=0 ds=nocloud;s=http://u:HIDE@h/" +
		" x.key=HIDE " +
		"luks=\"a HIDE\" HIDE\n",
	"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=0\n# password HIDE\noptions wl key=HIDE\n" +
		"options mlx5_core note=http://u:HIDE@h\n",
	"etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir =" +
		" \"/opt/cni/bin\"\n" +
		"[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"u:HIDE@h\".auth]\n  username = \"HIDE\"\n " +
		" password = \"HIDE\"\n" +
		"  auth = \"HIDE\"\n  identitytoken = '''\n  bin_dir = \"HIDE\"\n  HIDE'''\n",
	"etc/containerd/conf.d/x.toml": "[plugins.x.headers]\n  Authorization = [\"Bearer HIDE\"]\n",
	"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\ntopologyManagerPolicy:" +
		" best-effort\nstaticPodURLHeader:\n  A: [HIDE]\n",
	"etc/cni/net.d/00-multus.conf": `{"name": "multus", "type": "multus", "kubeconfig": "/x/HIDE",` +
		` "delegates": [{"type": "calico", "policy": {"type": "k8s", "k8s_auth_token": "HIDE"}, "etcd_key":` +
		` "HIDE", "x": "HIDE"}]}`,
	"etc/cni/net.d/broken.conf":    `{"password": "HIDE"`,
	"etc/cni/net.d/multus.kubecfg": "users:\n- user:\n    client-key-data: HIDE\n    token: HIDE\n",
	"etc/cni/net.d/key.pem":        "-----BEGIN PRIVATE KEY-----\nHIDE\n-----END PRIVATE KEY-----\n",
	"etc/cni/net.d/rails.conflist": `{"name": "rails", "plugins": [{"type": "fabric", "device": "mlx5_0",` +
		` "_note": "HIDE", "ipam": {"type": "whereabouts", "range": "10.9.0.0/24", "etcd_password": "HIDE"}}]}`,
	"var/lib/cloud/seed/user-data":   "#cloud-config\npassword: HIDE\n",
	"root/.docker/config.json":       `{"auths": {"h": {"auth": "HIDE"}}}`,
	"usr/lib/systemd/system/x.other": "HIDE",
}

const dmesgText = `[    0.000000] Linux version 6.8.0 (x@y)
[    0.000000] Kernel command line: BOOT_IMAGE=/vmlinuz luks.pass=HIDE intel_iommu=on token HIDE
[    1.0] mlx5_core 0000:18:00.0: firmware version: 28.39.1002
[    2.0] cloud-init[812]: user-data HIDE
[    3.0] audit: type=1300 comm="x" HIDE
[    4.0] mlx5_core 0000:18:00.0 ibs108: proxy http://u:HIDE@h
[    5.0] systemd[1]: password HIDE
`

// bundleAPI answers for the cluster; events come as a table.
const bundleAPI = `#!/bin/sh
case "$*" in
*/network-attachment-definitions) cat nads.txt ;;
*/resourceclaims) cat claims.txt ;;
"GET /apis/resource.k8s.io") echo '{"preferredVersion":{"version":"v1"}}' ;;
*/resourceclaimtemplates|*/resourceslices|*/deviceclasses) echo '{"items":[null,"x"]}' ;;
*/events*) cat events.txt ;;
*) echo '500 error: --password HIDE' >&2; exit 1 ;;
esac
`

func nads(t *testing.T) string {
	t.Helper()
	conf := `{"cniVersion": "1.0.0", "type": "fabric", "device": "ibs108", "password": "HIDE", "o": "HIDE",` +
		` "name": "a b",
		"args": {"cni": {"secret": ["HIDE"]}}, "ipam": {"type": "whereabouts", "range": "10.9.1.0/24",
		"token": "HIDE HIDE"}}`
	last, err := json.Marshal(map[string]any{"spec": map[string]any{"config": conf}})
	if err != nil {
		t.Fatal(err)
	}
	object := func(name, conf string) any {
		return map[string]any{"kind": "NetworkAttachmentDefinition", "spec": map[string]any{"config": conf},
			"metadata": map[string]any{"name": name, "annotations": map[string]any{
				"kubectl.kubernetes.io/last-applied-configuration": string(last), "note": "HIDE"}}}
	}
	b, err := json.Marshal(map[string]any{"items": []any{object("rail0", conf), object("broken",
		"password: |\n  HIDE")}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const events = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[{"name":"Message","type":"string"}],
"rows":[
{"cells":["(code 101) device mlx5_3 is taken"],"object":{"kind":"PartialObjectMetadata","metadata":{"namespace":"ml"}}},
{"cells":["--password HIDE --token=HIDE"]},
{"cells":["{\\\"password\\\":\\\"HIDE HIDE\\\"} eyJhbGciOiJSUzI1NiJ9.HIDE.x AKIA0000HIDE0000"]},
{"cells":["{\"password\":\"HIDE HIDE\"}"]},
{"cells":["curl -H \"Authorization: Bearer HIDE\" -H \"Cookie: a=HIDE; b=HIDE\""]},
{"cells":["Server=x;Password=HIDE;Database=HIDE aws_secret_access_key=HIDE"]}]}
`

// claimObjects are those of Dynamic Resource Allocation, with parameters of another driver.
const claimObjects = `{"items": [
 {"kind": "ResourceClaim", "metadata": {"name": "train-0-rails", "namespace": "ml", "annotations": {"note": "HIDE"}},
  "spec": {"devices": {"requests": [{"name": "rails", "exactly": {"deviceClassName": "ib-200g.fabric.dev", "count": 2,
   "selectors": [{"cel": {"expression": "rail == 0"}}]}}],
   "constraints": [{"requests": ["rails"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}],
   "config": [{"opaque": {"driver": "x.example.com", "parameters":
    {"apiKey": "HIDE", "unknown": "HIDE", "mtu": 9000}}}]}},
  "status": {"reservedFor": [{"resource": "pods", "name": "train-0"}], "devices": [{"driver": "x.example.com",
   "data": {"other": "HIDE"}}]}},
 {"kind": "ResourceSlice", "metadata": {"name": "n1"}, "spec": {"driver": "fabric.dev", "nodeName": "n1", "pool":
  {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "pci-0000-18-00-0",
  "attributes": {"fabric": {"string": "ib-200g"}, "password": {"string": "HIDE"}},
  "taints": [{"key": "fabric.dev/unhealthy", "value": "PortDown", "effect": "NoSchedule"}]}]}}]}`

// No secret that is planted on a node, in its kernel's log or in the cluster is in any byte of the bundle or of the
// archives within it; what a maintainer needs is.
func TestBundleHasNoSecrets(t *testing.T) {
	dir, bin, state, n := t.TempDir(), t.TempDir(), t.TempDir(), 0
	m := machines.H20()
	if err := m.Plant(dir); err != nil {
		t.Fatal(err)
	}
	put := func(file, text string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(plantSecrets(&n, text)), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range hostFiles {
		put(filepath.Join(dir, name), text, 0o644)
	}
	put(filepath.Join(bin, "dmesg.txt"), dmesgText, 0o644)
	put(filepath.Join(bin, "nads.txt"), nads(t), 0o644)
	put(filepath.Join(bin, "events.txt"), events, 0o644)
	put(filepath.Join(bin, "claims.txt"), claimObjects, 0o644)
	put(filepath.Join(bin, "dmesg"), "#!/bin/sh\ncat "+bin+"/dmesg.txt\n", 0o755)
	put(filepath.Join(bin, "bin/api"), bundleAPI, 0o755)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	server := apiserver.New(bin)
	t.Cleanup(server.Close)
	kubeconfig, err := server.Kubeconfig("default")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	e := &journal.Entry{Key: journal.Key{ContainerID: "c0ffee", IfName: "net1"}, Network: "rails",
		Kind:      journal.KindDevice,
		DeviceKey: "pci/0000:18:00.0", Address: device.Address{Bus: "pci", Name: "0000:18:00.0"},
		Conf: json.RawMessage(plantSecrets(&n, `{"type": "fabric", "device": "ibs108", "other": "HIDE",
			"ipam": {"type": "x", "password": "HIDE"}}`)), Args: plantSecrets(&n, "K8S_POD_NAME=train-0;TOKEN=HIDE")}
	if err := (journal.Store{Dir: state}).Save(e); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "bundle.tar.gz")
	args := []string{"fabricctl", "support-bundle", "--root", dir, "--state-dir", state, "--cluster",
		"--output-file", out}
	if status := cli.Main(context.Background(), args, "test"); status != 0 {
		t.Fatalf("exit status %d", status)
	}
	packed, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	unpackAll(t, "", packed, files)
	all := ""
	for name, text := range files {
		all += name + "\n" + text + "\n"
		if i := secret.FindString(name + text); i != "" {
			t.Errorf("%s has a secret: %s", name, i)
		}
	}
	if n < 50 {
		t.Errorf("only %d secrets were planted", n)
	}
	for _, fact := range []string{`"kernel": "6.8.0"`, `bin_dir = "/opt/cni/bin"`, "options ib_core netns_mode=0",
		"mlx5_3",
		"LimitMEMLOCK=infinity", "intel_iommu=on", "ib_core.netns_mode=0", "topologyManagerPolicy: best-effort",
		"0000:18:00.0",
		`"container": "c0ffee"`, "K8S_POD_NAME=train-0", "10.9.0.0/24", "10.9.1.0/24", "rail0",
		"device mlx5_3 is taken",
		"ib-200g.fabric.dev", `"rail == 0"`, `"reservedFor"`, "pci-0000-18-00-0", "PortDown", "matchAttribute",
		"firmware version: 28.39.1002", "Environment=(removed)"} {
		if !strings.Contains(all, fact) {
			t.Errorf("the bundle misses %q", fact)
		}
	}
}

// unpackAll reads an archive, and the archives within it.
func unpackAll(t *testing.T, name string, b []byte, into map[string]string) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		into[name] = string(b)
		return
	}
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		into[name+"/"+h.Name+"/link"] = h.Linkname
		unpackAll(t, name+"/"+h.Name, content, into)
	}
}
