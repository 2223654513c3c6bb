package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Cluster is the running one: a control plane and, but for the half with nodes of the lab, one node called rig.
type Cluster struct {
	half      half
	run       string // directory of this half of the run
	repo      string
	cache     string
	authority *authority // signs certificates of the nodes that come later

	// What tests kill and start again. The last two are on the node rig.
	api, scheduler, containerd, kubelet *process
}

var current *Cluster

// inside starts the cluster and runs the tests.
func inside(m *testing.M) (int, error) {
	cache, err := Cache()
	if err != nil {
		return 2, err
	}
	c := &Cluster{half: half(os.Getenv(envHalf)), run: os.Getenv(envRun), repo: os.Getenv(envRoot), cache: cache}
	machine.watch()
	if err := c.start(); err != nil {
		return 2, errors.Join(err, c.logs())
	}
	current = c
	status := m.Run()
	if status != 0 {
		return status, c.logs()
	}
	return 0, nil
}

// start brings everything up.
func (c *Cluster) start() error {
	began := time.Now()
	if err := enter(c.run, c.cache); err != nil {
		return err
	}
	path := strings.Join([]string{c.cache + "/bin", c.cache + "/containerd", c.cache + "/helm",
		c.cache + "/debroot/usr/sbin", "/opt/cni/bin", os.Getenv("PATH")}, ":")
	err := errors.Join(os.Setenv("PATH", path), os.Setenv("KUBECONFIG", c.run+"/conf/admin.kubeconfig"))
	if err != nil {
		return err
	}
	if c.authority, err = pki(c.run + "/pki"); err != nil {
		return err
	}
	for _, who := range []string{"admin", "kcm", "sched", "node"} {
		if err := c.kubeconfig(c.run+"/conf/"+who+".kubeconfig", who); err != nil {
			return err
		}
	}
	if err := c.control(); err != nil {
		return err
	}
	if _, err := c.box(); err != nil {
		return err
	}
	if c.half == rigHalf {
		if err := c.node(); err != nil {
			return err
		}
	}
	if err := c.networks(); err != nil {
		return err
	}
	if err := c.await("pods can have a service account", 2*time.Minute,
		"get", "serviceaccount", "default"); err != nil {
		return err
	}
	if c.half == rigHalf {
		if err := c.await("the node is Ready", 2*time.Minute,
			"wait", "--for=condition=Ready", "--timeout=5s", "node/rig"); err != nil {
			return err
		}
	}
	fmt.Printf("cluster: %s: up in %.0f s\n", c.half, time.Since(began).Seconds())
	return nil
}

// kubeconfig writes a file for a token of tokens.csv, or for any other token.
func (c *Cluster) kubeconfig(file, token string) error {
	return c.kubeconfigAt(file, "https://127.0.0.1:6443", token)
}

// nodeURL is the API server as nodes of the lab reach it. Pods have the address of its service.
const nodeURL = "https://" + nodeIP + ":6443"

