package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/selftest"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// settle is how long what the kernel does by itself may take: a link that comes up again.
var settle = time.Minute

// test does the test. It also returns the names of the host.
func (t *selfTest) test(ctx context.Context) (*selftest.Report, []string, error) {
	plugin, err := t.prepare()
	if err != nil {
		return nil, nil, err
	}
	// A terminal or a reader that goes away is no reason to leave devices where they are.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	begun := time.Now()
	run := &selftest.Run{Store: t.store(), Plugin: plugin, Patience: settle, Done: t.progress}
	if err := run.Begin(); err != nil {
		return nil, nil, err
	}
	defer run.Close()
	switch cleaned, err := run.Leftovers(ctx); {
	case err != nil:
		return nil, nil, fmt.Errorf("return what an earlier run has left: %w", err)
	case cleaned:
		t.stderr.Println("returned what an earlier run had left")
	}
	if run.Devices, err = selftest.Find(t.store(), t.devices); err != nil {
		return nil, nil, err
	}
	if err := t.refusals(run.Devices); err != nil {
		return nil, nil, err
	}
	h, err := t.host()
	if err != nil {
		return nil, nil, err
	}
	report := t.facts(h, run.Devices, plugin)
	report.Warnings = t.warnings(h)
	t.announce(run.Devices, report.Warnings)
	if err := t.confirm(ctx); err != nil {
		return nil, nil, err
	}
	asked := time.Now()
	if err := run.All(ctx, report); err != nil {
		return nil, nil, err
	}
	report.Time = begun.UTC().Format(time.RFC3339)
	report.Seconds = float64(time.Since(asked).Milliseconds()) / 1000
	return report, []string{h.Node.Name}, nil
}

// prepare refuses what can't work, and finds the plugin.
func (t *selfTest) prepare() (plugin string, err error) {
	if t.stateDir != node.StoreDir {
		return "", fmt.Errorf("%w: --state-dir %s: the installed plugin keeps its journal in %s", errUsage, t.stateDir,
			node.StoreDir)
	}
	if slices.Contains(t.devices, "") {
		return "", fmt.Errorf("%w: --devices must be a list of names", errUsage)
	}
	dirs := []string{filepath.Dir(installed)}
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(self))
	}
	if t.binDir != "" {
		dirs = []string{t.binDir}
	}
	for _, d := range dirs {
		p := filepath.Join(d, "fabric")
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			plugin, err = filepath.Abs(p)
			if err != nil {
				return "", err
			}
			break
		}
	}
	if plugin == "" {
		return "", fmt.Errorf("the plugin fabric is in none of %s; install it, or give --bin-dir",
			strings.Join(dirs, ", "))
	}
	if os.Geteuid() != 0 {
		return "", errors.New("devices are root's to move: run as root")
	}
	if _, proc, _, err := t.nodeTree(); err == nil && proc != "" {
		return "", errors.New("this is a container: run it on the node itself")
	}
	return plugin, nil
}

// refusals are the plugin's own reasons against devices, before anything is moved.
func (t *selfTest) refusals(devices []*selftest.Device) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	var refused []error
	for _, d := range devices {
		conf, err := d.Conf()
		if err != nil {
			return err
		}
		plans, err := t.planAdd(conf, netconf.Env{
			ContainerID: "fabric-selftest-plan", Netns: fmt.Sprintf("/proc/self/fd/%d", ns.FD()),
		})
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		for _, p := range plans {
			if len(p.Refused) > 0 {
				refused = append(refused, fmt.Errorf("%s: the plugin would refuse it: %s", d.Name, p.Refused[0]))
			}
		}
	}
	return errors.Join(refused...)
}

// kubelets are processes that show that a node may get pods.
var kubelets = []string{"kubelet", "k3s-server", "k3s-agent", "rke2"}

