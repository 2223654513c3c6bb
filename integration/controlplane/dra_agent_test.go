package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// draNode is the DRA driver of a node, with the token of its agent.
type draNode struct {
	*dra.Driver
	state string
	admin kubernetes.Interface
}

func newDRANode(t *testing.T, name string) *draNode {
	t.Helper()
	dir := t.TempDir()
	n := &draNode{state: filepath.Join(dir, "state")}
	specs, err := cdi.In(filepath.Join(dir, "cdi"), "/opt/cni/bin/fabric", n.state)
	if err != nil {
		t.Fatal(err)
	}
	k := kube(t, agentOf(t, name))
	n.admin = kube(t, server.Config)
	log := io.Discard
	if testing.Verbose() {
		log = os.Stderr
	}
	n.Driver = dra.New(dra.Config{
		Node: name, PluginsDir: filepath.Join(dir, "plugins"), Store: journal.Store{Dir: n.state},
		Prepared: prepared.In(n.state), CDI: specs, Kube: k, Log: slog.New(slog.NewTextHandler(log, nil)),
		Files: func(_ context.Context, _ device.Address, _ bool, was []string) ([]string, error) { return was, nil },
		Interface: func(e *journal.Entry) (*survey.Interface, error) {
			return &survey.Interface{HWAddr: "00:11:22:33:44:55", Addresses: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("fd00::7/64"),
			}}, nil
		},
	})
	return n
}

func kube(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// draDevices are devices of one fabric, of which the second has a problem and the third is shared.
func draDevices() dra.View {
	v := dra.View{Fabrics: map[string]bool{"ib": true}}
	for i := range 3 {
		id := fmt.Sprintf("0000:%d0:00.0", i+3)
		it := offer.Item{
			Fabric: "ib", Resource: "fabric.dev/ib", Location: device.LocationOnPCI(id), LinkLayer: "InfiniBand",
			RateGb: 200, State: "Active",
			RDMADevice: fmt.Sprintf("mlx5_%d", i), Netdev: "\x1b[31mib0", NUMA: i, PCIeRoot: "pci0000:30",
		}
		switch i {
		case 1:
			it.Problem = "PortDown"
		case 2:
			it.Shares = 2
		}
		v.Devices = append(v.Devices, dra.Device{
			Item: it, Files: []string{"/dev/null"}, Conf: []byte(`{}`),
		})
	}
	return v
}

// offered waits until the slices of a node have these devices, each with its taints and shares.
func (n *draNode) offered(t *testing.T, want ...string) {
	t.Helper()
	until(t, func() string {
		list, err := n.admin.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
			FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + n.Node,
		})
		if err != nil {
			return err.Error()
		}
		var got []string
		for i := range list.Items {
			s := &list.Items[i]
			if s.Spec.Pool.Name != n.Node || s.Spec.Driver != "fabric.dev" || len(s.OwnerReferences) != 1 ||
				s.OwnerReferences[0].Kind != "Node" {
				return fmt.Sprintf("slice %s: %+v", s.Name, s.Spec.Pool)
			}
			for _, d := range s.Spec.Devices {
				text := d.Name
				for _, taint := range d.Taints {
					text += " " + taint.Key + "=" + taint.Value
				}
				if d.AllowMultipleAllocations != nil {
					text += " shared"
				}
				got = append(got, text)
			}
		}
		if a, b := strings.Join(got, ", "), strings.Join(want, ", "); a != b {
			problem, _ := n.Problems()
			return fmt.Sprintf("offered: %s, want %s; %s", a, b, problem)
		}
		return ""
	})
}

// What a server whose gates are off drops is said in another way, and no pod gets a device that is unhealthy.
func TestDRAOffer(t *testing.T) {
	freshWith(t, []string{oldest}, "../../deployments/helm/fabric-cni/crds/fabric.dev_*.yaml")
	agentRules(t)
	n := newDRANode(t, "dra-off")
	go n.Run(t.Context())
	n.Update(draDevices())
	n.offered(t, "pci-0000-30-00-0", "pci-0000-50-00-0-share-0", "pci-0000-50-00-0-share-1")
	v := draDevices()
	v.Devices[1].Item.Problem = ""
	n.Update(v)
	n.offered(t, "pci-0000-30-00-0", "pci-0000-40-00-0", "pci-0000-50-00-0-share-0", "pci-0000-50-00-0-share-1")
	n.Update(dra.View{Fabrics: map[string]bool{"ib": true}, Elsewhere: map[device.Location]bool{
		device.LocationOnPCI("0000:50:00.0"): true,
	}})
	n.offered(t, "pci-0000-30-00-0", "pci-0000-40-00-0") // what is missing once may be on its way
	n.Update(dra.View{Known: true})
	n.offered(t)
}

