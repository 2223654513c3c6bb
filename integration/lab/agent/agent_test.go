//go:build labguest

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func TestMain(m *testing.M) { guest.Main(m) }

func attach(pod *guest.Pod, command, device string) guest.Call {
	return guest.Call{Command: command, ContainerID: pod.Name, Netns: pod.Path, IfName: "net1", Config: map[string]any{
		"cniVersion": "1.0.0", "name": "rails", "type": "fabric", "device": device, "rdma": "exclusive"}}
}

func look(t *testing.T) map[string]survey.Device {
	t.Helper()
	list, err := system().Read()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]survey.Device{}
	for _, d := range list {
		out[d.HCA.Name] = d
	}
	return out
}

// system is the guest.
func system() survey.Node {
	return survey.Node{Sys: os.DirFS("/sys"), Store: journal.Store{Dir: journal.DefaultDir}, Policy: policy.DefaultPath}
}

func TestAgentSurvey(t *testing.T) {
	for _, module := range []string{"ib_uverbs", "rdma_ucm"} {
		guest.Modprobe(t, module)
	}
	n := guest.S1(t)
	guest.Unchanged(t)
	before := look(t)
	if len(before) != len(n.Rails)+1 {
		t.Errorf("%d devices: %+v", len(before), before)
	}
	for _, r := range n.Rails {
		d := before[r.HCA]
		if d.ID() != "platform/"+r.Bus || d.Netdev != r.Netdev || d.Active() != r.Active || d.InPod() ||
			d.Refused != nil ||
			d.LinkLayer() != "InfiniBand" {
			t.Errorf("%s: %+v", r.HCA, d)
		}
		if len(d.Files) < 3 || !slices.Contains(d.Files, "/dev/infiniband/rdma_cm") {
			t.Errorf("%s: files %v", r.HCA, d.Files)
		}
		for other, o := range before {
			for _, f := range d.Files {
				if other != r.HCA && !strings.HasSuffix(f, "rdma_cm") && slices.Contains(o.Files, f) {
					t.Errorf("%s and %s have both %s", r.HCA, other, f)
				}
			}
		}
	}
	if d := before[n.Bond]; d.Refused == nil || d.LinkLayer() != "Ethernet" {
		t.Errorf("the bond carries the default route: %+v", d)
	}
	pod := guest.NewPod(t, "pod")
	attach(pod, "ADD", "ibs108").Must(t)
	in := look(t)["mlx5_0"]
	d0 := before["mlx5_0"]
	if !in.InPod() || !in.Active() || in.ID() != d0.ID() || !slices.Equal(in.Files, d0.Files) ||
		in.Holder.ContainerID != "pod" {
		t.Errorf("in the pod: %+v", in)
	}
	if in.Prefix != before["mlx5_0"].Prefix || in.RateGb != before["mlx5_0"].RateGb || in.RateGb == 0 {
		t.Errorf(
			"in the pod prefix %v and rate %v, on the host %v and %v",
			in.Prefix,
			in.RateGb,
			before["mlx5_0"].Prefix,
			before["mlx5_0"].RateGb,
		)
	}
	discovered(t, list(look(t)), fmt.Sprintf("ib-%vg", in.RateGb), 4)
	// What kubelet is told is the same, wherever the device is.
	match := fabrics.Match{LinkLayer: device.InfiniBand}
	f := fabrics.Fabric{Name: "ib", Attachment: v1alpha1.WholeDevice, Match: match}
	units := func(devices map[string]survey.Device) []deviceplugin.Unit {
		return network.Units(&f, network.Assign([]fabrics.Fabric{f}, list(devices), nil)["ib"])
	}
	was, is := units(before), units(look(t))
	if len(was) != len(n.Rails) || fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("units\n%v, were\n%v", is, was)
	}
	guest.SetStates(t, states(n, "mlx5_0")...)
	if d := look(t)["mlx5_0"]; d.Active() {
		t.Errorf("its port went down in the pod: %+v", d.HCA.Ports)
	}
	guest.SetStates(t, states(n, "")...)
	attach(pod, "DEL", "ibs108").Must(t)
	if d := look(t)["mlx5_0"]; d.Holder != nil || d.Netdev != "ibs108" {
		t.Errorf("home: %+v", d)
	}
}

