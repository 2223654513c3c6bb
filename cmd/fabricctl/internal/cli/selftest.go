package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/redact"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/selftest"
)

// selfTest is what the command line says of a test.
type selfTest struct {
	*app
	devices []string
	yes     bool
	binDir  string
	file    string
	format  string
}

func selftestCommand(a *app) *cobra.Command {
	t := &selfTest{app: a}
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Attach and return devices of this machine, with faults, and compare the host before and after",
		Long: `selftest does with real devices what the project's lab does with simulated ones. It has the installed
plugin attach each device to a network namespace and return it: as a runtime does, with a wrong configuration, with the
namespace deleted under it, without a DEL, and with the plugin killed at random moments. Two devices also ping each
other, with RDMA if rping or perftest are installed. After each step the host must be what it was: interfaces with
names, addresses, routes and settings, RDMA devices, GUIDs.

Meanwhile the host does not have the devices. Use a bare host, or a node that is drained. It prints what it would take
and asks; a device that the plugin would refuse, such as one of a pod, of the default route, or in use, is not touched.
Whatever fails or interrupts it, it returns everything; what a run that was killed has left, the next one returns first.

-o json and --output-file write a report for an issue: without names of hosts, addresses and GUIDs. It is about this
machine, as kubectl fabric, too. Exit status 3: a step failed, or could not be done that should be.`,
		Example: `  fabricctl selftest --devices mlx5_0,mlx5_1 --output-file report.json`,
		Args:    argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", &t.format, "table", "json", "yaml"); err != nil {
				return err
			}
			if err := a.running("selftest"); err != nil {
				return err
			}
			report, hosts, err := t.test(cmd.Context())
			if err != nil {
				return fmt.Errorf("selftest: %w", err)
			}
			report.Sum()
			return t.print(report, hosts)
		},
	}
	c.Flags().StringSliceVar(&t.devices, "devices", nil, "RDMA devices, interfaces or bus addresses, with commas")
	c.Flags().BoolVar(&t.yes, "yes", false, "do not ask")
	c.Flags().StringVar(&t.binDir, "bin-dir", "",
		"directory of the plugin fabric (default: /opt/cni/bin, then that of fabricctl)")
	c.Flags().StringVar(&t.file, "output-file", "", "also write the report there, as JSON")
	c.Flags().StringVarP(&t.format, "output", "o", "table", "table, json or yaml")
	err := errors.Join(c.MarkFlagRequired("devices"), c.RegisterFlagCompletionFunc("devices", t.complete))
	if err != nil {
		panic(err)
	}
	return c
}

// deviceName is what a shell is offered.
var deviceName = regexp.MustCompile(`^\w[\w.-]*$`)

// complete offers the RDMA devices of the host, behind those that are in the list already.
func (t *selfTest) complete(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	tree, err := t.tree()
	if err != nil {
		return nil, directive
	}
	entries, _ := fs.ReadDir(tree, "sys/class/infiniband") // without the directory there are none
	list := begun[:strings.LastIndex(begun, ",")+1]
	var out []string
	for _, e := range entries {
		if deviceName.MatchString(e.Name()) && !strings.Contains(","+list, ","+e.Name()+",") {
			out = append(out, list+e.Name())
		}
	}
	return out, directive
}

// confirm asks. Anything but yes is a no, and so is ^C.
func (t *selfTest) confirm(ctx context.Context) error {
	if t.yes {
		return nil
	}
	t.stderr.Printf("Go on? Type yes: ")
	answer := make(chan string, 1)
	go func() { // it may be left waiting: the program ends
		line, _ := bufio.NewReader(t.stdin).ReadString('\n') // without an answer it is a no
		answer <- line
	}()
	select {
	case <-ctx.Done():
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
	}
	return errors.New("not confirmed: nothing was changed; --yes goes on without the question")
}

// stepColours are those of the table.
var stepColours = map[selftest.Status]string{selftest.Pass: good, selftest.Fail: bad, selftest.Skip: warn}

// print prints the report, and writes it to the file. These hosts are not named in what programs read.
func (t *selfTest) print(report *selftest.Report, hosts []string) error {
	public := report.Redacted(redact.NewSite(hosts...).Text)
	err := t.save(&public)
	if t.format != "table" {
		err = errors.Join(err, t.structured(t.format, public))
	} else {
		t.table(report)
	}
	if err == nil && !report.Good() {
		return errFinding
	}
	return err
}

func (t *selfTest) save(public *selftest.Report) error {
	if t.file == "" {
		return nil
	}
	kind, err := kindOf(*public)
	if err != nil {
		return err
	}
	b, err := encode.Object("json", kind, *public)
	if err != nil {
		return err
	}
	return t.write(t.file, b)
}

func (t *selfTest) table(r *selftest.Report) {
	tab := newTable("DEVICE", "STEP", "RESULT", "SECONDS", "TEXT")
	tab.share = []string{"TEXT"}
	for i := range r.Steps {
		s := &r.Steps[i]
		tab.add(s.Device, s.Name, cell{string(s.Result), stepColours[s.Result]}, fmt.Sprintf("%.2f", s.Seconds), s.Text)
	}
	tab.print(&t.console)
	for i := range r.Steps {
		s := &r.Steps[i]
		if len(s.Diff) == 0 {
			continue
		}
		t.stdout.Printf("\n%s %s (- before, + after):\n", s.Device, s.Name)
		for _, line := range s.Diff {
			t.stdout.Printf("  %s\n", line)
		}
	}
	if !r.Restored {
		t.stdout.Printf("\nTo do by hand:\n")
		for _, line := range r.Left {
			t.stdout.Printf("  %s\n", line)
		}
	}
	sum := r.Summary
	t.stdout.Printf("\n%d passed, %d failed, %d skipped, of which %d should not be\n", sum.Passed, sum.Failed,
		sum.Skipped, sum.Missed)
	if t.file != "" && t.file != "-" {
		t.stdout.Printf("attach %s to an issue: https://github.com/fabric-cni/fabric-cni/issues\n", t.file)
	}
}
