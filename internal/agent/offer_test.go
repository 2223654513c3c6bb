package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// offers is an offerReconciler with the fabric ib and devices 0000:00:00.0 and so on.
type offers struct {
	*offerReconciler
	t        *testing.T
	dir      string
	fabric   fabrics.Fabric
	devices  int
	kubelet  []prefer.Container
	mode     device.NetnsMode
	noNetdev bool
	users    map[int][]string // what on the host uses a device
	view     *view
	registry *prometheus.Registry
}

func newOffers(t *testing.T, devices int) *offers {
	t.Helper()
	o := &offers{t: t, dir: t.TempDir(), devices: devices, mode: device.NetnsExclusive,
		fabric:   fabrics.Fabric{Name: "ib", Attachment: v1alpha1.WholeDevice, Network: map[string]any{}},
		registry: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	store := journal.Store{Dir: filepath.Join(o.dir, "state")}
	m, err := metrics.New(o.registry, survey.Node{Sys: os.DirFS(o.dir), Store: store}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ipamDir := filepath.Join(o.dir, "ipam")
	ranges := &rangeReconciler{saved: &savedState{}, ipamDir: ipamDir, metrics: m, log: log}
	o.offerReconciler = &offerReconciler{
		networks: &networkReconciler{
			confDir: filepath.Join(o.dir, "net.d"), noted: filepath.Join(store.Dir, policy.PublishedDir),
			ipamDir: ipamDir, store: store, ranges: ranges, log: log,
		},
		mode: func() (device.NetnsMode, error) { return o.mode, nil }, metrics: m, log: log,
		ipam:    ipamReconciler{binDir: filepath.Join(o.dir, "bin"), log: log},
		holders: holderReader{store: store, claims: prepared.In(store.Dir), log: log},
	}
	return o
}

func (o *offers) ask() {
	o.holders.given = func(context.Context) ([]prefer.Container, error) { return o.kubelet, nil }
}

func (o *offers) give(pod string, ids ...string) {
	c := prefer.Container{Pod: pod}
	for _, id := range ids {
		c.Devices = append(c.Devices, prefer.Device{Resource: "fabric.dev/ib", ID: id})
	}
	o.kubelet = append(o.kubelet, c)
}

func address(i int) device.Address {
	return device.Address{Bus: "pci", Name: fmt.Sprintf("0000:%02d:00.0", i)}
}

// attach writes what the plugin notes of an attachment.
func (o *offers) attach(pod, network string, i int, change func(*journal.Entry)) journal.Key {
	o.t.Helper()
	a := address(i)
	e := &journal.Entry{
		Version: journal.Version, Key: journal.Key{ContainerID: pod, IfName: "net1"}, Network: network,
		Kind: journal.KindDevice, DeviceKey: a.String(), Address: a, HCA: &device.HCA{Name: "mlx5_0", Address: a},
		Netns: netns.ID{Ino: 1}, Args: "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=" + pod, Attached: true,
	}
	if change != nil {
		change(e)
	}
	err := o.holders.store.Save(e)
	if err == nil && e.Child == nil {
		err = o.holders.store.SetOwner(e.DeviceKey, e.Key)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return e.Key
}

func (o *offers) detach(k journal.Key, i int) {
	o.t.Helper()
	err := errors.Join(o.holders.store.ClearOwner(address(i).String(), k), o.holders.store.Remove(k))
	if err != nil {
		o.t.Fatal(err)
	}
}

// look returns which units kubelet may hand out: a digit for each that it may, or what the reason begins with.
func (o *offers) look() string {
	o.t.Helper()
	v := &view{fabrics: []fabrics.Fabric{o.fabric}, assigned: map[string][]survey.Device{}}
	v.findings = &condition.Set{}
	for i := range o.devices {
		d := survey.Device{Location: device.LocationOnPCI(address(i).Name), Netdev: fmt.Sprint("ib", i), RateGb: 200}
		d.HCA = device.HCA{Name: fmt.Sprint("mlx5_", i),
			Ports: []device.Port{{Number: 1, State: device.PortActive, LinkLayer: device.InfiniBand}}}
		d.Users = o.users[i]
		if o.noNetdev {
			d.Netdev = ""
		}
		v.assigned["ib"] = append(v.assigned["ib"], d)
	}
	o.view = v
	o.networks.ranges.reconcile(v)
	o.networks.reconcile(v)
	o.reconcile(o.t.Context(), v)
	var out []string
	for _, u := range network.Units(&o.fabric, v.assigned["ib"]) {
		text := v.withheld["ib"][u.ID]
		if text == "" {
			text = "ok"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (o *offers) wants(what, want string) {
	o.t.Helper()
	if got := o.look(); got != want {
		o.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// says looks for a condition, and for text in its message.
func (o *offers) says(of condition.Reason, object string, parts ...string) {
	o.t.Helper()
	c, ok := o.view.findings.Get(of, object)
	for _, p := range parts {
		if !ok || !strings.Contains(c.Message, p) {
			o.t.Errorf("%s: %q, want %q", of.Name, c.Message, p)
		}
	}
}

func (o *offers) problems() (out []string) {
	for i := range o.view.assigned["ib"] {
		d := deviceOf(&o.view.assigned["ib"][i], nil)
		out = append(out, d.Problem)
	}
	return out
}

// ranges gives the fabric nodeRanges, and the node this one; empty: none yet.
func (o *offers) ranges(given, like string) {
	p := netip.MustParsePrefix(like)
	o.fabric.NodeRanges = &noderange.Spec{
		Fabric: "ib", Ranges: []noderange.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Bits: p.Bits()}},
	}
	o.networks.ranges.saved.Ranges = nil
	if given != "" {
		o.networks.ranges.saved.Ranges = []v1alpha1.AssignedRange{{Fabric: "ib", Subnet: "10.0.0.0/16", Range: given}}
	}
}

// While the node has no range of the fabric there is no file for Multus ("No networks found"): what no pod has is
// withheld, what one has stays as it is.
func TestOfferNoRange(t *testing.T) {
	o := newOffers(t, 3)
	o.ranges("", "10.0.4.0/26")
	o.attach("p", "ib", 1, nil)
	o.wants("without a range", "NoRange ok NoRange")
	o.says(condition.NoRange, condition.Fabric("ib"), "no range yet")
	if got := o.problems(); !slices.Equal(got, []string{"NoRange", "", "NoRange"}) {
		t.Errorf("%q", got)
	}
	text := `# HELP fabric_device_unhealthy 1 for a device that pods should not use, with the reason.
# TYPE fabric_device_unhealthy gauge
fabric_device_unhealthy{device="0000:00:00.0",fabric="ib",hca="mlx5_0",reason="NoRange"} 1
fabric_device_unhealthy{device="0000:02:00.0",fabric="ib",hca="mlx5_2",reason="NoRange"} 1
`
	if err := testutil.GatherAndCompare(o.registry, strings.NewReader(text), "fabric_device_unhealthy"); err != nil {
		t.Error(err)
	}
	o.ranges("10.0.4.0/26", "10.0.4.0/26")
	o.wants("with a range", "ok ok ok")
}

// Of more devices than addresses as many are on offer as there are addresses. Which ones does not change with the pods
// that come and go; an address that is lost takes one away, when it is found so twice.
func TestOfferRation(t *testing.T) {
	o := newOffers(t, 4)
	o.ranges("10.0.4.0/31", "10.0.4.0/31")
	o.wants("two addresses", "ok ok NoAddressLeft NoAddressLeft")
	o.says(condition.NoAddressLeft, condition.Fabric("ib"), "10.0.4.0/31 has 2 addresses", "4 devices")
	given := func(names ...string) {
		t.Helper()
		dir := filepath.Join(o.dir, "ipam", "ib")
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, n), []byte("c\nnet1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	k := o.attach("p", "ib", 1, nil)
	o.wants("a pod that has no address yet", "ok ok NoAddressLeft NoAddressLeft")
	given("10.0.4.0")
	o.wants("a pod", "ok ok NoAddressLeft NoAddressLeft")
	o.detach(k, 1)
	o.wants("its address outlives it", "ok ok NoAddressLeft NoAddressLeft")
	o.wants("for good", "ok NoAddressLeft NoAddressLeft NoAddressLeft")
	o.says(condition.NoAddressLeft, condition.Fabric("ib"), "1 of them to attachments that are not known any more")
	given()
	o.wants("it is back", "ok ok NoAddressLeft NoAddressLeft")
	o.ranges("10.0.4.0/30", "10.0.4.0/30")
	o.wants("four addresses", "ok ok ok ok")
}

// A device that a pod of the fabric's former name has, or that a tenant's network named, is withheld until it is back.
func TestOfferInUse(t *testing.T) {
	o := newOffers(t, 3)
	old := o.attach("old", "ib-old", 0, nil)
	mine := o.attach("mine", "ib", 1, nil)
	named := o.attach("named", "own\x1b[2J"+strings.Repeat("x", 4096), 2, nil)
	o.wants("held", "InUseElsewhere ok InUseElsewhere")
	o.says(condition.InUseElsewhere, condition.Device(address(0).Name), "mlx5_0 (0000:00:00.0) is not free",
		"pod ml/old has it, on network ib-old")
	o.says(condition.InUseElsewhere, condition.Device(address(2).Name), "pod ml/named has it")
	f, _ := o.view.findings.Get(condition.InUseElsewhere, condition.Device(address(2).Name))
	if len(f.Message) > 512 || strings.Contains(f.Message, "\x1b") {
		t.Errorf("%q", f.Message)
	}
	for i, k := range []journal.Key{old, mine, named} {
		o.detach(k, i)
	}
	o.wants("back", "ok ok ok")
	o.attach("child", "ipoib", 0, func(e *journal.Entry) {
		e.Kind, e.HCA = journal.KindIPoIB, nil
		e.Child = &journal.Child{Parent: e.Address, Master: "ib0"}
	})
	o.wants("a child, which a move would destroy", "InUseElsewhere ok ok")
}

// What the host uses is withheld until it does not; a pod that was given the device, as one in the host's network, is
// no such use.
func TestOfferInUseByHost(t *testing.T) {
	o := newOffers(t, 3)
	o.users = map[int][]string{0: {"kernel module nvme_rdma"}, 2: {"process 7 (rping)", "kernel module smc"}}
	o.attach("mine", "ib", 2, nil)
	o.wants("in use", "InUseByHost ok ok")
	o.says(condition.InUseByHost, condition.Device(address(0).Name), "RDMA device mlx5_0 (0000:00:00.0)",
		"kernel module nvme_rdma", "allowHostUse")
	if _, ok := o.view.findings.Get(condition.InUseByHost, condition.Device(address(2).Name)); ok {
		t.Error("a pod has been given it")
	}
	if got := o.problems(); !slices.Equal(got, []string{"InUseByHost", "", ""}) { // DRA makes its taint of it
		t.Errorf("%q", got)
	}
	o.users = nil
	o.wants("idle", "ok ok ok")
}

// A tenant may give a network the name of the fabric, and may use a network of any name for a device that kubelet gave.
func TestOfferKubelet(t *testing.T) {
	o := newOffers(t, 4)
	o.ask()
	o.give("ml/given", address(0).Name)
	o.give("ml/waits", address(3).Name)
	o.attach("given", "my-own", 0, nil)
	o.attach("thief", "ib", 1, nil)
	o.attach("other", "ib-old", 2, nil)
	o.attach("late", "ib", 3, nil)
	o.wants("at first", "ok ok InUseElsewhere ok")
	o.wants("and still", "ok InUseElsewhere InUseElsewhere InUseElsewhere")
	o.says(condition.InUseElsewhere, condition.Device(address(1).Name), "pod ml/thief has it")
	o.holders.given = func(context.Context) ([]prefer.Container, error) { return nil, errors.New("kubelet is away") }
	o.wants("by the names", "InUseElsewhere ok InUseElsewhere ok")
}

// A device for which a ResourceClaim is prepared is not on offer by its resource: from before the fabric changed.
func TestOfferClaimed(t *testing.T) {
	o := newOffers(t, 2)
	err := o.holders.claims.Save(&prepared.Claim{UID: "c", Namespace: "ml", Name: "claim", PodUID: "p", Pod: "train",
		Devices: []prepared.Device{{Address: address(0), Fabric: "ib"}}})
	if err != nil {
		t.Fatal(err)
	}
	o.wants("claimed", "InUseElsewhere ok")
	o.says(condition.InUseElsewhere, condition.Device(address(0).Name), "pod ml/train has it by a ResourceClaim")
}

// Shares of a shared fabric on a node in exclusive RDMA mode would be device files without an RDMA device. Those that
// pods have stay: kubelet knows which; where it can't be asked, as many of them.
func TestOfferShared(t *testing.T) {
	o := newOffers(t, 1)
	o.fabric.Attachment, o.fabric.Shares = v1alpha1.IPoIBChild, 3
	o.wants("on an exclusive node", "WrongRDMAMode WrongRDMAMode WrongRDMAMode")
	o.says(condition.WrongRDMAMode, condition.Fabric("ib"), "device files and no RDMA device", "netns_mode=1",
		"rdmaMode: Ignore into spec.network")
	if got := o.problems(); !slices.Equal(got, []string{"WrongRDMAMode"}) {
		t.Errorf("%q", got)
	}
	child := func(e *journal.Entry) {
		e.Kind, e.HCA = journal.KindIPoIB, nil
		e.Child = &journal.Child{Parent: e.Address, Master: "ib0"}
	}
	o.attach("p", "ib", 0, child)
	o.wants("as many", "ok WrongRDMAMode WrongRDMAMode")
	o.ask()
	o.give("ml/p", address(0).Name+"-share-2")
	o.wants("this one", "WrongRDMAMode WrongRDMAMode ok")
	o.fabric.Network["rdma"] = "none"
	o.wants("IP only", "ok ok ok")
	o.mode = device.NetnsShared
	delete(o.fabric.Network, "rdma")
	o.wants("on a shared node", "ok ok ok")
	o.noNetdev = true
	o.wants("without a parent", "NoConfiguration NoConfiguration ok")
	o.says(condition.NoConfiguration, condition.Fabric("ib"), "modprobe ib_ipoib")
	o.noNetdev = false
	o.attach("whole", "ib", 0, nil)
	o.wants("one that a pod has as a whole", "InUseElsewhere InUseElsewhere InUseElsewhere")
}

// What ADD refuses is withheld, and makes the agent not ready as ever.
func TestOfferRefused(t *testing.T) {
	o := newOffers(t, 1)
	o.fabric.Network["rdma"], o.mode = "exclusive", device.NetnsShared
	o.wants("refused", "WrongRDMAMode")
	o.says(condition.RefusedRDMAMode, condition.Fabric("ib"), "netns_mode=0")
	// a file where the directory should be
	if err := os.WriteFile(filepath.Join(o.dir, "net.d"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.mode = device.NetnsExclusive
	o.ranges("10.0.4.0/26", "10.0.4.0/26")
	o.wants("the file can't be written", "NoConfiguration")
	o.says(condition.NoConfiguration, condition.Fabric("ib"), "net.d")
}