// states are the port states of the node's rails, with this one down.
func states(n *guest.Node, down string) (out []int) {
	for _, r := range n.Rails {
		state := guest.Down
		if r.Active && r.HCA != down {
			state = guest.Active
		}
		out = append(out, state)
	}
	return out
}

// discovered asserts that so many devices form a fabric of this name, wherever they are.
func discovered(t *testing.T, devices []survey.Device, name string, want int) {
	t.Helper()
	network.Discover(devices, nil)
	got := network.Assign([]fabrics.Fabric{{Name: name, Match: fabrics.Match{Discovered: name}}}, devices, nil)[name]
	if len(got) != want {
		t.Errorf("fabric %s has %d devices, want %d: %+v", name, len(got), want, devices)
	}
}

func list(m map[string]survey.Device) (out []survey.Device) {
	for _, d := range m {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b survey.Device) int { return strings.Compare(a.ID(), b.ID()) })
	return out
}

// gathered are the agent's metrics, as Prometheus would get them now.
func gathered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewRegistry()
	if _, err := metrics.New(r, system(), 0, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestAgentMetrics(t *testing.T) {
	guest.S1(t)
	guest.Unchanged(t)
	pod := guest.NewPod(t, "pod")
	attach(pod, "ADD", "ibs112").Must(t)
	var text strings.Builder
	for _, f := range gathered(t) {
		for _, m := range f.GetMetric() {
			fmt.Fprintf(&text, "%s %v\n", f.GetName(), m)
		}
	}
	for _, want := range [][]string{
		{"fabric_attachments", `value:"rails"`, "gauge:{value:1}"},
		{"fabric_port_state", `value:"mlx5_4"`, `value:"container pod"`, "gauge:{value:4}"},
		{"fabric_port_state", `value:"mlx5_5"`, "gauge:{value:1}"},
		{"fabric_device_refused", `value:"mlx5_bond_0"`, "gauge:{value:1}"},
	} {
		found := false
		for line := range strings.Lines(text.String()) {
			line = strings.ReplaceAll(line, "  ", " ") // prototext varies its blanks on purpose
			has := true
			for _, w := range want {
				has = has && strings.Contains(line, w)
			}
			found = found || has
		}
		if !found {
			t.Errorf("no line with %v", want)
		}
	}
	if t.Failed() {
		t.Log(text.String())
	}
	attach(pod, "DEL", "ibs112").Must(t)
}

// A pod that dies with three rails, and no DEL: all return to the host as they were.
func TestAgentRepairs(t *testing.T) {
	guest.S1(t)
	guest.Unchanged(t)
	pod := guest.NewPod(t, "pod")
	for i, device := range []string{"ibs108", "ibs110", "ibs114"} {
		c := attach(pod, "ADD", device)
		c.IfName = fmt.Sprintf("net%d", i+1)
		c.Must(t)
	}
	now := time.Now().Add(time.Hour)
	l := repair.Loop{
		Store:       journal.Store{Dir: journal.DefaultDir},
		Plugin:      filepath.Join(guest.BinDir(), "fabric"),
		Grace:       time.Minute,
		CallTimeout: time.Minute,
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now:         func() time.Time { return now },
	}
	if got := l.Once(t.Context()); len(got) != 0 {
		t.Fatalf("repaired a live pod: %v", got)
	}
	pod.Delete(t)
	l.Once(t.Context())
	now = now.Add(2 * time.Minute)
	guest.Until(t, "all are home", func() error {
		l.Once(t.Context())
		if entries, err := l.Store.List(); err != nil || len(entries) > 0 {
			return errors.Join(err, fmt.Errorf("%d entries are left", len(entries)))
		}
		return nil
	})
	for _, d := range look(t) {
		if d.Holder != nil || d.Netdev == "" {
			t.Errorf("%+v", d)
		}
	}
}

// A soft RDMA device (rxe) is no device that kubelet is told of.
func TestAgentSoftRDMA(t *testing.T) {
	guest.SoftRDMA(t)
	guest.Modprobe(t, "dummy")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("ip", "link", "add", "d0", "type", "dummy")
	t.Cleanup(func() { run("ip", "link", "del", "d0") })
	run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "d0")
	if found := look(t); len(found) != 0 {
		t.Errorf("devices: %+v", found)
	}
}
