package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// sources are where a command takes the nodes of a cluster from: recordings, the FabricNodes of the cluster, or this
// machine.
type sources struct {
	machine
	place

	recordings []string
	bad        []error // objects that were left out
}

// checkPrefix refuses a prefix of resources where the cluster has its own.
func (s *sources) checkPrefix(f *pflag.FlagSet) error {
	if s.cluster && f.Changed("resource-prefix") {
		return fmt.Errorf("%w: --resource-prefix is for recordings: the resources of Fabrics are %s/NAME", errUsage,
			generate.AgentPrefix)
	}
	return nil
}

// errSources is for flags that exclude each other.
var errSources = fmt.Errorf("%w: --cluster, recordings and --root exclude each other", errUsage)

// nodes reads the nodes.
func (s *sources) nodes(ctx context.Context) ([]*node.Node, error) {
	switch {
	case s.cluster && (len(s.recordings) > 0 || s.root != "/"), len(s.recordings) > 0 && s.root != "/":
		return nil, errSources
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

// picture reads what discover -o json has printed. Older versions printed no kind.
func picture(name string, b []byte) (*node.Node, error) {
	var d struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		discovery
	}
	err := json.Unmarshal(b, &d)
	switch {
	case err == nil && (d.Kind != "" && d.Kind != "Node" || d.APIVersion != "" && d.APIVersion != encode.APIVersion):
		return nil, fmt.Errorf("recording %s: kind %.100q of apiVersion %.100q: want kind \"Node\" of %s, which "+
			"discover -o json prints", name, d.Kind, d.APIVersion, encode.APIVersion)
	case err != nil || d.Node == nil || d.Node.Name == "":
		return nil, errors.Join(fmt.Errorf("recording %s: not what discover -o json prints", name), err)
	}
	return d.Node, nil
}

// recording reads one recording, or what discover -o json has printed.
func (s *sources) recording(name string) (*node.Node, error) {
	if b, err := os.ReadFile(name); err == nil && len(b) > 0 && b[0] == '{' {
		return picture(name, b)
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

// fabricNodes reads the FabricNodes of the cluster, in the order of their names; with a name that one only. One whose
// inventory is not what an agent writes is without it, and in bad.
func fabricNodes(ctx context.Context, kube *cluster.Cluster, name string) (out []doctor.FabricNode, bad []error,
	err error,
) {
	all := cluster.List{Of: cluster.FabricNodes}
	if name != "" {
		all.Fields = "metadata.name=" + name
	}
	err = cluster.Each(ctx, kube, all, func(o *v1alpha1.FabricNode, unread error) {
		n, err := fabricNode(o, unread)
		if err != nil {
			bad = append(bad, fmt.Errorf("FabricNode %.253s: %w", o.Name, err))
		}
		out = append(out, n)
	})
	slices.SortFunc(out, func(a, b doctor.FabricNode) int { return strings.Compare(a.Name, b.Name) })
	return out, bad, err
}

// fabricNode takes the inventory out of a FabricNode. The node is the one that the object is named after, whatever the
// inventory calls itself.
func fabricNode(o *v1alpha1.FabricNode, unread error) (doctor.FabricNode, error) {
	text := o.Status.Inventory
	o.Status.Inventory, o.ManagedFields = nil, nil
	out := doctor.FabricNode{FabricNode: *o}
	if unread != nil {
		return out, fmt.Errorf("%w; left out", unread)
	}
	if text == nil {
		return out, nil
	}
	if len(text.Raw) > node.MaxCompact {
		return out, fmt.Errorf("status.inventory: it has more than %d KiB; left out", node.MaxCompact>>10)
	}
	n := &node.Node{}
	if err := json.Unmarshal(text.Raw, n); err != nil {
		return out, fmt.Errorf("status.inventory: %w; left out", err)
	}
	n.Name = o.Name
	if err := generate.Valid(n); err != nil {
		return out, fmt.Errorf("status.inventory: %w; left out", err)
	}
	out.Node = n
	return out, nil
}

// clusterNodes are the nodes of the cluster whose agents have told what they have.
func (s *sources) clusterNodes(ctx context.Context) (out []*node.Node, err error) {
	list, err := s.fabricNodes(ctx)
	for i := range list {
		if n := list[i].Node; n != nil && list[i].Spec.Gone == nil {
			out = append(out, n)
		}
	}
	if err == nil && len(out) == 0 {
		none := errors.New("--cluster: no FabricNode has an inventory: fabric-agent writes them, and kubectl get " +
			"fabricnodes shows them; without it give recordings (discover --record)")
		return nil, errors.Join(slices.Insert(s.bad, 0, none)...)
	}
	return out, err
}

func (s *sources) fabricNodes(ctx context.Context) (list []doctor.FabricNode, err error) {
	list, s.bad, err = fabricNodes(ctx, s.kube, "")
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	return list, nil
}

// listFabrics reads the Fabrics of the cluster.
func listFabrics(ctx context.Context, kube *cluster.Cluster) (out []v1alpha1.Fabric, bad []error, err error) {
	err = cluster.Each(ctx, kube, cluster.List{Of: cluster.Fabrics}, func(o *v1alpha1.Fabric, unread error) {
		if unread != nil {
			bad = append(bad, fmt.Errorf("the Fabric %.253s: %w; left out", o.Name, unread))
			return
		}
		o.ManagedFields = nil
		out = append(out, *o)
	})
	return out, bad, err
}

// fleet reads what workloads of the cluster can ask for.
func (s *sources) fleet(ctx context.Context) (*generate.Fleet, error) {
	if len(s.recordings) > 0 || s.root != "/" {
		return nil, errSources
	}
	nodes, err := s.fabricNodes(ctx)
	if err != nil {
		return nil, err
	}
	list, bad, err := listFabrics(ctx, s.kube)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	s.bad = append(s.bad, bad...)
	return &generate.Fleet{Fabrics: list, Nodes: nodes}, nil
}

// generate writes a kind for the nodes, or for the cluster. What it says begins with the command.
func (s *sources) generate(ctx context.Context, command, kind string, o generate.Options) (text string, err error) {
	if s.cluster && generate.IsWorkload(kind) {
		fleet, err := s.fleet(ctx)
		if err != nil {
			return "", err
		}
		if text, err = generate.ForCluster(kind, fleet, o); err != nil {
			return "", refused(command, err)
		}
		return text, nil
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return "", err
	}
	if s.cluster && kind == "fabric" {
		existing, bad, err := listFabrics(ctx, s.kube)
		if err != nil {
			return "", fmt.Errorf("--cluster: %w", err)
		}
		s.bad = append(s.bad, bad...)
		o.Taken = &generate.Taken{Net: clusterUses(ctx, s.kube), Fabrics: existing}
	}
	if text, err = generate.Generate(kind, nodes, o); err != nil {
		return "", refused(command, err)
	}
	return text, nil
}

// refused is an error of generate. A flag that the nodes do not allow is wrong usage.
func refused(command string, err error) error {
	if flag := (*generate.FlagError)(nil); errors.As(err, &flag) {
		return fmt.Errorf("%w: %s: %w", errUsage, command, err)
	}
	return fmt.Errorf("%s: %w", command, err)
}

// warn names the objects that were left out.
func (s *sources) warn(out *console) {
	for _, err := range s.bad {
		out.stderr.Println("warning:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// leftOut names the objects that were left out, which is a finding.
func (s *sources) leftOut(out *console) error {
	s.warn(out)
	if len(s.bad) > 0 {
		return errFinding
	}
	return nil
}
