package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// The least and the most that --timeout may be, and the least time between two looks at the cluster.
const (
	shortestTimeout = time.Second
	longestTimeout  = 24 * time.Hour
	statusInterval  = 2 * time.Second
	share           = 4 // times as long as a look takes is between two, as those of a large cluster cost it something
)

// apiServer is what --wait waits for while no look succeeds.
const apiServer = "the API server"

// statusRun is the work of status.
type statusRun struct {
	*app
	format    string
	namespace string
	wait      bool
	strict    bool
	timeout   time.Duration
}

func statusCommand(a *app) *cobra.Command {
	s := &statusRun{app: a}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show in six lines whether pods of the cluster can get their rails, and wait until they can",
		Long: `status prints a line each for fabric-agent, the controller, Multus, the nodes, the Fabrics and the pods
that have devices, and the command to run next. A cluster without a Fabric or FabricNode is not ready. Exit status 3
if a line is FAIL: pods do not get all devices that they can request. WARN is a warning of doctor cluster, such as a
Down port.

--wait waits until no line is FAIL, and prints on standard error what it waits for.`,
		Example: `  fabricctl status --wait --timeout 10m
  fabricctl status -o json`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			return s.run(cmd.Context())
		},
	}
	c.Flags().BoolVar(&s.wait, "wait", false, "wait until all is ready")
	c.Flags().DurationVar(&s.timeout, "timeout", 5*time.Minute, "with --wait: for how long at most")
	c.Flags().BoolVar(&s.strict, "strict", false, "a WARN is not ready, too")
	c.Flags().StringVar(&s.namespace, "agent-namespace", agentNamespace,
		"namespace of fabric-agent and its controller, the only one in which they count")
	c.Flags().StringVarP(&s.format, "output", "o", "table", "table, json or yaml")
	return c
}

func (s *statusRun) check(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("timeout") && !s.wait:
		return fmt.Errorf("%w: --timeout is for --wait", errUsage)
	case s.timeout < shortestTimeout || s.timeout > longestTimeout:
		return fmt.Errorf("%w: --timeout %s: want a time from %s to %s, as in 5m", errUsage, s.timeout, shortestTimeout,
			longestTimeout)
	}
	if err := oneOf("output", &s.format, "table", "json", "yaml"); err != nil {
		return err
	}
	return labelRule.check("agent-namespace", s.namespace)
}

// run looks once, or until all is ready.
func (s *statusRun) run(ctx context.Context) error {
	if !s.wait {
		now, err := s.look(ctx)
		if err != nil {
			return err
		}
		return s.print(now)
	}
	now, err := s.await(ctx)
	if err != nil {
		return err
	}
	err = s.print(now)
	if list := s.unready(now); len(list) > 0 {
		s.stderr.Printf("after %s still waiting for: %s\n", s.timeout, strings.Join(list, ", "))
	}
	return err
}

// await looks until all is ready or the time is over, and returns the last look. The first look must succeed: a
// kubeconfig that is wrong stays wrong. Later an API server may restart.
func (s *statusRun) await(ctx context.Context) (*doctor.ClusterStatus, error) {
	limit, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	begun := time.Now()
	last, err := s.look(limit)
	if err != nil {
		return nil, err
	}
	pause := max(statusInterval, share*time.Since(begun))
	said := map[string]string{}
	for {
		if s.progress(last, said); len(s.unready(last)) == 0 {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.Done():
			return last, nil
		case <-time.After(pause):
		}
		now, err := s.look(limit)
		switch {
		case err == nil:
			last = now
		case limit.Err() == nil:
			s.say(said, apiServer, err.Error())
		}
	}
}

// unready are the parts that --wait waits for.
func (s *statusRun) unready(now *doctor.ClusterStatus) (out []string) {
	for _, p := range now.Parts {
		if p.Status == doctor.Fail || s.strict && p.Status == doctor.Warn {
			out = append(out, p.Name)
		}
	}
	return out
}

// progress prints what has changed of what --wait waits for.
func (s *statusRun) progress(now *doctor.ClusterStatus, said map[string]string) {
	delete(said, apiServer)
	waits := s.unready(now)
	for _, p := range now.Parts {
		switch before := said[p.Name]; {
		case slices.Contains(waits, p.Name):
			s.say(said, p.Name, p.Text)
		case before != "":
			delete(said, p.Name)
			s.stderr.Printf("ready: %s\n", p.Name)
		}
	}
}

// say prints what is waited for, once.
func (s *statusRun) say(said map[string]string, what, text string) {
	if said[what] != text {
		said[what] = text
		s.stderr.Printf("waiting for %s: %s\n", what, text)
	}
}

// print prints the status. What is not ready makes the exit status 3.
func (s *statusRun) print(now *doctor.ClusterStatus) error {
	if s.format == "table" {
		for _, p := range now.Parts {
			s.stdout.Printf("%-10s  %s  %s\n", p.Name,
				s.coloured(findingColours[p.Status], fmt.Sprintf("%-4s", p.Status)), p.Text)
		}
		if now.Next != "" {
			s.stdout.Printf("next: %s\n", now.Next)
		}
	} else if err := s.structured(s.format, *now); err != nil {
		return err
	}
	if len(s.unready(now)) > 0 {
		return errFinding
	}
	return nil
}

// look asks the cluster for what status judges.
func (s *statusRun) look(ctx context.Context) (*doctor.ClusterStatus, error) {
	c := &collector{kube: s.kube}
	unknown := map[string]string{}
	note := func(ok bool, parts ...string) {
		for _, p := range parts {
			if !ok && len(c.Missing) > 0 {
				unknown[p] = c.Missing[len(c.Missing)-1]
			}
		}
	}
	note(objects(ctx, c, cluster.List{Of: cluster.DaemonSets}, func(o *doctor.DaemonSet) {
		if o.IsAgent(s.namespace) || o.IsMultus() {
			c.DaemonSets = append(c.DaemonSets, *o)
		}
	}), doctor.PartAgent, doctor.PartMultus)
	c.collectDaemonPods(ctx) // to say where and why they are not ready
	one := cluster.List{Of: cluster.Networks, Most: 1}
	err := cluster.Each(ctx, s.kube, one, func(*metav1.PartialObjectMetadata, error) {})
	if !errors.Is(err, cluster.ErrNotServed) { // what may not be listed is served
		c.CRDs = append(c.CRDs, doctor.NetworksCRD)
	}
	nodes, _, err := fabricNodes(ctx, s.kube, "") // doctor cluster names inventories that can't be read
	note(c.missing(err) || errors.Is(err, cluster.ErrNotServed), doctor.PartNodes, doctor.PartPods)
	c.FabricNodes = nodes
	fabrics, bad, err := listFabrics(ctx, s.kube)
	note(c.missing(errors.Join(slices.Insert(bad, 0, err)...)) || errors.Is(err, cluster.ErrNotServed),
		doctor.PartFabrics)
	c.Fabrics = fabrics
	before := len(c.Missing)
	c.collectController(ctx, s.namespace, time.Now())
	if c.Controller == nil && len(c.Missing) > before {
		unknown[doctor.PartController] = c.Missing[before]
	}
	if c.refused == c.asked {
		return nil, fmt.Errorf("status: no cluster, or no rights: %s", c.Missing[0])
	}
	return doctor.StatusOf(&c.Cluster, s.namespace, unknown), nil
}
