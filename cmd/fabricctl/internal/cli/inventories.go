package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// sources are where a command takes the nodes of a cluster from: recordings, inventories of the agents, or this
// machine.
type sources struct {
	machine
	recordings []string
	cluster    bool // the inventories that fabric-agent has published
}

// nodes reads the nodes.
func (s *sources) nodes(ctx context.Context) ([]*node.Node, error) {
	switch {
	case s.cluster && (len(s.recordings) > 0 || s.root != "/"):
		return nil, fmt.Errorf("%w: --cluster, recordings and --root exclude each other", errUsage)
	case s.cluster:
		return clusterNodes(ctx)
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

// published reads the inventories that the agents have published, in the order of the nodes' names.
func published(ctx context.Context) (out []node.Published, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Data map[string]string `json:"data"`
		} `json:"items"`
	}
	if err := kubectlGet(ctx, &list, "get", "configmaps", "-A", "-l", node.PublishedLabel, "-o", "json"); err != nil {
		return nil, err
	}
	for _, i := range list.Items {
		var p node.Published
		err := json.Unmarshal([]byte(i.Data[node.PublishedKey]), &p)
		if err != nil || p.Node == nil || p.Node.Name == "" {
			return nil, errors.Join(fmt.Errorf("ConfigMap %s: %s is not an inventory; delete it, the agent writes it "+
				"again", i.Metadata.Name, node.PublishedKey), err)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b node.Published) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out, nil
}

// present removes the inventories whose Nodes are gone: a ConfigMap outlives its Node.
func present(list []node.Published, nodes []doctor.ClusterNode) []node.Published {
	return slices.DeleteFunc(list, func(p node.Published) bool {
		return !slices.ContainsFunc(nodes, func(n doctor.ClusterNode) bool { return n.Metadata.Name == p.Node.Name })
	})
}

// clusterNodes are the nodes whose agents have published an inventory.
func clusterNodes(ctx context.Context) (out []*node.Node, err error) {
	list, err := published(ctx)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	var nodes doctor.ClusterNodes
	if err := kubectlGet(ctx, &nodes, "get", "nodes", "-o", "json"); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	for _, p := range present(list, nodes.Items) {
		out = append(out, p.Node)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--cluster: no node has published an inventory (ConfigMaps with the label %s): "+
			"fabric-agent does; without it give recordings (discover --record)", node.PublishedLabel)
	}
	return out, nil
}
