package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/validate"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// validation is the flags of validate.
type validation struct {
	*console
	from   sources
	files  []string
	format string
}

func validateCommand(a *app) *cobra.Command {
	k := &validation{console: &a.console}
	c := &cobra.Command{
		Use:   "validate -f FILE... [RECORDING...]",
		Short: "Check Fabrics before they are applied, with or without a cluster",
		Long: `validate applies the checks of the API server, the controller and the plugin to the Fabrics in files,
without a cluster, for example in CI. Files are YAML or JSON: objects, lists of them, or values of the Helm chart;
other objects are ignored.

With recordings (discover --record) or --cluster it also shows which devices of which node each Fabric gets, which
Fabrics and devices are left over, and whether there are enough addresses. --cluster compares with existing Fabrics,
and addresses with those of Services, pods, nodes and pools. -o wide has a row per node.

Exit status 3 if something would be refused or would not work.`,
		Example: `  fabricctl validate -f fabrics.yaml
  fabricctl validate -f fabrics/ gpu-*.tar.gz
  helm template fabric deployments/helm/fabric-cni -f values.yaml | fabricctl validate -f - --cluster`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.from.machine, k.from.recordings = a.machine, args
			k.from.settle()
			if err := k.valid(); err != nil {
				return err
			}
			return k.run(cmd.Context())
		},
	}
	c.Flags().StringArrayVarP(&k.files, "filename", "f", nil,
		"file with Fabrics, or a directory of *.yaml, *.yml and *.json; - for standard input")
	k.from.flags(c, "compare with the Fabrics and nodes of the cluster", "without the cluster")
	c.Flags().StringVarP(&k.format, "output", "o", "table", "table, wide, json or yaml")
	return c
}

func (k *validation) valid() error {
	switch {
	case len(k.files) == 0:
		return fmt.Errorf("%w: give the Fabrics with -f FILE (- for standard input)", errUsage)
	case countOf(k.files, "-") > 1:
		return fmt.Errorf("%w: standard input is one file only", errUsage)
	case k.from.cluster && (len(k.from.recordings) > 0 || k.from.root != "/"):
		return errSources
	}
	return oneOf("output", &k.format, "table", "wide", "json", "yaml")
}

func (k *validation) run(ctx context.Context) error {
	in := &validate.Input{}
	for _, name := range k.files {
		names, err := filesOf(name)
		if err != nil {
			return fmt.Errorf("-f: %w", err)
		}
		for _, name := range names {
			if err := k.add(in, name); err != nil {
				return fmt.Errorf("-f %s: %w", name, err)
			}
		}
	}
	w, err := k.world(ctx, in)
	if err != nil {
		return err
	}
	r, err := validate.Check(in, *w)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	if err := k.print(r, len(w.Nodes)); err != nil {
		return err
	}
	if err := k.from.leftOut(k.console); err != nil {
		return err
	}
	if r.Failed() {
		return errFinding
	}
	return nil
}

// filesOf are the manifests in a directory, or the file itself.
func filesOf(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w: no *.yaml, *.yml or *.json in it", name, fs.ErrNotExist)
	}
	return out, nil
}

func (k *validation) add(in *validate.Input, name string) error {
	f, err := k.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return in.Read(name, f)
}

// world reads the nodes and the cluster, as far as they are asked for.
func (k *validation) world(ctx context.Context, in *validate.Input) (w *validate.World, err error) {
	w = &validate.World{}
	if !k.from.cluster {
		if len(k.from.recordings) > 0 || k.from.root != "/" {
			w.Nodes, err = k.from.nodes(ctx)
		}
		return w, err
	}
	list, err := k.from.fabricNodes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if n := list[i].Node; n != nil && list[i].Spec.Gone == nil {
			w.Nodes = append(w.Nodes, n)
		}
	}
	existing, bad, err := listFabrics(ctx, k.from.kube)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	w.Existing, k.from.bad = existing, append(k.from.bad, bad...)
	selects := func(f v1alpha1.Fabric) bool { return f.Spec.NodeSelector != nil }
	if in.Selects() || slices.ContainsFunc(existing, selects) {
		w.Labels, err = nodeLabels(ctx, k.from.kube)
		if err != nil {
			k.stderr.Println("warning: no nodeSelector is compared with the labels of Nodes:", err)
		}
	}
	w.Net = clusterUses(ctx, k.from.kube)
	for _, m := range w.Net.Missing {
		k.stderr.Println("warning: addresses are not compared with", m)
	}
	if !servesDRA(ctx, k.from.kube) {
		w.NoDRA = errors.New("this cluster does not serve resource.k8s.io/v1, which allocation: DRA needs: it " +
			"comes with Kubernetes 1.34; update the cluster, or write allocation: DevicePlugin")
	}
	return w, nil
}

// nodeLabels are the labels of the cluster's Nodes; nil with an error.
func nodeLabels(ctx context.Context, kube *cluster.Cluster) (map[string]labels.Set, error) {
	out := map[string]labels.Set{}
	err := cluster.Each(ctx, kube, cluster.List{Of: cluster.Nodes}, func(o *corev1.Node, bad error) {
		if bad == nil {
			out[o.Name] = o.Labels
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// print prints the report; nodes is how many were looked at.
func (k *validation) print(r *validate.Report, nodes int) error {
	if k.format == "json" || k.format == "yaml" {
		return k.structured(k.format, *r)
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		colour := bad
		if f.Status == doctor.Warn {
			colour = warn
		}
		where := f.Where()
		if where != "" {
			where += ": "
		}
		k.stdout.Printf("%s  %s%s (%s)\n", k.coloured(colour, string(f.Status)), where,
			strings.Join(strings.FieldsFunc(f.Message, isBreak), " "), f.By)
	}
	if nodes > 0 {
		if len(r.Findings) > 0 {
			k.stdout.Printf("\n")
		}
		k.table(r)
		k.stdout.Printf("\n")
	}
	of := 0
	for _, f := range r.Fabrics {
		if f.File != "" {
			of++
		}
	}
	k.stdout.Printf("Fabrics: %d, nodes: %d, findings: %d\n", of, nodes, len(r.Findings))
	return nil
}

// table prints which devices of which nodes each Fabric gets. Nodes with the same devices are one row, unless all are
// asked for.
func (k *validation) table(r *validate.Report) {
	t := newTable("FABRIC", "ATTACHMENT", "NODES", "DEVICES")
	for _, f := range r.Fabrics {
		if len(f.Nodes) == 0 {
			t.add(f.Name, f.Attachment, "", "")
			continue
		}
		var order []string
		nodes := map[string][]string{}
		for _, n := range f.Nodes {
			devices := strings.Join(n.Devices, " ")
			key := devices
			if k.format == "wide" {
				key = n.Node + "\x00" + devices
			}
			if nodes[key] == nil {
				order = append(order, key)
			}
			nodes[key] = append(nodes[key], n.Node)
		}
		for _, key := range order {
			devices := key[strings.LastIndexByte(key, 0)+1:]
			t.add(f.Name, f.Attachment, validate.Some(nodes[key]), devices)
		}
	}
	t.print(k.console)
}
