package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// simulated is a cluster with more nodes than there are: each an agent with directories of its own, in front of the
// real API server with the rights that it has when it is deployed. Their devices are made up.
type simulated struct {
	t    *testing.T
	dir  string
	stop map[string]func()
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	rights(t)
	return &simulated{t: t, dir: t.TempDir(), stop: map[string]func(){}}
}

// token is the one that kubelet would ask for on behalf of the agent's pod: it has the name of the node.
func (s *simulated) token(node string) string {
	s.t.Helper()
	name := "fabric-agent-" + node
	apply(s.t, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, namespace: fabric-system}
spec:
  nodeName: `+node+`
  serviceAccountName: fabric-agent
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: "localhost/box:e2e"}]
`)
	s.t.Cleanup(func() { removed(s.t, "-n", "fabric-system", "pod", name, "--grace-period=0", "--force") })
	return strings.TrimSpace(k(s.t, "-n", "fabric-system", "create", "token", "fabric-agent",
		"--bound-object-kind=Pod", "--bound-object-name="+name))
}

// join makes a Node and starts its agent.
func (s *simulated) join(name string) {
	s.t.Helper()
	apply(s.t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	s.t.Cleanup(func() { removed(s.t, "node", name) })
	if err := current.kubeconfig(s.kubeconfig(name), s.token(name)); err != nil {
		s.t.Fatal(err)
	}
	s.start(name)
}

// start starts the agent of a node that has four rails.
func (s *simulated) start(name string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	var devices []survey.Device
	for i := range 4 {
		pci := fmt.Sprintf("0000:%d0:00.0", i+1)
		devices = append(devices, survey.Device{
			Location: device.LocationOnPCI(pci),
			Netdev:   fmt.Sprint("ibs", i),
			AdminUp:  true,
			NUMA:     -1,
			RateGb:   200,
			HCA: device.HCA{
				Name:  fmt.Sprint("mlx5_", i),
				Ports: []device.Port{{Number: 1, State: device.PortActive, LinkLayer: device.InfiniBand}},
			},
		})
	}
	o := &agent.Options{
		Source:     filepath.Join(current.run, "bin/fabric"),
		BinDir:     dir,
		StateDir:   filepath.Join(dir, "state"),
		ConfDir:    filepath.Join(dir, "net.d"),
		Policy:     filepath.Join(dir, "policy.json"),
		Node:       name,
		Kubeconfig: s.kubeconfig(name),
		Health:     "127.0.0.1:0",
		Metrics:    "127.0.0.1:0",
		Interval:   200 * time.Millisecond,
		Grace:      time.Minute,
		Survey:     func() ([]survey.Device, error) { return devices, nil },
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var end sync.WaitGroup
	end.Go(func() {
		log := slog.New(slog.NewTextHandler(s.t.Output(), nil)).With("node", name)
		if err := agent.Run(ctx, o, "test", log); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	})
	s.stop[name] = func() { cancel(); end.Wait(); delete(s.stop, name) }
	s.t.Cleanup(func() {
		if f := s.stop[name]; f != nil {
			f()
		}
	})
}

// leave is the end of a node: no agent, no Node.
func (s *simulated) leave(name string) {
	s.t.Helper()
	s.stop[name]()
	removed(s.t, "node", name)
	removed(s.t, "-n", "fabric-system", "pod", "fabric-agent-"+name, "--grace-period=0", "--force")
}

func (s *simulated) kubeconfig(node string) string { return filepath.Join(s.dir, node+".kubeconfig") }

func (s *simulated) file(node string) string {
	return filepath.Join(s.dir, node, "net.d/fabric-agent-ib.conf")
}

// own waits for the node's configuration, and returns the first address of its range.
func (s *simulated) own(node string) string {
	s.t.Helper()
	var conf struct {
		IPAM struct {
			Type   string
			Ranges [][]struct{ Subnet, RangeStart, RangeEnd string }
		}
	}
	until(s.t, node+" has its range", func() error {
		b, err := os.ReadFile(s.file(node))
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &conf)
	})
	if conf.IPAM.Type != "host-local" || len(conf.IPAM.Ranges) != 1 || conf.IPAM.Ranges[0][0].Subnet != "10.77.0.0/24" {
		s.t.Fatalf("%s: %+v", node, conf)
	}
	return conf.IPAM.Ranges[0][0].RangeStart
}

// waits asserts that a node has a condition that says why it has no range, and no configuration.
func (s *simulated) waits(node string) {
	s.t.Helper()
	condition(s.t, "fabricnode/"+node, "Ready", "False", "NoRange", "the controller has given this node no range yet")
	if _, err := os.Stat(s.file(node)); err == nil {
		s.t.Errorf("%s has %s without a range", node, s.file(node))
	}
}
