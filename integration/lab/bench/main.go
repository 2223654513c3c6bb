// Command bench measures the plugin on a lab kernel, beside the least that the kernel's work costs, beside
// containernetworking/plugins and beside stand-ins for ib-sriov-cni and ipoib-cni, and prints ratios next to their
// targets. A target that is missed does not fail the run: the machine's load decides too much. What runs in the guest
// is in inguest.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab"
	"github.com/fabric-cni/fabric-cni/integration/lab/bench/sample"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

var binaries = []lab.Build{
	{Name: "fabric", Package: "./cmd/fabric", Release: true, OneShot: true},
	{Name: "fabric-steps", Package: "./cmd/fabric", Tags: "failpoint", Release: true, OneShot: true},
	{Name: "inguest", Package: "./integration/lab/bench/inguest", Release: true},
	{Name: "floor", Package: "./integration/lab/bench/floor", Release: true},
	{Name: "peer", Package: "./integration/lab/bench/peer", Release: true},
	{Name: "trivial", Package: "./integration/lab/bench/trivial", Release: true},
	{Name: "static", Package: "github.com/containernetworking/plugins/plugins/ipam/static", Release: true},
	{Name: "host-device", Package: "github.com/containernetworking/plugins/plugins/main/host-device", Release: true},
}

type options struct {
	cycles   int
	groups   string
	plugin   string
	previous string
	keep     string
	counted  bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.cycles, "cycles", 30, "how often everything is measured")
	flags.StringVar(&o.groups, "groups", ".*",
		"regular `expression`: which of version ipoib steps netdev child journal rails namespaces vf guid guids "+
			"tenant shared veth veths")
	flags.StringVar(&o.plugin, "plugin", "", "`build` of the plugin to measure instead of one made here")
	flags.StringVar(&o.previous, "previous", "", "another `build` of the plugin to measure beside this one")
	flags.BoolVar(
		&o.counted,
		"counted",
		false,
		"time by instructions executed: exact on a busy machine, but not what targets are for",
	)
	flags.StringVar(&o.keep, "keep", "", "`file` for all samples, as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kernels, err := lab.Kernels()
	if err != nil {
		return err
	}
	dir, err := lab.TempDir("bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := lab.Make(ctx, dir, binaries); err != nil {
		return err
	}
	for name, build := range map[string]string{"fabric": o.plugin, "previous": o.previous} {
		if build == "" {
			continue
		}
		if out, err := exec.CommandContext(ctx, "cp", build, filepath.Join(dir, name)).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w: %s", build, err, out)
		}
	}
	set, loaded := sample.New(), load()
	for _, system := range []struct {
		groups  string
		append  []string
		devices []string
	}{
		{ // exclusive
			"version|ipoib|steps|netdev|child|journal|rails|namespaces", []string{"ib_core.netns_mode=0"},
			lab.VirtioNet(1),
		},
		{"vf|guid|guids|tenant", []string{"ib_core.netns_mode=0"}, append(lab.VirtioNet(1), lab.SRIOV(8)...)},
		{"shared", nil, lab.VirtioNet(1)},
	} {
		if err := boot(
			ctx,
			kernels[0],
			dir,
			system.groups,
			lab.Spec{Append: system.append, Devices: system.devices},
			o,
			set,
			stderr,
		); err != nil {
			return err
		}
	}
	if err := private(ctx, dir, "veth|veths", o, set, stderr); err != nil {
		return err
	}
	size, err := os.Stat(filepath.Join(dir, "fabric"))
	if err != nil {
		return fmt.Errorf("find the size of the plugin: %w", err)
	}
	set.Values["size/fabric"] = float64(size.Size()) / 1e6
	if o.keep != "" {
		if err := set.Write(o.keep); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "kernel %s, %d cycles, interleaved; this machine's load %s before, %s after, on %d CPUs\n\n",
		kernels[0].Release, o.cycles, loaded, load(), runtime.NumCPU())
	return report(stdout, set)
}

// load is what else this machine has to do, in processes: a guest that has to share its CPU measures the others too,
// and the longer an operation is, the more of them.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}

// boot measures groups in one guest. The binaries run from the guest's memory: started from the share they would
// measure that.
func boot(
	ctx context.Context,
	k lab.Kernel,
	dir, groups string,
	spec lab.Spec,
	o options,
	set *sample.Set,
	log io.Writer,
) error {
	chosen, err := choose(groups, o.groups)
	if err != nil || chosen == "" {
		return err
	}
	out, err := lab.TempDir("out-")
	if err != nil {
		return err
	}
	spec.Script = fmt.Sprintf(
		"set -e\nmkdir /run/bench\ncp %s/* /run/bench/\nexec /run/bench/inguest -bin /run/bench -cycles %d -groups "+
			"'%s' -out /out/samples\n",
		dir,
		o.cycles,
		chosen,
	)
	spec.OutDir, spec.Output, spec.Counted = out, log, o.counted
	spec.Timeout = 5*time.Minute + time.Duration(o.cycles)*time.Minute
	res, err := lab.Run(ctx, k, spec)
	if err != nil {
		return err
	}
	if res.Status != 0 {
		return fmt.Errorf("the guest's part failed with status %d; its output is in %s", res.Status, out)
	}
	if err := set.Merge(filepath.Join(out, "samples")); err != nil {
		return err
	}
	return os.RemoveAll(out)
}

// private measures groups on the kernel of this machine, whose processor is not emulated: in network and mount
// namespaces of their own, for which one has to be root.
func private(ctx context.Context, dir, groups string, o options, set *sample.Set, log io.Writer) error {
	chosen, err := choose(groups, o.groups)
	if err != nil || chosen == "" || o.counted {
		return err
	}
	if os.Geteuid() != 0 {
		fmt.Fprintf(log, "%s are not measured: that needs root\n", groups)
		return nil
	}
	out := filepath.Join(dir, "samples")
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "inguest"),
		"-private", "-bin", dir, "-cycles", strconv.Itoa(o.cycles), "-groups", chosen, "-out", out)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("measure on this machine's kernel: %w", err)
	}
	return set.Merge(out)
}
