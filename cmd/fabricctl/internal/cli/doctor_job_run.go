package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
)

// Bounds of how a job is asked.
const (
	atOnce      = 16               // pods at a time
	maxTailed   = 200_000          // lines from the end of a log
	execTimeout = 20 * time.Second // beside the interval
	logTimeout  = time.Minute
	mostListed  = 20_000 // pods of a namespace
)

// watch looks at a job that runs.
func (j *jobCheck) watch(ctx context.Context, args []string) (*jobReport, error) {
	r := &jobReport{Job: "pods with the labels " + j.selector}
	kind, name := "", ""
	if len(args) > 0 {
		name = args[0]
		if k, n, ok := strings.Cut(name, "/"); ok {
			kind, name = k, n
		}
		r.Job = strings.TrimSpace(kind+" "+j.namespace) + "/" + name
		if err := nodeRule.check("NAME", name); err != nil { // a name of Kubernetes
			return nil, fmt.Errorf("%w: %q: want [KIND/]NAME", errUsage, args[0])
		}
	}
	list, err := j.pods(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no such pods in namespace %s: kubectl -n %s get pods --show-labels; -n for "+
			"another namespace, -l for other labels", r.Job, j.namespace, j.namespace)
	}
	if len(list) > j.most {
		r.Findings = append(r.Findings, doctor.Unasked(fmt.Sprintf("the job has %d pods, and %d were looked at "+
			"(--pods)",
			len(list), j.most)))
		list = list[:j.most]
	}
	missing := j.look(ctx, list)
	r.Findings = append(r.Findings, missing...)
	for i := range list {
		r.Workers = append(r.Workers, list[i].Row())
	}
	r.Findings = append(r.Findings, doctor.CheckWorkers(list)...)
	return r, nil
}

// pods are the pods of the job, launchers first, so that they are among those that are looked at.
func (j *jobCheck) pods(ctx context.Context, kind, name string) (list []doctor.Worker, err error) {
	listed := 0
	in := cluster.List{Of: cluster.Pods, Namespace: j.namespace, Labels: j.selector}
	err = cluster.Each(ctx, j.from.kube, in, func(m *doctor.Manifest, bad error) {
		if bad != nil || name != "" && !m.PartOf(kind, name) {
			return
		}
		if listed++; listed > mostListed {
			return
		}
		m.Kind, m.Metadata.Namespace = "Pod", j.namespace
		w := doctor.Worker{Pod: m, Role: m.Role(), Launcher: m.Launches()}
		if w.Launcher {
			list = append([]doctor.Worker{w}, list...)
		} else {
			list = append(list, w)
		}
	})
	return list, err
}

// look reads logs and counters, some pods at a time. It returns what could not be asked.
func (j *jobCheck) look(ctx context.Context, list []doctor.Worker) (missing []doctor.Finding) {
	logs := make([][]*doctor.RankLog, len(list))
	faults := make([]string, len(list))
	var wait sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range list {
		if list[i].Pod.Status.Phase == "Pending" {
			continue
		}
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			var err error
			if logs[i], err = j.logs(ctx, list[i].Pod); err != nil {
				faults[i] = err.Error()
			}
		})
	}
	wait.Wait()
	seen := j.counters(ctx, list, faults)
	for i := range list {
		list[i].Seen = seen[i]
	}
	doctor.Logs(list, logs)
	return grouped(list, faults)
}

// counters looks into the pods, as many as possible at the same time: their traffic is compared.
func (j *jobCheck) counters(ctx context.Context, list []doctor.Worker, faults []string) []*doctor.Seen {
	seen := make([]*doctor.Seen, len(list))
	if j.noExec {
		return seen
	}
	var wait sync.WaitGroup
	turn := make(chan struct{}, atOnce*2)
	for i := range list {
		if list[i].Launcher || list[i].Pod.Status.Phase != "Running" {
			continue
		}
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, j.interval+execTimeout)
			defer cancel()
			seconds := strconv.FormatFloat(j.interval.Seconds(), 'f', -1, 64)
			m := list[i].Pod
			out, said := measure.NewOutput(doctor.MaxSeen), measure.NewOutput(maxWords)
			err := j.from.kube.Exec(ctx, m.Metadata.Namespace, m.Metadata.Name, m.Main(),
				[]string{"sh", "-c", doctor.Look, "look", seconds}, out, said)
			if len(out.Bytes()) > 0 { // also of a container without sleep
				seen[i] = doctor.ReadLook(out.Bytes())
			} else if err != nil {
				faults[i] = lookFault(err, said.String())
			}
		})
	}
	wait.Wait()
	return seen
}

// maxWords bounds what a container says on standard error.
const maxWords = 64 << 10

// lookFault is why nothing can be run in a pod.
func lookFault(err error, said string) string {
	text := strings.TrimSpace(err.Error() + " " + said)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no counters: exec has not ended in time"
	case strings.Contains(text, "executable file not found"), strings.Contains(text, "no such file or directory"):
		return "no counters: the image has no shell"
	}
	return "no counters: " + text
}

// logs reads the beginning of a log, where NCCL starts, and its end.
func (j *jobCheck) logs(ctx context.Context, m *doctor.Manifest) ([]*doctor.RankLog, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	half := int64(j.tail) << 20 / 2
	var out []*doctor.RankLog
	whole := false
	read := func(r io.Reader) error {
		c := &io.LimitedReader{R: r, N: half}
		list, err := doctor.ReadLog(c)
		out, whole = append(out, list...), c.N > 0
		return err
	}
	log := func(tail int) error {
		return j.from.kube.Log(ctx, m.Metadata.Namespace, m.Metadata.Name, m.Main(), half, tail, read)
	}
	if err := log(0); err != nil || whole {
		return out, err
	}
	return out, log(maxTailed)
}

// grouped are the faults, each once, with the pods that have it.
func grouped(list []doctor.Worker, faults []string) (out []doctor.Finding) {
	const most = 4
	pods := map[string][]string{}
	var order []string
	for i, f := range faults {
		if f == "" {
			continue
		}
		f = strings.ReplaceAll(f, list[i].Pod.Metadata.Name, "POD")
		if pods[f] == nil {
			order = append(order, f)
		}
		pods[f] = append(pods[f], list[i].Pod.Metadata.Name)
	}
	for _, f := range order {
		names := strings.Join(pods[f][:min(most, len(pods[f]))], ", ")
		if n := len(pods[f]) - most; n > 0 {
			names += fmt.Sprintf(", %d more", n)
		}
		out = append(out, doctor.Unasked(names+": "+f))
	}
	return out[:min(len(out), 50)]
}
