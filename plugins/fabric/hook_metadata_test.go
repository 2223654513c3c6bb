package fabric_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	api "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// metadataOf is what a container of a claim reads, by the decoder that it would use.
func (n *node) metadataOf(t *testing.T, claim string) *api.DeviceMetadata {
	t.Helper()
	c, err := prepared.In(n.state).Claim(claim)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(prepared.In(n.state).MetadataFile(c, "rails"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out api.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(f), &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// told asserts that containers of these claims read what ip shows in the pod, and returns the generations.
func (n *node) told(t *testing.T, in sandbox.Netns, claims ...string) (generations []int64) {
	t.Helper()
	entries, err := journal.Store{Dir: n.state}.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		m := n.metadataOf(t, claim)
		generations = append(generations, m.Generation)
		for _, d := range m.Requests[0].Devices {
			at := slices.IndexFunc(entries, func(e *journal.Entry) bool {
				return e.DeviceKey == "netdev/"+strings.TrimPrefix(d.Name, "netdev-")
			})
			if at < 0 {
				t.Fatalf("%s is not attached", d.Name)
			}
			var shown []struct {
				Address  string `json:"address"`
				AddrInfo []struct {
					Local string `json:"local"`
					Len   int    `json:"prefixlen"`
					Scope string `json:"scope"`
				} `json:"addr_info"`
			}
			in.JSON(t, &shown, "addr", "show", "dev", entries[at].IfName)
			want := &resourceapi.NetworkDeviceData{
				InterfaceName: entries[at].IfName, HardwareAddress: shown[0].Address,
			}
			for _, a := range shown[0].AddrInfo {
				if a.Scope == "global" {
					want.IPs = append(want.IPs, fmt.Sprintf("%s/%d", a.Local, a.Len))
				}
			}
			if diff := cmp.Diff(want, d.NetworkData); diff != "" {
				t.Errorf("%s: %s", d.Name, diff)
			}
		}
	}
	return generations
}

// Each container of a pod reads the interfaces of its devices, once they are there: those that the hook attaches and
// those that Multus does. It is written once for each sandbox, whatever the pod makes of its interfaces.
func TestHookMetadata(t *testing.T) {
	for name, multus := range map[string]bool{"alone": false, "beside Multus": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ipam := aloneNode(t)
			n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
			n.promise(t, "claim-2", ipam, rail("v2"))
			if multus {
				for _, ifName := range []string{"net1", "net2", "net3"} {
					n.must(t, n.ofPod("ADD", ifName, ipam))
				}
			}
			if m := n.metadataOf(t, claimUID); m.Generation != 1 || m.Requests[0].Devices[1].NetworkData != nil {
				t.Errorf("before: %+v", m)
			}
			pid := process(t, n.pod)
			state := stateOf(pid)
			if err := n.hook(claimUID, state); err != nil {
				t.Fatal(err)
			}
			if m := n.metadataOf(t, "claim-2"); m.Generation != 1 {
				t.Errorf("no container with it has started: %+v", m)
			}
			if err := n.hook("claim-2", state); err != nil {
				t.Fatal(err)
			}
			first := n.told(t, n.pod, claimUID, "claim-2")
			if first[0] < 2 || first[1] < 2 {
				t.Errorf("generations %v", first)
			}
			n.pod.IP(t, "addr", "add", "10.99.0.1/24", "dev", "net3")
			if err := n.hook(claimUID, state); err != nil {
				t.Fatal(err)
			}
			n.pod.IP(t, "addr", "del", "10.99.0.1/24", "dev", "net3")
			if again := n.told(t, n.pod, claimUID, "claim-2"); !slices.Equal(again, first) {
				t.Errorf("written again: %v, first %v", again, first)
			}
			endOf(t, pid, n.pod)
			if multus {
				n.detach(t)
			}
			second := sandbox.New(t)
			if err := n.hook(claimUID, stateOf(process(t, second))); err != nil {
				t.Fatal(err)
			}
			if now := n.told(t, second, claimUID); now[0] <= first[0] {
				t.Errorf("generation of the new sandbox %v, of the old one %v", now, first)
			}
			n.end(t, claimUID, "claim-2")
		})
	}
}

// A pod that has renamed an interface before the first container with its claim starts: the reason is told.
func TestHookMetadataRenamed(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"))
	n.promise(t, "claim-2", ipam, rail("v1"))
	state := stateOf(process(t, n.pod))
	if err := n.hook(claimUID, state); err != nil {
		t.Fatal(err)
	}
	n.pod.IP(t, "link", "set", "net1", "name", "mine")
	says(t, n.hook("claim-2", state), "read the interface net1, which the pod has by ResourceClaim default/rails: ")
	n.pod.IP(t, "link", "set", "mine", "name", "net1")
	n.end(t, claimUID, "claim-2")
}

// A container whose file can't be written does not start.
func TestHookMetadataLost(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"))
	c, err := prepared.In(n.state).Claim(claimUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(prepared.In(n.state).MetadataFile(c, "rails")); err != nil {
		t.Fatal(err)
	}
	state := stateOf(process(t, n.pod))
	says(t, n.hook(claimUID, state), "write the device metadata of claim default/rails: open ")
	n.save(t, c) // the agent's next look
	if err := n.hook(claimUID, state); err != nil {
		t.Fatal(err)
	}
	n.told(t, n.pod, claimUID)
	n.end(t, claimUID)
}
