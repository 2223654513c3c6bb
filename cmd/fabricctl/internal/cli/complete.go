package cli

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// complete is what a shell offers where an argument or the value of a flag is to come.
type complete = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// values are what the flags of a name take, in whatever command they are. Other flags take files, or anything.
var values = map[string]complete{
	"fabric":          ofCluster(false, "fabrics.fabric.dev"),
	"namespace":       ofCluster(false, "namespaces"),
	"agent-namespace": ofCluster(false, "namespaces"),
	"pods":            several(ofCluster(true, "pods")),
	"gpu-class":       ofCluster(false, "deviceclasses.resource.k8s.io"),
	"pod":             podNames,
	"allocation":      choice(devicePlugin, dra),
	"output":          formats,
}

// completions makes a shell complete the values of flags.
func completions(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		_, has := c.GetFlagCompletionFunc(f.Name)
		if of := values[f.Name]; of != nil && !has && f.Value.Type() != "bool" {
			if err := c.RegisterFlagCompletionFunc(f.Name, of); err != nil {
				panic(err)
			}
		}
	})
	for _, sub := range c.Commands() {
		completions(sub)
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

// nodeNames offers the nodes of the cluster where the command line has --cluster.
func nodeNames(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if f := c.Flags().Lookup("cluster"); len(args) > 0 || f == nil || f.Value.String() != "true" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return ofCluster(false, "fabricnodes.fabric.dev")(c, args, begun)
}

// patience is how long a completion (Tab) waits for the cluster.
const patience = 2 * time.Second

// ofCluster offers the names of the objects of a resource, in the namespace of --namespace if they are in one. Without
// a cluster it offers nothing.
func ofCluster(namespaced bool, resource string) complete {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		args := []string{"get", resource, "-o", "name"}
		if f := c.Flags().Lookup("namespace"); namespaced && f != nil && labelRule.check("", f.Value.String()) == nil {
			args = append(args, "-n", f.Value.String())
		}
		var out []string
		for _, line := range asked(c, args...) {
			_, name, _ := strings.Cut(line, "/") // pod/train-0
			out = append(out, name)
		}
		return names(out), cobra.ShellCompDirectiveNoFileComp
	}
}

// podNames offers NAMESPACE/NAME of all pods.
func podNames(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	const columns = "custom-columns=S:.metadata.namespace,N:.metadata.name"
	var out []string
	for _, line := range asked(c, "get", "pods", "-A", "--no-headers", "-o", columns) {
		if f := strings.Fields(line); len(f) == 2 && domainRule.pattern.MatchString(f[0]) {
			out = append(out, f[0]+"/"+f[1])
		}
	}
	return names(out), cobra.ShellCompDirectiveNoFileComp
}

// asked are the lines that kubectl prints within the time that people wait.
func asked(c *cobra.Command, args ...string) []string {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", append(args, "--request-timeout="+patience.String())...)
	cmd.WaitDelay = patience / 4
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
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

// several offers the next one of a list with commas.
func several(one complete) complete {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		head := ""
		if i := strings.LastIndexByte(begun, ','); i >= 0 {
			head = begun[:i+1]
		}
		var out []string
		has := strings.Split(head, ",")
		list, _ := one(c, args, begun)
		for _, name := range list {
			if !slices.Contains(has, name) {
				out = append(out, head+name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
