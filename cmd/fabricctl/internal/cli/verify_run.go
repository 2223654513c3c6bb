package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// run makes the pods if it has to, measures, and judges.
func (v *verification) run(ctx context.Context, f *pflag.FlagSet) (*perftest.Report, error) {
	last, err := v.lastRun() // before anything takes an hour
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	list, notes, err := v.measure(ctx, f)
	if err != nil {
		return nil, err
	}
	report := perftest.NewReport(list, notes)
	if v.nccl.image != "" {
		report.NCCL = v.nccl.run(ctx, v.pods)
	} else {
		report.NotTested = append(report.NotTested, "NCCL all_reduce: not tested: no --nccl-image")
	}
	if last != nil {
		compared, missing := perftest.Compare(list, last.Results, &v.limits.Limits)
		if compared == 0 {
			report.Findings = append(report.Findings, fmt.Sprintf("--baseline %s has none of these paths: the "+
				"trend is not known", v.baseline))
		}
		for _, path := range missing {
			report.NotTested = append(report.NotTested, "in the last run, and not now: "+path)
		}
	}
	report.Sum()
	report.Time = time.Now().UTC().Format(time.RFC3339)
	report.Seconds = math.Round(time.Since(begun).Seconds()*10) / 10
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	if v.labels {
		if err := v.label(ctx, report); err != nil {
			return nil, err
		}
	}
	return report, v.saveTo(report)
}

// measure measures between the ends. Pods that it has made are gone afterwards.
func (v *verification) measure(ctx context.Context, f *pflag.FlagSet) (list []perftest.Result, notes []string,
	err error,
) {
	if v.deploy {
		if err := v.pods.from.checkPrefix(f); err != nil {
			return nil, nil, err
		}
		defer v.pods.remove()
		if err := v.pods.deploy(ctx); err != nil {
			return nil, nil, err
		}
		v.pods.from.warn(v.console)
		v.names = v.pods.names()
	}
	ends, err := v.ends(ctx)
	defer func() {
		for _, e := range ends {
			e.Close()
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	v.options.Progress, v.options.Estimate = v.progress(), v.estimate
	list, notes, err = measure.All(ctx, ends, v.options)
	if err != nil {
		return nil, nil, fmt.Errorf("verify: %w", err)
	}
	if v.labels {
		v.sameNodes(ctx, ends)
	}
	return list, notes, nil
}

// maxReport bounds the report of an earlier run, in bytes: one of 64 nodes with eight rails has 12 MiB.
const maxReport = 256 << 20

// lastRun reads the report to compare with; nil: none is wanted.
func (v *verification) lastRun() (*perftest.Report, error) {
	if v.baseline == "" {
		return nil, nil
	}
	f, err := os.Open(v.baseline)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	defer f.Close()
	var r struct {
		APIVersion, Kind string
		perftest.Report
	}
	if err := json.NewDecoder(io.LimitReader(f, maxReport)).Decode(&r); err != nil {
		return nil, fmt.Errorf("--baseline %s: %w", v.baseline, err)
	}
	if r.APIVersion != encode.APIVersion || r.Kind != "VerifyReport" || len(r.Results) == 0 {
		return nil, fmt.Errorf("--baseline %s: %q %q with %d results; want what verify --output-file or verify "+
			"-o json writes", v.baseline, r.APIVersion, r.Kind, len(r.Results))
	}
	return &r.Report, nil
}

// saveTo writes the report for a later run. The file is there as a whole or not at all.
func (v *verification) saveTo(report *perftest.Report) error {
	if v.save == "" {
		return nil
	}
	b, err := encode.Object("json", "VerifyReport", *report)
	if err != nil {
		return err
	}
	part := v.save + ".part"
	if err := errors.Join(os.WriteFile(part, b, 0o600), os.Rename(part, v.save)); err != nil {
		return fmt.Errorf("--output-file: %w", err)
	}
	return nil
}

// estimate says how long the rest may take, if that is worth a line.
func (v *verification) estimate(rounds int, took, rest time.Duration) {
	if rest < 30*time.Second {
		return
	}
	v.stderr.Printf("verify: the first of %d rounds took %v: the rest takes about %v; --rounds N measures each pod "+
		"with N others only\n", rounds, took.Round(time.Second), rest.Round(time.Second))
}

// progress draws a bar on a terminal.
func (v *verification) progress() func(done, all int) {
	st, err := os.Stderr.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done, all int) {
		const width = 40
		n := width * done / all
		v.stderr.Printf("\r[%s%s] %d/%d", strings.Repeat("#", n), strings.Repeat(".", width-n), done, all)
		if done == all {
			v.stderr.Println()
		}
	}
}
