package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// jobCheck are the flags of doctor job.
type jobCheck struct {
	findings
	from      sources
	files     []string
	namespace string
	nads      string

	selector string
	most     int           // pods
	tail     int           // MiB of each log
	interval time.Duration // between two looks at the counters
	noExec   bool
}

// jobReport is what doctor job prints: of manifests what the pods ask for, of running pods what they do.
type jobReport struct {
	Job      string             `json:"job"`
	Roles    []doctor.RoleRow   `json:"roles,omitempty"`
	Workers  []doctor.WorkerRow `json:"workers,omitempty"`
	Findings []doctor.Finding   `json:"findings"`
}

func doctorJobCommand(a *app) *cobra.Command {
	j := &jobCheck{findings: findings{console: &a.console}}
	c := &cobra.Command{
		Use:   "job {-f FILE [RECORDING...] | [KIND/]NAME | -l SELECTOR}",
		Short: "Check a training job: its manifests before it is applied, its pods, logs and counters while it runs",
		Long: `With -f, doctor job checks the pods of each workload before it is applied: networks and resources,
rails and GPUs, IPC_LOCK, /dev/shm, memory limits, variables, launcher and workers, and with --cluster whether the
nodes can fit them. Recordings or --cluster provide the nodes' devices. With a name or selector it checks a running
job: NCCL's logs show which worker uses TCP and which rails it uses, two samples of the port counters which rail has
no traffic. It changes nothing. Exit status 3 if a check fails.`,
		Example: `  fabricctl doctor job -f train.yaml
  fabricctl doctor job -f train.yaml --nads nads.json gpu-1.tar.gz gpu-2.tar.gz
  helm template ./chart | fabricctl doctor job -f - --cluster
  fabricctl doctor job pytorchjob/train -n ml
  fabricctl doctor job -l app=vllm -n ml --interval 10s -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			j.from.machine = a.machine
			if len(j.files) > 0 {
				j.from.recordings = args
				j.from.place.settle(&a.machine, len(args) > 0 || a.root != "/" || j.nads != "")
			}
			j.namespace = a.kube.Namespace()
			if err := j.valid(args); err != nil {
				return err
			}
			var r *jobReport
			var err error
			if len(j.files) > 0 {
				r, err = j.plan(cmd.Context())
			} else {
				r, err = j.watch(cmd.Context(), args)
			}
			if err != nil {
				return fmt.Errorf("doctor job: %w", err)
			}
			return j.report(r)
		},
	}
	j.flags(c)
	f := c.Flags()
	f.StringSliceVarP(&j.files, "filename", "f", nil, "files with manifests, YAML or JSON; - for standard input")
	f.StringVar(&j.nads, "nads", "", "-f: a file with the networks, as kubectl get net-attach-def -A -o json prints "+
		"them")
	j.from.flags(c, "-f: networks, claims, nodes and their room from the cluster", "-f: without the cluster")
	f.StringVarP(&j.selector, "selector", "l", "", "labels of the pods of a job that runs")
	f.IntVar(&j.most, "pods", 64, "look into so many pods at the most")
	f.IntVar(&j.tail, "tail", 16, "MiB to read of each log: the first half from its beginning, the rest from its end")
	f.DurationVar(&j.interval, "interval", 3*time.Second, "time between two looks at the port counters")
	f.BoolVar(&j.noExec, "no-exec", false, "do not run anything in the pods: no counters, no memory")
	return c
}

// Bounds of the flags.
const (
	mostPods     = 4096
	mostTail     = 1024 // MiB
	mostInterval = time.Minute
)

// valid checks the flags and arguments.
func (j *jobCheck) valid(args []string) error {
	switch {
	case len(j.files) > 0 && j.selector != "":
		return fmt.Errorf("%w: -f and -l exclude each other", errUsage)
	case len(j.files) == 0 && j.selector == "" && len(args) == 0:
		return fmt.Errorf("%w: want -f FILE, the name of a job or -l SELECTOR", errUsage)
	case len(j.files) == 0 && len(args) > 1, j.selector != "" && len(args) > 0:
		return fmt.Errorf("%w: unexpected argument %q: one job at a time", errUsage, args[len(args)-1])
	case len(j.files) == 0 && (j.from.local || j.nads != ""):
		return fmt.Errorf("%w: --local and --nads are for -f: a job that runs is in the cluster", errUsage)
	case j.most < 1 || j.most > mostPods:
		return fmt.Errorf("%w: --pods %d: want 1 to %d", errUsage, j.most, mostPods)
	case j.tail < 1 || j.tail > mostTail:
		return fmt.Errorf("%w: --tail %d: want 1 to %d MiB", errUsage, j.tail, mostTail)
	case j.interval < 100*time.Millisecond || j.interval > mostInterval:
		return fmt.Errorf("%w: --interval %s: want 100ms to %s", errUsage, j.interval, mostInterval)
	}
	if err := labelRule.check("namespace", j.namespace); err != nil {
		return err
	}
	return j.check()
}

// plan checks manifests.
func (j *jobCheck) plan(ctx context.Context) (*jobReport, error) {
	p := &doctor.Plan{AllNADs: j.nads != "" || j.from.cluster}
	if n := countOf(append(slices.Clone(j.files), j.nads), "-"); n > 1 {
		return nil, fmt.Errorf("%w: standard input is one file only", errUsage)
	}
	for _, name := range j.files {
		objects, err := j.manifests(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, o := range objects {
			if err := p.Add(o, j.namespace); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if j.nads != "" {
		if p.NADs == nil {
			p.NADs = &doctor.NADs{}
		}
		m := manifestRef{console: j.console}
		err := m.decode("nads", j.nads, "kubectl get net-attach-def -A -o json", func(list []byte) error {
			var more doctor.NADs
			err := json.Unmarshal(list, &more)
			p.NADs.Items = append(p.NADs.Items, more.Items...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	site, missing, err := j.site(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := p.Ready(j.namespace); err != nil {
		return nil, fmt.Errorf("%s: %w", j.files[0], err)
	}
	r := &jobReport{Job: p.String()}
	r.Roles, r.Findings = doctor.CheckPlan(p, site)
	r.Findings = append(missing, r.Findings...)
	return r, nil
}

func countOf(list []string, s string) (n int) {
	for _, l := range list {
		if l == s {
			n++
		}
	}
	return n
}

// report prints the report.
func (j *jobCheck) report(r *jobReport) error {
	doctor.Sort(r.Findings)
	if j.format == "json" || j.format == "yaml" {
		if err := j.structured(j.format, *r); err != nil {
			return err
		}
		return j.verdict(r.Findings)
	}
	if j.format == "text" {
		j.stdout.Printf("%s\n\n", r.Job)
		j.roles(r.Roles)
		j.workers(r.Workers)
		j.stdout.Printf("\n")
	}
	return j.print(r.Findings)
}