func (c *Cluster) kubeconfigAt(file, server, token string) error {
	return os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
clusters: [{name: rig, cluster: {server: "`+server+`", certificate-authority: `+c.run+`/pki/ca.crt}}]
users: [{name: u, user: {token: "`+token+`"}}]
contexts: [{name: c, context: {cluster: rig, user: u, namespace: default}}]
current-context: c
`), 0o600)
}

// process is a component that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// daemon starts a component, with its output in log/NAME.log.
func (c *Cluster) daemon(name string, args ...string) error {
	_, err := c.process(name, args...)
	return err
}

func (c *Cluster) process(name string, args ...string) (*process, error) {
	file := filepath.Join(c.run, "log", filepath.Base(name)+".log")
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{exec.Command(name, args...), make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

// kill ends it at once, also if it is stopped, and waits for its end.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", filepath.Base(p.cmd.Path), err)
	}
	<-p.ended
	return nil
}

const etcdURL = "http://127.0.0.1:2379"

// control starts the control plane.
func (c *Cluster) control() error {
	pki, conf := c.run+"/pki/", c.run+"/conf/"
	return errors.Join(
		c.daemon("etcd", "--data-dir", c.run+"/etcd", "--unsafe-no-fsync",
			"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
			"--listen-peer-urls", "http://127.0.0.1:2380"),
		c.daemon("kube-controller-manager", append(c.half.gateFlags(), "--kubeconfig", conf+"kcm.kubeconfig",
			"--service-account-private-key-file", pki+"sa.key", "--root-ca-file", pki+"ca.crt",
			"--use-service-account-credentials", "--leader-elect=false")...),
		c.startScheduler(),
		c.service(),
		c.startAPI(),
	)
}

func (c *Cluster) startScheduler() (err error) {
	conf := c.run + "/conf/sched.kubeconfig"
	c.scheduler, err = c.process("kube-scheduler", append(c.half.gateFlags(), "--kubeconfig", conf,
		"--authentication-kubeconfig", conf, "--authorization-kubeconfig", conf, "--leader-elect=false")...)
	return err
}

// startAPI starts the API server, and waits until it is ready.
func (c *Cluster) startAPI() (err error) {
	pki := c.run + "/pki/"
	c.api, err = c.process("kube-apiserver", append(c.half.apiFlags(), "--etcd-servers", etcdURL,
		"--secure-port", "6443", "--bind-address", "0.0.0.0", "--advertise-address", nodeIP,
		"--tls-cert-file", pki+"apiserver.crt", "--tls-private-key-file", pki+"apiserver.key",
		"--client-ca-file", pki+"ca.crt", "--token-auth-file", pki+"tokens.csv",
		"--kubelet-client-certificate", pki+"kubelet-client.crt", "--kubelet-client-key", pki+"kubelet-client.key",
		"--kubelet-certificate-authority", pki+"ca.crt",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", pki+"sa.pub", "--service-account-signing-key-file", pki+"sa.key",
		"--service-cluster-ip-range", "10.96.0.0/16", "--kubelet-preferred-address-types", "InternalIP",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--allow-privileged=true")...)
	if err != nil {
		return err
	}
	return c.await("the API server is ready", 3*time.Minute, "get", "--raw", "/readyz")
}

// stopAPI kills the API server. What it knows is in etcd.
func (c *Cluster) stopAPI() error {
	return c.api.kill()
}

// service is what kube-proxy would do for the API server: pods on the node's own network reach it at its service
// address.
func (c *Cluster) service() error {
	if out, err := exec.Command("ip", "addr", "add", "10.96.0.1/32", "dev", "lo").CombinedOutput(); err != nil {
		return fmt.Errorf("service address: %w: %s", err, out)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "10.96.0.1:443")
	if err != nil {
		return err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go forward(in)
		}
	}()
	return nil
}

func forward(in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{}).Dial("tcp", "127.0.0.1:6443") // ends with its peer
	if err != nil {
		return
	}
	defer out.Close()
	go func() { _, _ = io.Copy(out, in); out.Close() }()
	_, _ = io.Copy(in, out)
}

const containerdConfig = `version = 3
root = "RUN/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/box:e2e"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE a score can't be lowered
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: ` + nodeIP + ` # not that of the other nodes
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: RUN/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: RUN/pki/kubelet.crt
tlsPrivateKeyFile: RUN/pki/kubelet.key
resolvConf: ""
staticPodPath: /etc/kubernetes/manifests
clusterDNS: [10.96.0.10]
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%",
  imagefs.available: "0%", imagefs.inodesFree: "0%"}
fileCheckFrequency: 5s
syncFrequency: 10s
nodeStatusUpdateFrequency: 1s # devices that come and go are counted at once
`

// node starts containerd and kubelet, with the images that pods use.
func (c *Cluster) node() error {
	for file, text := range map[string]string{"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig} {
		text = strings.ReplaceAll(text, "RUN", c.run)
		if err := os.WriteFile(filepath.Join(c.run, "conf", file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := c.startContainerd(); err != nil {
		return err
	}
	if err := c.load(filepath.Join(c.run, "box.tar")); err != nil {
		return err
	}
	return c.startKubelet()
}

// startContainerd waits until it answers.
func (c *Cluster) startContainerd() (err error) {
	if c.containerd, err = c.process("containerd", "--config", c.run+"/conf/containerd.toml"); err != nil {
		return err
	}
	return poll("containerd answers", time.Minute, soon, func() error {
		_, err := output("ctr", "version")
		return err
	})
}

func (c *Cluster) startKubelet() error {
	args, err := cgroupFlags()
	if err != nil {
		return err
	}
	c.kubelet, err = c.process("kubelet", append(args, "--config", c.run+"/conf/kubelet.yaml",
		"--kubeconfig", c.run+"/conf/node.kubeconfig", "--hostname-override", "rig", "--node-ip", nodeIP,
		"--root-dir", "/var/lib/kubelet", "-v=2")...)
	return err
}

// load gives an archive to containerd.
func (c *Cluster) load(archive string) error {
	_, err := output("ctr", "-n", "k8s.io", "images", "import", archive)
	return err
}

func output(name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// await asks kubectl until it succeeds.
func (c *Cluster) await(what string, limit time.Duration, args ...string) error {
	return poll(what, limit, soon, func() error { _, err := output("kubectl", args...); return err })
}

// soon is how often this machine's own processes are asked.
const soon = 200 * time.Millisecond

// poll calls f until it succeeds. The limit is for a quiet machine, see pace.
func poll(what string, limit, every time.Duration, f func() error) error {
	began := time.Now()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Since(began) > machine.scaled(limit) {
			machine.measure()
			if waited := time.Since(began); waited > machine.scaled(limit) {
				return fmt.Errorf("waited %s in vain until %s: %w", waited.Round(time.Second), what, err)
			}
		}
		time.Sleep(every)
	}
}

// logs shows the end of each component's log.
func (c *Cluster) logs() error {
	files, err := filepath.Glob(filepath.Join(c.run, "log", "*.log"))
	for _, f := range append(files, "/var/log/multus.log") {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "==> %s\n%s\n", filepath.Base(f), lastLines(string(b), 15))
	}
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
