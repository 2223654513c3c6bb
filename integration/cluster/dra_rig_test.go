package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// rigFabric is the Fabric of the node rig, whose devices are given by claims.
const rigFabric = "rails"

// draRig is the node rig with what the project has for Dynamic Resource Allocation: rails that are veths, the agent as
// a process that can be killed, the controller, and a Fabric.
type draRig struct {
	t     testing.TB
	bin   string // directory of the programs fabric and rigagent
	rails []string
	agent *process

	mu sync.Mutex // while rails are made
}

// newDRARig waits until all devices are in the node's ResourceSlice, and the network is published.
func newDRARig(t testing.TB, bin string, rails int) *draRig {
	t.Helper()
	g := &draRig{t: t, bin: bin}
	for i := range rails {
		g.rails = append(g.rails, fmt.Sprint("rail", i))
	}
	rights(t)
	if err := g.makeRails(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, r := range g.rails {
			_ = exec.Command("ip", "link", "delete", r+"p").Run()
		}
	})
	controller(t)
	agentAccount(t)
	if err := g.startAgent(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(g.agent.cmd.Process.Signal(unix.SIGTERM))
		<-g.agent.ended
		if t.Failed() {
			b, rerr := os.ReadFile(filepath.Join(current.run, "log", "rigagent.log"))
			t.Logf("agent: %v\n%s", errors.Join(err, rerr), lastLines(string(b), 60))
		}
		if err := exec.Command("cp", "--remove-destination", current.run+"/bin/fabric",
			"/opt/cni/bin/fabric").Run(); err != nil {
			t.Error(err)
		}
	})
	fabric(t, rigFabric, "{match: {devices: ['rail*']}, allocation: DRA, network: {rdmaMode: Ignore}, "+
		"addresses: {nodeRanges: {ranges: [{range: 10.78.0.0/24, perNodePrefixLength: 26}]}}}")
	until(t, "all devices are in the ResourceSlice", g.published)
	until(t, "the network is published", func() error {
		_, err := os.Stat("/etc/cni/multus/net.d/fabric-agent-" + rigFabric + ".conf")
		_, err2 := output("kubectl", "get", "network-attachment-definition/"+rigFabric,
			"deviceclass/"+rigFabric+".fabric.dev")
		return errors.Join(err, err2)
	})
	return g
}

// makeRails makes those that are not on the host, as the devices of a node are after a boot.
func (g *draRig) makeRails() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.rails {
		if _, err := net.InterfaceByName(r); err == nil {
			continue
		}
		if err := makeRail(r); err != nil {
			return err
		}
	}
	return nil
}

// reviveRails makes those again whose network namespace has gone with them in it: the kernel deletes a veth then, where
// it brings hardware home. The other end tells that from a rail that a program has lost.
func (g *draRig) reviveRails() (revived int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.rails {
		if _, err := net.InterfaceByName(r + "p"); err == nil {
			continue
		}
		if err := makeRail(r); err != nil {
			return revived, err
		}
		revived++
	}
	return revived, nil
}

func makeRail(name string) error {
	const script = "ip link delete NAMEp 2>/dev/null; ip link add NAME mtu 1400 type veth peer name NAMEp && " +
		"ip link set NAMEp up && ip addr add 192.0.2.1/24 dev NAME && ip link set NAME up"
	_, err := output("sh", "-c", strings.ReplaceAll(script, "NAME", name))
	return err
}

// agentConfig is the kubeconfig of an agent that is a process.
func agentConfig() string { return current.run + "/conf/rigagent.kubeconfig" }

// agentAccount writes it, with the token that kubelet would ask for on behalf of the agent's pod.
func agentAccount(t testing.TB) {
	t.Helper()
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: fabric-agent-rig, namespace: fabric-system}
spec:
  nodeName: rig
  serviceAccountName: fabric-agent
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never}]
`)
	t.Cleanup(func() {
		removed(t, "-n", "fabric-system", "pod", "fabric-agent-rig", "--grace-period=0", "--force")
	})
	token := strings.TrimSpace(k(t, "-n", "fabric-system", "create", "token", "fabric-agent", "--duration=12h",
		"--bound-object-kind=Pod", "--bound-object-name=fabric-agent-rig"))
	if err := current.kubeconfig(agentConfig(), token); err != nil {
		t.Fatal(err)
	}
}

// startAgent starts the process; another one must have ended.
func (g *draRig) startAgent() (err error) {
	g.agent, err = current.process(filepath.Join(g.bin, "rigagent"), strings.Join(g.rails, ","), "run",
		"--node-name=rig", "--node-ips="+nodeIP, "--kubeconfig="+agentConfig(), "--source="+g.bin+"/fabric",
		"--health-address=", "--metrics-address=", "--interval=1s", "--grace=3s")
	return err
}

// published asserts that all devices of the node are in its slice.
func (g *draRig) published() error {
	list, err := clientset(g.t).ResourceV1().ResourceSlices().List(g.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	n := 0
	for i := range list.Items {
		if s := &list.Items[i].Spec; s.Driver == "fabric.dev" && s.NodeName != nil && *s.NodeName == "rig" {
			n += len(s.Devices)
		}
	}
	if n != len(g.rails) {
		return fmt.Errorf("%d devices of %d", n, len(g.rails))
	}
	return nil
}

// clientset is that of an administrator. A call that is not answered fails soon: the API server may be stopped.
func clientset(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	c, err := connected()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var connected = sync.OnceValues(func() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.Timeout = 1000, 1000, 5*time.Second
	return kubernetes.NewForConfig(config)
})
