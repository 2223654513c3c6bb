package subnet

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// LabelKeys are the families of labels that Labels can write, with the keys of the tiers, the nearest first.
var LabelKeys = map[string]func(tier int) string{
	"fabric": func(tier int) string {
		if names := []string{"leaf", "spine", "core"}; tier < len(names) {
			return "fabric.dev/" + names[tier]
		}
		return fmt.Sprintf("fabric.dev/tier-%d", tier)
	},
	// NVIDIA topograph since 1.0: tier 0 is the switch closest to the node.
	"topograph": func(tier int) string { return fmt.Sprintf("fabric.topograph.run/tier-%d", tier) },
	// NVIDIA topograph before 1.0; it knows no more than three.
	"nvidia": func(tier int) string {
		if names := []string{"leaf", "spine", "core"}; tier < len(names) {
			return "network.topology.nvidia.com/" + names[tier]
		}
		return ""
	},
}

// LabelOptions are how labels are written.
type LabelOptions struct {
	Families []string // keys of LabelKeys; Kueue gets the first
	Kueue    string   // version of kueue.x-k8s.io; empty: no Topology
	Name     string   // of the Topology
	Format   string   // shell, or yaml
}

// labelled is a node with its labels.
type labelled struct {
	node   string
	labels [][2]string
}

var (
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	nodeName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// value is the label's value of a tier: its name if that can be one, else its GUID, which can.
func (t Tier) value() string {
	switch {
	case labelValue.MatchString(t.Name):
		return t.Name
	case labelValue.MatchString(t.ID):
		return t.ID
	}
	return fmt.Sprintf("id-%x", sha256.Sum256([]byte(t.ID)))[:3+16]
}

// labels are those of all nodes, and the nodes that get none.
func (t *Topology) labels(o LabelOptions) (out []labelled, left []string) {
	count := map[string]int{}
	for _, n := range t.Nodes {
		count[strings.ToLower(n.Node)]++
	}
	for _, n := range t.Nodes {
		name := strings.ToLower(n.Node) // kubelet does the same
		switch {
		case !nodeName.MatchString(name) || len(name) > 253:
			left = append(left, n.Node+": not the name of a node")
			continue
		case count[name] > 1:
			left = append(left, n.Node+": there are two")
			continue
		case o.Format == "yaml" && !n.Inventory: // applying it would make a node of any name
			left = append(left, n.Node+": not all of its ports are in the inventory of a node")
			continue
		}
		l := labelled{node: name}
		for _, family := range o.Families {
			for i, tier := range n.Tiers {
				if key := LabelKeys[family](i); key != "" {
					l.labels = append(l.labels, [2]string{key, tier.value()})
				}
			}
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b labelled) int { return natural(a.node, b.node) })
	return out, left
}

// Labels writes the labels of nodes by which schedulers keep the pods of a job near each other.
func (t *Topology) Labels(o LabelOptions) (string, error) {
	nodes, left := t.labels(o)
	if len(nodes) == 0 {
		if len(left) > 0 {
			return "", fmt.Errorf("no node is left: %d are left out, such as %.300s", len(left), left[0])
		}
		return "", fmt.Errorf(
			"of no port it is known which node has it: give recordings, or --cluster, or run rdma-ndd on " +
				"the nodes",
		)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %d nodes. Nodes that are cabled to the same leaves have one value of the lowest tier.\n"+
		"# A tier is called after its switch with the smallest GUID.\n", "fabricctl generate topology", len(nodes))
	for i, l := range left {
		if i == maxFindings {
			fmt.Fprintf(&b, "# and %d more\n", len(left)-i)
			break
		}
		fmt.Fprintf(&b, "# left out %s\n", quote.Comment(l))
	}
	var kueue string
	if o.Kueue != "" {
		var err error
		if kueue, err = t.kueue(o); err != nil {
			return "", err
		}
	}
	if o.Format == "yaml" {
		return b.String() + "# kubectl apply --server-side --field-manager=fabricctl-topology -f FILE\n" +
			kueue + manifests(nodes), nil
	}
	if kueue != "" {
		fmt.Fprintf(&b, "kubectl apply -f - <<'EOF'\n%sEOF\n", kueue)
	}
	for _, n := range nodes {
		fmt.Fprintf(&b, "kubectl label --overwrite node %s", quote.Shell(n.node))
		for _, l := range n.labels {
			b.WriteString(" " + l[0] + "=" + quote.Shell(l[1]))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// kueue is the Topology of Kueue: the widest level first, the node last.
func (t *Topology) kueue(o LabelOptions) (string, error) {
	type level struct {
		NodeLabel string `json:"nodeLabel"`
	}
	type object struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       struct {
			Levels []level `json:"levels"`
		} `json:"spec"`
	}
	k := object{APIVersion: "kueue.x-k8s.io/" + o.Kueue, Kind: "Topology", Metadata: map[string]string{"name": o.Name}}
	tiers := 0
	for _, n := range t.Nodes {
		tiers = max(tiers, len(n.Tiers))
	}
	for i := tiers - 1; i >= 0; i-- {
		if key := LabelKeys[o.Families[0]](i); key != "" {
			k.Spec.Levels = append(k.Spec.Levels, level{key})
		}
	}
	k.Spec.Levels = append(k.Spec.Levels, level{"kubernetes.io/hostname"})
	text, err := encode.YAML(k)
	return string(text), err
}

// manifests are the nodes with nothing but their labels, for server-side apply.
func manifests(nodes []labelled) string {
	var b bytes.Buffer
	for _, n := range nodes {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: %q\n  labels:\n", n.node)
		for _, l := range n.labels {
			fmt.Fprintf(&b, "    %s: %q\n", l[0], l[1])
		}
	}
	return b.String()
}
