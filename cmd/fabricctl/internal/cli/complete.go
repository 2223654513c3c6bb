package cli

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// complete is what a shell offers where an argument or the value of a flag is to come.
type complete = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// values are what the flags of a name take, in whatever command they are. Other flags take files, or anything.
func values(kube *cluster.Cluster) map[string]complete {
	return map[string]complete{
		"fabric":          ofCluster(kube, cluster.Fabrics),
		"namespace":       ofCluster(kube, cluster.Namespaces),
		"agent-namespace": ofCluster(kube, cluster.Namespaces),
		"gpu-class":       ofCluster(kube, cluster.Classes),
		"context":         contexts(kube),
		"allocation":      choice(devicePlugin, dra),
		"rdma-mode":       choice(device.NetnsExclusive.String(), device.NetnsShared.String()),
		"output":          formats,
	}
}

// completions makes a shell complete the values of flags.
func completions(c *cobra.Command, kube *cluster.Cluster) {
	of := values(kube)
	register := func(f *pflag.Flag) {
		_, has := c.GetFlagCompletionFunc(f.Name)
		if of[f.Name] != nil && !has && f.Value.Type() != "bool" {
			if err := c.RegisterFlagCompletionFunc(f.Name, of[f.Name]); err != nil {
				panic(err)
			}
		}
	}
	c.Flags().VisitAll(register)
	c.PersistentFlags().VisitAll(register)
	for _, sub := range c.Commands() {
		completions(sub, kube)
	}
}

// choice offers a few words.
func choice(words ...string) complete {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// listed splits the list of formats in the help of --output.
var listed = regexp.MustCompile(`, or | or |, `)

// formats offers those that the help of --output lists.
func formats(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, _, _ := strings.Cut(c.Flags().Lookup("output").Usage, ":")
	return listed.Split(list, -1), cobra.ShellCompDirectiveNoFileComp
}

// contexts offers those of the kubeconfig.
func contexts(kube *cluster.Cluster) complete {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return names(kube.Contexts()), cobra.ShellCompDirectiveNoFileComp
	}
}

// nodeNames offers the nodes of the cluster where the command is about it.
func nodeNames(a *app, from *place) complete {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if from.settle(&a.machine, a.root != "/"); len(args) > 0 || !from.cluster {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ofCluster(a.kube, cluster.FabricNodes)(c, args, begun)
	}
}

// patience is how long a completion (Tab) waits for the cluster.
var patience = 2 * time.Second

// ofCluster offers the names of the objects of a resource, pods of the namespace of --namespace, but those that are
// arguments already. Without a cluster it offers nothing.
func ofCluster(kube *cluster.Cluster, of cluster.Resource) complete {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		in := cluster.List{Of: of}
		if of == cluster.Pods {
			if in.Namespace = kube.Namespace(); labelRule.check("", in.Namespace) != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		list := slices.DeleteFunc(asked(c, kube, in, ""), func(s string) bool { return slices.Contains(args, s) })
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// podName offers one pod: NAMESPACE/NAME of all pods, or the names in --namespace.
func podName(kube *cluster.Cluster) complete {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case kube.Named() != "":
			return ofCluster(kube, cluster.Pods)(c, args, begun)
		}
		return asked(c, kube, cluster.List{Of: cluster.Pods}, "/"), cobra.ShellCompDirectiveNoFileComp
	}
}

// asked are the names of the objects that the cluster lists within the time that people wait; with a separator after
// their namespace.
func asked(c *cobra.Command, kube *cluster.Cluster, l cluster.List, separator string) (out []string) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.Most = mostNames
	err := cluster.Each(ctx, kube, l, func(o *metav1.PartialObjectMetadata, bad error) {
		switch {
		case bad != nil:
		case separator == "":
			out = append(out, o.Name)
		case domainRule.check("", o.Namespace) == nil:
			out = append(out, o.Namespace+separator+o.Name)
		}
	})
	if err != nil {
		return nil
	}
	return names(out)
}

// mostNames is how many names a shell is given.
const mostNames = 1000

// names are what may be names of objects: a shell gets nothing else.
func names(list []string) []string {
	list = slices.DeleteFunc(list, func(s string) bool {
		_, name, ok := strings.Cut(s, "/")
		if !ok {
			name = s
		}
		return len(name) > domainRule.most || !domainRule.pattern.MatchString(name)
	})
	return list[:min(len(list), mostNames)]
}
