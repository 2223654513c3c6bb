package cluster

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// network makes a NetworkAttachmentDefinition of this configuration, for the test.
func network(t *testing.T, name, config string) {
	t.Helper()
	apply(t, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: "+name+"}\n"+
		"spec: {config: '"+config+"'}\n")
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", name) })
}

func fabricOn(device, name string) string {
	return `{"cniVersion":"1.0.0","name":"` + name + `","type":"fabric","device":"` + device +
		`","ipam":{"type":"whereabouts","range":"198.51.100.0/28"}}`
}

// pod creates a pod with these networks, for the test.
func pod(t *testing.T, name, networks string) {
	t.Helper()
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, annotations: {k8s.v1.cni.cncf.io/networks: "`+networks+`"}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never}]
`)
	t.Cleanup(func() { gone(t, name) })
}

// rail makes an interface that a pod may have: a veth, as the machine has no other hardware.
func rail(t testing.TB, name string) {
	t.Helper()
	ip(t, "link", "add", name, "mtu", "1400", "type", "veth", "peer", "name", name+"p")
	ip(t, "link", "set", name+"p", "up")
	ip(t, "addr", "add", "192.0.2.1/24", "dev", name)
	ip(t, "link", "set", name, "up")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", name+"p").Run() })
}

func ip(t testing.TB, args ...string) string {
	t.Helper()
	out, err := output("ip", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// home waits until the rails are back on the node as they were.
func home(t *testing.T, rails ...string) {
	t.Helper()
	for _, name := range rails {
		until(t, name+" is home", func() error {
			out, err := output("ip", "-4", "addr", "show", "dev", name, "up")
			if err == nil && (!strings.Contains(out, "192.0.2.1/24") || !strings.Contains(out, "mtu 1400")) {
				err = textError(out)
			}
			return err
		})
	}
}

// nothingLeft asserts that neither journal nor whereabouts remember anything.
func nothingLeft(t *testing.T) {
	t.Helper()
	until(t, "journal and address pools are empty", func() error {
		list, err := journal.Store{Dir: journal.DefaultDir}.List()
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return textError("journal: " + list[0].String())
		}
		out, err := output("kubectl", "get", "ippools.whereabouts.cni.cncf.io", "-A",
			"-o", "jsonpath={.items[*].spec.allocations}")
		if err == nil && strings.Trim(out, "{} ") != "" {
			err = textError("allocations: " + out)
		}
		return err
	})
}

// status is the annotation network-status.
func status(t *testing.T, name string) (out []struct {
	Name, Interface string
	IPs             []string
	MTU             int
	Info            struct {
		PCI struct {
			Address string `json:"pci-address"`
			RDMA    string `json:"rdma-device"`
		}
	} `json:"device-info"`
}) {
	t.Helper()
	s := k(t, "get", "pod", name, "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	return out
}

func TestPodGetsAndReturns(t *testing.T) {
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	pod(t, "p1", "ib")
	ready(t, "p1")
	s := status(t, "p1")
	if len(s) != 2 || s[1].Interface != "net1" || s[1].Name != "default/ib" || s[1].MTU != 1400 || len(s[1].IPs) != 1 ||
		!strings.HasPrefix(s[1].IPs[0], "198.51.100.") {
		t.Errorf("network-status: %+v", s)
	}
	out := k(t, "exec", "p1", "--", "ip", "addr", "show", "net1")
	if !strings.Contains(out, s[1].IPs[0]+"/28") || !strings.Contains(out, "mtu 1400") {
		t.Errorf("in the pod:\n%s", out)
	}
	if _, err := output("ip", "link", "show", "rail0"); err == nil {
		t.Error("rail0 is on the node and in the pod")
	}
	gone(t, "p1")
	home(t, "rail0")
	nothingLeft(t)
}

// Two rails in one pod, in the order of the annotation, and under a name of the user's.
func TestTwoRails(t *testing.T) {
	rail(t, "rail0")
	rail(t, "rail1")
	network(t, "ib0", fabricOn("rail0", "ib0"))
	network(t, "ib1", fabricOn("rail1", "ib1"))
	pod(t, "p1", "ib0, ib1@storage")
	ready(t, "p1")
	var names, addresses []string
	for _, s := range status(t, "p1")[1:] {
		names, addresses = append(names, s.Interface), append(addresses, s.IPs...)
	}
	if !slices.Equal(names, []string{"net1", "storage"}) || len(slices.Compact(addresses)) != 2 {
		t.Errorf("%v %v", names, addresses)
	}
	gone(t, "p1")
	home(t, "rail0")
	home(t, "rail1")
	nothingLeft(t)
}

// A pod that is there too early says whom it waits for, and gets the device when that one goes.
func TestSecondPodWaits(t *testing.T) {
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	pod(t, "first", "ib")
	ready(t, "first")
	pod(t, "second", "ib")
	event(t, "second", "is in use by pod")
	gone(t, "first")
	ready(t, "second")
	gone(t, "second")
	home(t, "rail0")
	nothingLeft(t)
}

func TestWrongFieldIsNamed(t *testing.T) {
	network(t, "typo", `{"cniVersion":"1.0.0","name":"typo","type":"fabric","device":"rail0","mut":9000}`)
	pod(t, "p1", "typo")
	event(t, "p1", `mut`)
	event(t, "p1", `mtu`)
	gone(t, "p1")
	nothingLeft(t)
}

func TestForcedDeletion(t *testing.T) {
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	pod(t, "p1", "ib")
	ready(t, "p1")
	k(t, "delete", "pod", "p1", "--force", "--grace-period=0")
	home(t, "rail0")
	nothingLeft(t)
}
