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
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// simulated is a cluster with more nodes than there are: each an agent with directories of its own, in front of the
// real API server with the rights that it has when it is deployed. Their devices are made up.
type simulated struct {
	t          *testing.T
	dir        string
	kubeconfig string
	stop       map[string]func()
	looks      map[string]*atomic.Int64 // how often the agent of a node has looked at it
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	s := &simulated{t: t, dir: t.TempDir(), stop: map[string]func(){}, looks: map[string]*atomic.Int64{}}
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: fabric-system}\n")
	t.Cleanup(func() { removed(t, "namespace", "fabric-system") })
	// The rights of the deployment, without its DaemonSet.
	rights, err := os.ReadFile(filepath.Join(current.repo, "deployments/base/rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rbac := t.TempDir()
	for name, text := range map[string]string{
		"rbac.yaml":          string(rights),
		"kustomization.yaml": "namespace: fabric-system\nresources: [rbac.yaml]\n",
	} {
		if err := os.WriteFile(filepath.Join(rbac, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k(t, "apply", "-k", rbac)
	t.Cleanup(func() { k(t, "delete", "--ignore-not-found", "-k", rbac) })
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := current.kubeconfig(s.kubeconfig,
		strings.TrimSpace(k(t, "-n", "fabric-system", "create", "token", "fabric-agent"))); err != nil {
		t.Fatal(err)
	}
	return s
}

// settings are the same for all.
func (s *simulated) settings(text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, "settings.yaml")
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// join makes a Node and starts its agent.
func (s *simulated) join(name string) {
	s.t.Helper()
	apply(s.t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	s.t.Cleanup(func() { k(s.t, "delete", "node", name, "--ignore-not-found") })
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
			ID:      pci,
			Address: device.Address{Bus: "pci", Name: pci},
			Netdev:  fmt.Sprint("ibs", i),
			AdminUp: true,
			NUMA:    -1,
			RateGb:  200,
			HCA: device.HCA{
				Name:  fmt.Sprint("mlx5_", i),
				Ports: []device.Port{{Number: 1, State: device.PortActive, LinkLayer: device.InfiniBand}},
			},
		})
	}
	looks := new(atomic.Int64)
	s.looks[name] = looks
	o := &agent.Options{
		Source:     filepath.Join(current.run, "bin/fabric"),
		BinDir:     dir,
		StateDir:   filepath.Join(dir, "state"),
		ConfDir:    filepath.Join(dir, "net.d"),
		Settings:   filepath.Join(s.dir, "settings.yaml"),
		Policy:     filepath.Join(dir, "policy.json"),
		Node:       name,
		Namespace:  "fabric-system",
		Kubeconfig: s.kubeconfig,
		Health:     "127.0.0.1:0",
		Metrics:    "127.0.0.1:0",
		Interval:   200 * time.Millisecond,
		Grace:      time.Minute,
		Survey:     func() ([]survey.Device, error) { looks.Add(1); return devices, nil },
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
	k(s.t, "delete", "node", name)
}

// capacity is what a kubelet tells of a fabric's resource.
func (s *simulated) capacity(node, fabric string, n int) {
	s.t.Helper()
	k(s.t, "patch", "node", node, "--subresource=status",
		"-p", fmt.Sprintf(`{"status":{"capacity":{"fabric.dev/%s":"%d"}}}`, fabric, n))
}

func (s *simulated) file(node string) string {
	return filepath.Join(s.dir, node, "net.d/fabric-agent-ib.conf")
}

// part waits for the node's configuration, and returns the first address of its part.
func (s *simulated) part(node string) string {
	s.t.Helper()
	var conf struct {
		IPAM struct {
			Type   string
			Ranges [][]struct{ Subnet, RangeStart, RangeEnd string }
		}
	}
	until(s.t, node+" has its part", func() error {
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

func (s *simulated) event(node, reason, text string) {
	s.t.Helper()
	until(s.t, "an event on "+node+": "+reason+" "+text, func() error {
		out, err := output("kubectl", "get", "events", "-A",
			"--field-selector", "involvedObject.name="+node+",reason="+reason, "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, text) {
			err = textError(out)
		}
		return err
	})
}

// stays asserts that a definition is not removed while the agents that run look at least twice. The first of their
// looks may have begun before the settings that they now have, and the last may not have ended.
func (s *simulated) stays(name string) {
	s.t.Helper()
	goal := map[string]int64{}
	for node := range s.stop {
		goal[node] = s.looks[node].Load() + 4
	}
	until(s.t, "the agents have looked", func() error {
		k(s.t, "get", "network-attachment-definition", name)
		for node, n := range goal {
			if have := s.looks[node].Load(); have < n {
				return textError(fmt.Sprintf("%s has looked %d times, want %d", node, have, n))
			}
		}
		return nil
	})
	k(s.t, "get", "network-attachment-definition", name)
}