func TestDRAOfferGates(t *testing.T) {
	freshWith(t, []string{"--feature-gates=DRADeviceTaints=true,DRAConsumableCapacity=true"},
		"../../deployments/helm/fabric-cni/crds/fabric.dev_*.yaml")
	agentRules(t)
	n := newDRANode(t, "dra-on")
	go n.Run(t.Context())
	n.Update(draDevices())
	n.offered(t, "pci-0000-30-00-0", "pci-0000-40-00-0 fabric.dev/unhealthy=PortDown", "pci-0000-50-00-0 shared")
}

// A cluster that does not serve the API has a condition, and kubelet is told nothing.
func TestDRANotServed(t *testing.T) {
	freshWith(t, []string{"--runtime-config=resource.k8s.io/v1=false"},
		"../../deployments/helm/fabric-cni/crds/fabric.dev_*.yaml")
	agentRules(t)
	n := newDRANode(t, "dra-none")
	go n.Run(t.Context())
	n.Update(draDevices())
	until(t, func() string {
		if problem, _ := n.Problems(); !strings.Contains(problem, "does not serve resource.k8s.io/v1") {
			return problem + "?"
		}
		return ""
	})
	if _, err := os.Stat(n.PluginsDir); err == nil {
		t.Error("there is a directory for kubelet")
	}
}

// agentRules puts the agent's rights into force.
func agentRules(t *testing.T) {
	t.Helper()
	err := server.Apply(t.Context(), "../../deployments/base/namespace.yaml", "../../deployments/base/rbac.yaml",
		"../../deployments/base/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
}

// claimOf makes a claim that the scheduler has allocated for a pod.
func claimOf(t *testing.T, k kubernetes.Interface, name string, results ...string) *resourceapi.ResourceClaim {
	t.Helper()
	claims := k.ResourceV1().ResourceClaims("default")
	c, err := claims.Create(t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "rails", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "fabric.dev"},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, r := range results {
		p := strings.Split(r, "/")
		if c.Status.Allocation.NodeSelector == nil { // as the scheduler writes it
			c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{p[1]},
				}},
			}}}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "rails", Driver: p[0], Pool: p[1], Device: p[2]})
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p1", UID: "uid-p1"}}
	if c, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// What ADD has made of a claim is in its status a moment later, and what DEL has made of it too.
func TestDRAClaimStatus(t *testing.T) {
	agentRules(t)
	defer removeNodes(t, whole(t))
	n := newDRANode(t, "dra-status")
	go n.Run(t.Context())
	n.Update(draDevices())
	c := claimOf(t, n.admin, "status", "fabric.dev/dra-status/pci-0000-30-00-0", "gpu.example.com/dra-status/gpu-0")
	out, err := n.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil || out[c.UID].Err != nil {
		t.Fatal(out, err)
	}
	e := &journal.Entry{
		Key: journal.Key{ContainerID: "c1", IfName: "net1"}, Network: "ib", Kind: journal.KindDevice, Attached: true,
		Created: time.Now(), Nonce: "1", DeviceKey: "pci/0000:30:00.0", Netns: netns.ID{Ino: 1},
		Address: device.Address{Bus: "pci", Name: "0000:30:00.0"}, Args: "IgnoreUnknown=1;K8S_POD_UID=uid-p1",
		FromClaim: &journal.ClaimDevice{ClaimUID: string(c.UID), Request: "rails", Device: "pci-0000-30-00-0"},
	}
	store := journal.Store{Dir: n.state}
	if err := store.Save(e); err != nil {
		t.Fatal(err)
	}
	n.says(t, "status", `{"interfaceName":"net1","ips":["10.0.0.7/24","fd00::7/64"],`+
		`"hardwareAddress":"00:11:22:33:44:55"}`, metav1.ConditionTrue)
	if err := store.Remove(e.Key); err != nil {
		t.Fatal(err)
	}
	n.says(t, "status", `null`, metav1.ConditionFalse)
}

func (n *draNode) says(t *testing.T, name, want string, ready metav1.ConditionStatus) {
	t.Helper()
	until(t, func() string {
		c, err := n.admin.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if len(c.Status.Devices) != 1 {
			return fmt.Sprintf("%d devices in the status", len(c.Status.Devices))
		}
		d := &c.Status.Devices[0]
		b, err := json.Marshal(d.NetworkData)
		if err != nil || string(b) != want || len(d.Conditions) != 2 || d.Conditions[0].Status != ready {
			return fmt.Sprintf("%s, %v, %v", b, d.Conditions, err)
		}
		return ""
	})
}
