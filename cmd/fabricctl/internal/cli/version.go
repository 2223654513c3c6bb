package cli

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// versions is what version prints.
type versions struct {
	Version string         `json:"version"`          // of fabricctl
	Go      string         `json:"go"`               // that has built it
	Commit  string         `json:"commit,omitempty"` // that it was built from, where that is known
	Agents  []agentVersion `json:"agents,omitempty"` // of the cluster, if it was asked
}

// agentVersion is a version of fabric-agent in the cluster.
type agentVersion struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes"` // that have it
}

func versionCommand(a *app) *cobra.Command {
	from := sources{}
	var format string
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program, and with --cluster those of the agents",
		Long: `version shows the version of fabricctl, and with --cluster how many nodes run which version of
fabric-agent. doctor cluster names the nodes.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", &format, "table", "json", "yaml"); err != nil {
				return err
			}
			from.machine = a.machine
			from.settle()
			v := a.versions()
			var err error
			if from.cluster { // without a cluster there is the version of this program all the same
				v.Agents, err = from.agentVersions(cmd.Context())
			}
			if format == "table" {
				v.print(&a.console)
			} else if perr := a.structured(format, v); perr != nil {
				return perr
			}
			if err != nil {
				return err
			}
			return from.leftOut(&a.console)
		},
	}
	from.flags(c, "also the versions of the agents", "this program only")
	c.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return c
}

// versions is this program.
func (a *app) versions() versions {
	v := versions{Version: a.version, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}

// agentVersions are those of the FabricNodes, by version.
func (s *sources) agentVersions(ctx context.Context) (out []agentVersion, err error) {
	nodes, err := s.fabricNodes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		version := nodes[i].Status.Agent
		if version == "" || nodes[i].Spec.Gone != nil {
			continue
		}
		at := slices.IndexFunc(out, func(a agentVersion) bool { return a.Version == version })
		if at < 0 {
			out, at = append(out, agentVersion{Version: version}), len(out)
		}
		out[at].Nodes++
	}
	slices.SortFunc(out, func(a, b agentVersion) int { return strings.Compare(a.Version, b.Version) })
	return out, nil
}

func (v *versions) print(out *console) {
	t := newTable("PROGRAM", "VERSION", "NODES", "GO", "COMMIT")
	t.add("fabricctl", v.Version, "", v.Go, v.Commit)
	for _, a := range v.Agents {
		t.add("fabric-agent", a.Version, a.Nodes, "", "")
	}
	t.print(out)
}
