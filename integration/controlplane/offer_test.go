package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// offered is a node with one device.
type offered struct {
	t     *testing.T
	c     client.Client
	node  string
	store journal.Store
	port  *port
	dir   string // kubelet's
}

// told waits until kubelet is told this of the device: Healthy or Unhealthy.
func (o *offered) told(fabric, want string) {
	o.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(o.dir, "fabric-fabric.dev-"+fabric+".sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	stream, err := pluginapi.NewDevicePluginClient(conn).ListAndWatch(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	for got := ""; got != want; {
		var list *pluginapi.ListAndWatchResponse
		if err == nil {
			list, err = stream.Recv()
		}
		if err != nil {
			o.t.Fatalf("device of %s is %s, want %s: %v", fabric, got, want, err)
		}
		if got = ""; len(list.GetDevices()) == 1 {
			got = list.GetDevices()[0].GetHealth()
		}
	}
}

// becomes waits for what kubectl get fabricnodes prints, and for text in the conditions of the FabricNode.
func (o *offered) becomes(want string, parts ...string) {
	o.t.Helper()
	untilNode(o.t, o.c, o.node, want)
	n := &v1alpha1.FabricNode{}
	if err := o.c.Get(o.t.Context(), client.ObjectKey{Name: o.node}, n); err != nil {
		o.t.Fatal(err)
	}
	text := fmt.Sprint(n.Status.Conditions)
	for _, p := range parts {
		if !strings.Contains(text, p) {
			o.t.Errorf("conditions: %s\nwant %s", text, p)
		}
	}
}

// attach is what the plugin notes of a pod that has the device on this network.
func (o *offered) attach(pod, network string) (detach func()) {
	o.t.Helper()
	a := device.Address{Bus: "pci", Name: "0000:3b:00.0"}
	e := &journal.Entry{
		Version: journal.Version, Key: journal.Key{ContainerID: pod, IfName: "net1"}, Network: network,
		Kind: journal.KindDevice, DeviceKey: a.String(), Address: a, HCA: &device.HCA{Name: "mlx5_0", Address: a},
		Netns: netns.ID{Ino: 1}, Args: "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=" + pod, Attached: true,
	}
	if err := errors.Join(o.store.Save(e), o.store.SetOwner(e.DeviceKey, e.Key)); err != nil {
		o.t.Fatal(err)
	}
	return func() {
		o.t.Helper()
		if err := errors.Join(o.store.ClearOwner(e.DeviceKey, e.Key), o.store.Remove(e.Key)); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *offered) fabric(name, spec string) {
	o.t.Helper()
	apply(o.t, `{apiVersion: fabric.dev/v1alpha1, kind: Fabric, metadata: {name: `+name+`}, spec: `+spec+`}`)
}

func (o *offered) remove(name string) {
	o.t.Helper()
	f := &v1alpha1.Fabric{}
	f.Name = name
	if err := o.c.Delete(o.t.Context(), f); err != nil {
		o.t.Fatal(err)
	}
}

// What can't be served is unhealthy, and the FabricNode and the Fabric say why: a range that is exhausted, a device
// that a pod of a former Fabric has, one that a tenant's network named, an IPoIB child on an exclusive node, an IPAM
// plugin that is misspelt. It is offered when the cause is gone.
func TestOffered(t *testing.T) {
	c := wholeWithAgents(t)
	dir, err := os.MkdirTemp("", "offer") // the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listen(t, dir)
	o := &offered{
		t: t, c: c, node: "gpu-offers", port: &port{}, store: journal.Store{Dir: filepath.Join(dir, "state")}, dir: dir,
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/whereabouts"), []byte("a plugin"), 0o700)); err != nil {
		t.Fatal(err)
	}
	const match = `match: {linkLayer: InfiniBand}`
	options := agentOptions(t, dir, o.node, kubeconfig(t, agentOf(t, o.node).BearerToken), o.port)
	options.DeviceDir = dir
	runAgentWith(t, options)

	const other = `{` + match + `, addresses: {nodeRanges: {
		ranges: [{range: 10.91.0.0/28, perNodePrefixLength: 28}], static: [{node: another, range: 10.91.0.0/28}]}}}`
	o.fabric("full", other)
	o.becomes(`0/1 False NoRange "NoRange"`, "fabric full: the controller has given this node no range yet")
	o.told("full", pluginapi.Unhealthy)
	untilCondition(t, c, "full", v1alpha1.FabricDegraded, "True DevicesUnhealthy: 1 NoRange")
	untilCondition(t, c, "full", v1alpha1.FabricAddressesSufficient, "False RangeTooSmall")
	o.fabric("full", strings.Replace(other, "another", o.node, 1))
	o.becomes(`1/1 True Ready ""`)
	o.told("full", pluginapi.Healthy)

	detach := o.attach("train-0", "full")
	o.fabric("full", `{precedence: 1, match: {devices: [nothing]}}`) // its devices are those of the next one
	o.fabric("renamed", `{`+match+`}`)
	o.becomes(`0/1 False InUseElsewhere "InUseElsewhere"`, "pod ml/train-0 has it, on network full")
	o.told("renamed", pluginapi.Unhealthy)
	untilCondition(t, c, "renamed", v1alpha1.FabricDegraded, "True DevicesUnhealthy: 1 InUseElsewhere")
	detach()
	o.becomes(`1/1 True Ready ""`)
	o.told("renamed", pluginapi.Healthy)
	detach = o.attach("tenant-0", "my-own")
	o.becomes(`0/1 False InUseElsewhere "InUseElsewhere"`, "fabric renamed: mlx5_0 (0000:3b:00.0) is not free",
		"pod ml/tenant-0 has it, on network my-own")
	o.told("renamed", pluginapi.Unhealthy)
	detach()
	o.becomes(`1/1 True Ready ""`)

	o.port.exclusive.Store(true)
	o.fabric("children", `{precedence: 2, `+match+`, attachment: IPoIBChild}`)
	o.becomes(`0/1 False WrongRDMAMode "WrongRDMAMode"`, "fabric children has attachment IPoIBChild",
		"rdmaMode: Ignore into spec.network")
	o.fabric("children", `{precedence: 2, `+match+`, attachment: IPoIBChild, network: {rdmaMode: Ignore}}`)
	o.becomes(`1/1 True Ready ""`)

	o.fabric("typo", `{precedence: 3, `+match+`, addresses: {ipam: {type: whereabout, range: 10.92.0.0/24}}}`)
	o.becomes(`0/1 False IPAMMissing "IPAMMissing"`, "did you mean whereabouts?")
	o.told("typo", pluginapi.Unhealthy)
	untilCondition(t, c, "typo", v1alpha1.FabricAddressesSufficient, "False IPAMMissing: the IPAM plugin that "+
		"addresses.ipam.type names is not on gpu-offers")
	o.remove("typo")
	o.becomes(`1/1 True Ready ""`)
}
