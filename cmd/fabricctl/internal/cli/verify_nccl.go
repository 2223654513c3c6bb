package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// ncclJob is all_reduce_perf in an MPIJob, over the rails that the test pods had.
type ncclJob struct {
	image   string
	least   float64 // GB/s of bus bandwidth
	timeout time.Duration
}

func (n *ncclJob) flags(f *pflag.FlagSet) {
	f.StringVar(&n.image, "nccl-image", "", "--deploy: also run all_reduce_perf of this image in an MPIJob: it needs "+
		"nccl-tests built with MPI, Open MPI and sshd, and the cluster needs the MPI operator")
	f.Float64Var(&n.least, "nccl-min", 0, "--nccl-image: GB/s of bus bandwidth that are good (default: any over IB)")
	f.DurationVar(&n.timeout, "nccl-timeout", 10*time.Minute, "--nccl-image: how long the job may take")
}

func (n *ncclJob) check(deploy bool, f *pflag.FlagSet) error {
	if !deploy {
		return onlyWithDeploy(f, []string{"nccl-image", "nccl-min", "nccl-timeout"})
	}
	switch {
	case n.image == "" && (f.Changed("nccl-min") || f.Changed("nccl-timeout")):
		return fmt.Errorf("%w: --nccl-min and --nccl-timeout are for --nccl-image", errUsage)
	case n.image == "":
		return nil
	case !(n.least >= 0 && n.least <= maxRate):
		return fmt.Errorf("%w: --nccl-min %v: want GB/s, 0 to %d", errUsage, n.least, maxRate)
	case n.timeout <= 0:
		return fmt.Errorf("%w: --nccl-timeout %v: want more than 0", errUsage, n.timeout)
	}
	return imageRule.check("nccl-image", n.image)
}

const ncclName = "fabricctl-verify-nccl"

// run runs the job and judges its log. That it could not be run is not measured, which is no good result either.
func (n *ncclJob) run(ctx context.Context, pods testPods) *perftest.NCCL {
	log, err := n.log(ctx, pods)
	if err != nil {
		text := "not measured: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		return &perftest.NCCL{Verdict: perftest.Skipped, Text: text}
	}
	return perftest.ParseNCCL(log, n.least)
}

// log runs the job, and returns what its launcher has printed.
func (n *ncclJob) log(ctx context.Context, pods testPods) (string, error) {
	kube := pods.from.kube
	text, err := pods.from.generate(ctx, "verify --nccl-image", "mpijob", pods.options(ncclName, n.image))
	if err != nil {
		return "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, of := range []cluster.Resource{cluster.MPIJobs, cluster.Templates} {
			_ = kube.Delete(ctx, of, pods.namespace, ncclName) // nothing more can be done
		}
	}()
	if err := kube.Apply(ctx, text); err != nil {
		return "", fmt.Errorf("%w; an MPIJob needs the MPI operator", err)
	}
	if err := n.wait(ctx, kube, pods.namespace); err != nil {
		return "", err
	}
	return launcherLog(ctx, kube, pods.namespace)
}

// launcherLog is the log of the job's launcher: the last one, if it was started again.
func launcherLog(ctx context.Context, kube *cluster.Cluster, namespace string) (string, error) {
	var last metav1.PartialObjectMetadata
	err := cluster.Each(ctx, kube, cluster.List{
		Of: cluster.Pods, Namespace: namespace, Labels: "batch.kubernetes.io/job-name=" + ncclName + "-launcher",
	}, func(o *metav1.PartialObjectMetadata, bad error) {
		if bad == nil && !o.CreationTimestamp.Before(&last.CreationTimestamp) {
			last = *o
		}
	})
	if err != nil {
		return "", err
	}
	if last.Name == "" {
		return "", fmt.Errorf("the MPIJob %s has no launcher: kubectl describe mpijob %[1]s", ncclName)
	}
	var log bytes.Buffer
	err = kube.Log(ctx, namespace, last.Name, "", cluster.MaxObject, 0, func(r io.Reader) error {
		_, err := io.Copy(&log, io.LimitReader(r, cluster.MaxObject))
		return err
	})
	return log.String(), err
}

// wait waits until the job has ended, well or not: its log says more.
func (n *ncclJob) wait(ctx context.Context, kube *cluster.Cluster, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	for {
		var job struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		err := kube.Get(ctx, cluster.MPIJobs, namespace, ncclName, &job)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Status == "True" && (c.Type == "Succeeded" || c.Type == "Failed") {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the MPIJob has not ended after %v: fabricctl doctor job, or kubectl "+
				"describe mpijob %s", n.timeout, ncclName), context.Cause(ctx))
		case <-time.After(2 * time.Second):
		}
	}
}