// warnings are what could disturb the test, or be disturbed, as far as this machine knows.
func (t *selfTest) warnings(h *doctor.Host) []string {
	out := []string{}
	files, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is a good one
	var running []string
	for _, f := range files {
		b, _ := os.ReadFile(f) // it may have ended
		name := string(bytes.TrimSpace(b))
		if (slices.Contains(kubelets, name) || name == "fabric-agent") && !slices.Contains(running, name) {
			running = append(running, name)
		}
	}
	if len(running) > 0 {
		slices.Sort(running)
		out = append(out, strings.Join(running, " and ")+" runs here: drain the node first, so that no pod is given a "+
			"device meanwhile")
	}
	list, err := t.attachments()
	if err != nil {
		out = append(out, "the journal: "+err.Error())
	}
	alive := 0
	for _, l := range list {
		if l.State == stateAttached || l.State == stateBegun {
			alive++
		}
	}
	if alive > 0 {
		out = append(out, fmt.Sprintf("pods have %d other devices: a pod that comes or goes meanwhile changes the host",
			alive))
	}
	for _, f := range doctor.CheckHost(h) {
		if f.Status == doctor.Fail {
			out = append(out, f.ID+": "+f.Evidence)
		}
	}
	return out
}

// announce says what will be done to which device.
func (t *selfTest) announce(devices []*selftest.Device, warnings []string) {
	t.stderr.Printf("selftest takes these devices from the host and returns them, about ten times each. Their " +
		"addresses and routes are away meanwhile, and come back.\n")
	for _, d := range devices {
		has := []string{"interface " + d.Netdev}
		if d.HCA != "" {
			has = append(has, "RDMA device "+d.HCA)
		}
		if len(d.Addrs) > 0 {
			has = append(has, "addresses "+strings.Join(d.Addrs, " "))
		}
		has = append(has, fmt.Sprintf("%d routes", d.Routes))
		if len(d.Users) > 0 {
			has = append(has, "in use by "+strings.Join(d.Users, ", "))
		}
		t.stderr.Printf("  %s: %s\n", d.Name, strings.Join(has, "; "))
	}
	for _, w := range warnings {
		t.stderr.Println("warning:", w)
	}
}

// progress says on a terminal what has been done.
func (t *selfTest) progress(s selftest.Step) {
	if t.terminal {
		t.stderr.Printf("%s %s %s\n", s.Device, s.Name, string(s.Result))
	}
}

// facts are what a report says of the machine.
func (t *selfTest) facts(h *doctor.Host, devices []*selftest.Device, plugin string) *selftest.Report {
	r := &selftest.Report{Version: t.version, Plugin: pluginVersion(plugin), Kernel: h.Node.Kernel,
		RDMAMode: h.Node.RDMAMode, Left: []string{}}
	tree, err := t.tree()
	if err != nil {
		return r
	}
	release, _ := fs.ReadFile(tree, "etc/os-release") // some have none
	for line := range strings.Lines(string(release)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			r.OS = strings.Trim(name, `"'`)
		}
	}
	for _, d := range devices {
		r.Adapters = append(r.Adapters, adapter(tree, h.Node, d))
	}
	return r
}

func adapter(tree fs.FS, n *node.Node, d *selftest.Device) selftest.Adapter {
	out := selftest.Adapter{Device: d.Name, Interface: "ethernet"}
	if dev := n.Netdev(d.Netdev); dev != nil && dev.Type == 32 {
		out.Interface = "ipoib"
	}
	hca := n.HCA(d.HCA)
	if hca == nil {
		return out
	}
	out.Kind, out.Model, out.ID, out.Board = hca.Kind, hca.Model, hca.ID, hca.Board
	out.Firmware, out.Driver = hca.Firmware, hca.Driver
	if hca.Driver != "" {
		version, _ := fs.ReadFile(tree, "sys/module/"+hca.Driver+"/version") // the kernel's own drivers have none
		out.DriverVersion = strings.TrimSpace(string(version))
	}
	if len(hca.Ports) > 0 {
		p := &hca.Ports[0]
		out.LinkLayer, out.State, out.RateGb = string(p.LinkLayer), p.State, p.RateGb
	}
	return out
}
