package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// scheduleRule is five fields of cron, or one of its names. The API server looks closer.
var scheduleRule = nameRule{
	regexp.MustCompile(`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|` +
		`([0-9A-Za-z*/,?-]+ ){4}[0-9A-Za-z*/,?-]+)$`),
	100, `five fields of cron such as "0 3 * * 0", or @daily`,
}

func generateVerifyCommand(a *app) *cobra.Command {
	j := generate.VerifyJob{}
	c := &cobra.Command{
		Use:   "verify --image IMAGE [--schedule CRON] -- FLAGS OF VERIFY",
		Short: "Write a Job or a CronJob that runs fabricctl verify, with an account that may do that",
		Long: `generate verify writes a ServiceAccount with the required rights, and a Job that runs fabricctl verify
--deploy --cluster --replace with the flags after --. With --schedule it is a CronJob that never runs twice at once.
The Job fails if verify exits with status 3.

The image of the Job needs fabricctl, which fabric-agent's image has; --image after -- is for the measured pods.`,
		Example: `  fabricctl generate verify -n ml --image registry.example.com/fabricctl:1 --schedule '0 3 * * 0' -- \
    --image registry.example.com/perftest:1 --workers 16 --threshold 400=360 --label-nodes`,
		Args: argsBetween(0, 100),
		RunE: func(_ *cobra.Command, args []string) error {
			err := errors.Join(labelRule.check("namespace", j.Namespace), workloadRule.check("name", j.Name))
			if j.Schedule != "" {
				err = errors.Join(err, scheduleRule.check("schedule", j.Schedule))
			}
			if j.Image == "" {
				err = errors.Join(err, fmt.Errorf("%w: --image is missing: of the Job, with fabricctl",
					errUsage))
			} else {
				err = errors.Join(err, imageRule.check("image", j.Image))
			}
			if err != nil {
				return err
			}
			if err := verifyArgs(&j, a, args); err != nil {
				return err
			}
			text, err := generate.Verify(j)
			if err != nil {
				return err
			}
			return a.stdout.Document([]byte(text))
		},
	}
	f := c.Flags()
	f.StringVarP(&j.Namespace, "namespace", "n", "default", "namespace of the Job and of the pods that it measures")
	f.StringVar(&j.Name, "name", "fabric-verify", "name of the Job or CronJob")
	f.StringVar(&j.Image, "image", "", "image of the Job: it needs fabricctl")
	f.StringVar(&j.Schedule, "schedule", "", "a CronJob with this schedule instead of a Job")
	return c
}

// verifyArgs reads the flags of verify as verify does, so that what is wrong is said now and not by a Job at night.
func verifyArgs(j *generate.VerifyJob, a *app, args []string) error {
	all := append([]string{"--deploy", "--cluster", "--replace", "--namespace", j.Namespace}, args...)
	v := &verification{console: &a.console, pods: testPods{version: a.version}}
	c := &cobra.Command{Use: "verify"}
	v.flags(c)
	c.Flags().StringVarP(&v.namespace, "namespace", "n", "", "") // in verify it is the program's
	if err := c.ParseFlags(all); err != nil {
		return fmt.Errorf("%w: after --: %w", errUsage, err)
	}
	if err := v.check(c.Flags().Args(), c.Flags()); err != nil {
		return fmt.Errorf("after --: %w", err)
	}
	for _, name := range []string{"netns", "output-file", "baseline", "local"} {
		if c.Flags().Changed(name) {
			return fmt.Errorf("%w: after --: --%s is not for a Job: it has no files, and makes its own pods", errUsage,
				name)
		}
	}
	if v.namespace != j.Namespace || len(c.Flags().Args()) > 0 {
		return fmt.Errorf("%w: after --: the namespace is that of the Job, and the rails are those of the cluster's "+
			"Fabrics: no -n, and no recordings", errUsage)
	}
	j.Args, j.Labels, j.NCCL = slices.Insert(all, 0, "verify"), v.labels, v.nccl.image != ""
	return nil
}
