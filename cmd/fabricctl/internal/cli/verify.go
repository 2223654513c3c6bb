package cli

import (
	"encoding/xml"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

func (a *app) verify() *cobra.Command {
	var pods, spaces, interfaces []string
	var format, namespace string
	d := deployment{}
	c := &cobra.Command{
		Use:   "verify {--pods A,B,... | --deploy [RECORDING...] | --netns PATH,PATH,...}",
		Short: "Measure between pods, rail by rail, and judge the result against the ports' rate",
		Long: `verify measures every pair of the pods, rail by rail, in rounds in which no pod is in two pairs: reachability (ping), whether the
GIDs can reach each other, ib_write_bw and ib_write_lat. 90 per cent of the port's rate are good. The pods need perftest, ip,
ping and sh; fabricctl generate perftest-pods writes such pods, and kubectl has to be in PATH. --deploy makes two of them, or
--workers, measures, and deletes them. With --netns it measures between network namespaces of this machine, where only the IP part can be measured.

Exit status 3 if something is slow or has failed.`,
		Example: `  fabricctl generate perftest-pods | kubectl apply -f -
  fabricctl verify --pods rdma-test-a,rdma-test-b
  fabricctl verify --deploy --image registry.example.com/perftest:1 gpu-1.tar.gz
  fabricctl verify --pods p1,p2,p3,p4 -o html >report.html`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", format, "table", "wide", "json", "yaml", "junit", "html"); err != nil {
				return err
			}
			if len(args) > 0 && !d.wanted {
				return fmt.Errorf("%w: unexpected argument %q: recordings are for --deploy", errUsage, args[0])
			}
			if d.wanted {
				if d.count < 2 {
					return fmt.Errorf("%w: --workers %d: want 2 at least", errUsage, d.count)
				}
				if d.cluster && !cmd.Flags().Changed("resource-prefix") {
					d.prefix = generate.AgentPrefix
				}
				d.namespace = namespace
				defer d.remove()
				if err := a.deploy(cmd.Context(), &d, args); err != nil {
					return err
				}
				pods = d.pods()
			}
			ends, err := ends(namespace, pods, spaces)
			if err != nil {
				return err
			}
			defer func() {
				for _, e := range ends {
					e.Close()
				}
			}()
			list, err := measure.All(
				cmd.Context(),
				ends,
				measure.Options{Interfaces: interfaces, Progress: a.progress()},
			)
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			if err := a.results(list, format); err != nil {
				return err
			}
			if w := perftest.Worst(list); w == perftest.Slow || w == perftest.Failed {
				return errFinding
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringSliceVar(&pods, "pods", nil, "pods to measure between")
	f.BoolVar(&d.wanted, "deploy", false, "make pods for it, each on a node of its own, and delete them afterwards")
	f.IntVar(&d.count, "workers", 2, "--deploy: so many pods: as many as there are nodes measures every pair of nodes")
	f.BoolVar(&d.sameNode, "same-node", false, "--deploy: the pods may be on one node")
	f.DurationVar(&d.timeout, "timeout", 3*time.Minute, "--deploy: how long the pods may take to be Ready")
	f.BoolVar(
		&d.cluster,
		"cluster",
		false,
		"--deploy: rails of the nodes of which fabric-agent has published the inventory",
	)
	f.StringVar(
		&d.prefix,
		"resource-prefix",
		"nvidia.com",
		"prefix of the resources of these pods (default with --cluster: "+generate.AgentPrefix+")",
	)
	f.StringVar(&d.image, "image", "example.com/perftest:latest", "image of these pods")
	f.StringVar(&d.fabric, "fabric", "", "fabric of these pods (default: the one with the most bandwidth)")
	f.StringSliceVar(&spaces, "netns", nil, "network namespaces of this machine to measure between")
	c.MarkFlagsMutuallyExclusive("pods", "deploy", "netns")
	f.StringVarP(&namespace, "namespace", "n", "default", "namespace of the pods")
	f.StringSliceVar(&interfaces, "interfaces", nil, "the rails (default: net1, net2, ... and InfiniBand interfaces)")
	f.StringVarP(&format, "output", "o", "table", "table, wide, json, yaml, junit or html")
	return c
}

func ends(namespace string, pods, spaces []string) (out []*measure.End, err error) {
	if len(pods)+len(spaces) < 2 {
		return nil, fmt.Errorf("%w: name two ends at the least, with --pods A,B or --netns A,B", errUsage)
	}
	for _, p := range pods {
		out = append(out, measure.Pod(namespace, p))
	}
	for _, s := range spaces {
		e, err := measure.Netns(s)
		if err != nil {
			return nil, fmt.Errorf("--netns: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// progress draws a bar on a terminal.
func (a *app) progress() func(done, all int) {
	st, err := os.Stderr.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done, all int) {
		const width = 40
		n := width * done / all
		fmt.Fprintf(a.stderr, "\r[%s%s] %d/%d", strings.Repeat("#", n), strings.Repeat(".", width-n), done, all)
		if done == all {
			fmt.Fprintln(a.stderr)
		}
	}
}

func (a *app) results(list []perftest.Result, format string) error {
	switch format {
	case "json", "yaml":
		return a.structured(format, list)
	case "junit":
		return a.junit(list)
	case "html":
		return draw.Report(a.stdout, list)
	}
	t := newTable("ROUND", "A", "B", "RAIL", "HCA", "PING", "VERDICT", "RESULT")
	colour := map[perftest.Verdict]string{perftest.Good: good, perftest.Slow: warn, perftest.Failed: bad}
	if format == "wide" {
		t.header = append(t.header, "RTT-MS", "GID", "GBPS", "OF", "LATENCY-US")
	}
	for _, r := range list {
		row := []any{r.Round, r.A, r.B, r.Rail, r.HCA, r.Ping, cell{string(r.Verdict), colour[r.Verdict]}, r.Text}
		if format == "wide" {
			var gbps, latency float64
			if r.Bandwidth != nil {
				gbps = r.Bandwidth.AverageGb
			}
			if r.Latency != nil {
				latency = r.Latency.Typical
			}
			row = append(row, figure(r.RTT), r.GID, figure(gbps), figure(r.RateGb), figure(latency))
		}
		t.add(row...)
	}
	t.print(a.stdout, a.terminal)
	return nil
}

// figure is a number as people write it, and nothing for none.
func figure(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// junit is the report that CI systems read.
func (a *app) junit(list []perftest.Result) error {
	type failure struct {
		Message string `xml:"message,attr"`
	}
	type testcase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Failure *failure  `xml:"failure,omitempty"`
		Skipped *struct{} `xml:"skipped,omitempty"`
		Out     string    `xml:"system-out,omitempty"`
	}
	suite := struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testcase `xml:"testcase"`
	}{Name: "fabricctl verify", Tests: len(list)}
	for _, r := range list {
		c := testcase{Class: r.A + "-" + r.B, Name: r.Rail, Out: r.Text}
		switch r.Verdict {
		case perftest.Slow, perftest.Failed:
			c.Failure = &failure{r.Text}
			suite.Failures++
		case perftest.Skipped:
			c.Skipped = &struct{}{}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	b, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s%s\n", xml.Header, b)
	return err
}
