package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// sources are where a command takes the nodes of a cluster from: recordings, inventories of the agents, or this
// machine.
type sources struct {
	machine
	recordings []string
	cluster    bool // the inventories that fabric-agent has published
	namespace  string
	bad        []error // inventories that were left out
}

// check checks the flags.
func (s *sources) check() error { return labelRule.check("agent-namespace", s.namespace) }

// nodes reads the nodes.
func (s *sources) nodes(ctx context.Context) ([]*node.Node, error) {
	switch {
	case s.cluster && (len(s.recordings) > 0 || s.root != "/"):
		return nil, fmt.Errorf("%w: --cluster, recordings and --root exclude each other", errUsage)
	case s.cluster:
		return s.clusterNodes(ctx)
	case len(s.recordings) > 0:
		return s.recorded()
	}
	n, err := s.node()
	return []*node.Node{n}, err
}

// recorded reads the recordings. No two may be of the same node.
func (s *sources) recorded() (out []*node.Node, err error) {
	seen := map[string]string{}
	for _, r := range s.recordings {
		n, err := s.recording(r)
		if err != nil {
			return nil, err
		}
		if other, ok := seen[n.Name]; ok {
			return nil, fmt.Errorf("recordings %s and %s are both of node %s", other, r, n.Name)
		}
		seen[n.Name] = r
		out = append(out, n)
	}
	return out, nil
}

// recording reads one recording, or what discover -o json has printed.
func (s *sources) recording(name string) (*node.Node, error) {
	if b, err := os.ReadFile(name); err == nil && len(b) > 0 && b[0] == '{' {
		var d discovery
		if err := json.Unmarshal(b, &d); err != nil || d.Node == nil || d.Node.Name == "" {
			return nil, errors.Join(fmt.Errorf("recording %s: not what discover -o json prints", name), err)
		}
		return d.Node, nil
	}
	tree, err := openTree(name)
	if err != nil {
		return nil, fmt.Errorf("recording %s", strings.TrimPrefix(err.Error(), "--root: "))
	}
	n, err := node.Open(tree, s.store())
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	return n, nil
}

// agentNamespace is where deployments/ runs the agent.
const agentNamespace = "fabric-system"

// published reads the inventories that the agents in a namespace have published, in the order of the nodes' names.
// Others may write ConfigMaps in theirs. One that is not what an agent writes is left out, and in bad.
func published(ctx context.Context, namespace string) (out []node.Published, bad []error, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Data map[string]string `json:"data"`
		} `json:"items"`
	}
	err = kubectlGet(ctx, &list, "get", "configmaps", "-n", namespace, "-l", node.PublishedLabel+"=node", "-o", "json")
	if err != nil {
		return nil, nil, err
	}
	for _, i := range list.Items {
		var p node.Published
		err := json.Unmarshal([]byte(i.Data[node.PublishedKey]), &p)
		if err != nil || p.Node == nil || p.Node.Name == "" {
			bad = append(bad, errors.Join(fmt.Errorf("ConfigMap %s: %s is not an inventory; delete it, the agent "+
				"writes it again", i.Metadata.Name, node.PublishedKey), err))
			continue
		}
		if err = generate.Valid(p.Node); err == nil && i.Metadata.Name != node.PublishedName+p.Node.Name {
			err = fmt.Errorf("has the inventory of node %s", p.Node.Name)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("ConfigMap %s: %w; left out", i.Metadata.Name, err))
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b node.Published) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out, bad, nil
}

// present removes the inventories whose Nodes are gone: a ConfigMap outlives its Node.
func present(list []node.Published, nodes []doctor.ClusterNode) []node.Published {
	return slices.DeleteFunc(list, func(p node.Published) bool {
		return !slices.ContainsFunc(nodes, func(n doctor.ClusterNode) bool { return n.Metadata.Name == p.Node.Name })
	})
}

// clusterNodes are the nodes whose agents have published an inventory.
func (s *sources) clusterNodes(ctx context.Context) (out []*node.Node, err error) {
	list, bad, err := published(ctx, s.namespace)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	var nodes doctor.ClusterNodes
	if err := kubectlGet(ctx, &nodes, "get", "nodes", "-o", "json"); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	s.bad = bad
	for _, p := range present(list, nodes.Items) {
		out = append(out, p.Node)
	}
	if len(out) == 0 {
		none := fmt.Errorf("--cluster: no node has published an inventory (ConfigMaps with the label %s=node): "+
			"fabric-agent does; without it give recordings (discover --record)", node.PublishedLabel)
		return nil, errors.Join(slices.Insert(bad, 0, none)...)
	}
	return out, nil
}

// warn names the inventories that were left out.
func (s *sources) warn(out *console) {
	for _, err := range s.bad {
		out.stderr.Println("warning:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// leftOut names the inventories that were left out, which is a finding.
func (s *sources) leftOut(out *console) error {
	s.warn(out)
	if len(s.bad) > 0 {
		return errFinding
	}
	return nil
}
