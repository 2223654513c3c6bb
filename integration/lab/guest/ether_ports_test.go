//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/kubelet"
)

// twoPorts is an attachment of both ports of an HCA. Its IPAM plugin notes its calls, and waits for the second one's
// ADD as long as there is a file "wait".
func twoPorts(t *testing.T) (a *attachment, dir string) {
	t.Helper()
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name + "+" + e[1].Attrs().Name}}.Load(t)
	t.Cleanup(func() { Unload(t) })
	Unchanged(t)
	dir = t.TempDir()
	a = interfaceOf(NewPod(t, "pod"), "net1", network(config{
		"device": e[0].Attrs().Name, "allPorts": true, "allowDown": true, "ipam": config{"type": "odd"},
	}))
	a.path = plugins(t, map[string]string{"odd": fmt.Sprintf(`cd %s
echo $CNI_COMMAND $CNI_IFNAME >>calls
case $CNI_COMMAND-$CNI_IFNAME in
VERSION*) echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' ;;
ADD-net1) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.1/24"}]}' ;;
ADD-*) while test -e wait; do sleep 0.05; done; echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}' ;;
esac
exit 0`, dir)})
	return a, dir
}

func calledAs(t *testing.T, dir, want string) func() error {
	return func() error {
		told, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err == nil && !strings.Contains(string(told), want) {
			err = fmt.Errorf("IPAM was told %q, not %q", told, want)
		}
		return err
	}
}

// DEL comes while ADD waits for the second interface's address: it returns both, and ADD fails and touches neither. The
// addresses are free when the IPAM plugin has ended.
func TestEtherPortsReturnedMeanwhile(t *testing.T) {
	a, dir := twoPorts(t)
	if err := os.WriteFile(filepath.Join(dir, "wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan Outcome)
	add := a.call("ADD")
	go func() { ended <- add.Exec(t) }()
	Until(t, "ADD waits", calledAs(t, dir, "ADD net1p2\n"))
	wantError(t, a.call("DEL").Exec(t), 11, "net1p2", "another call holds the IPAM plugin")
	a.pod.hasHCA(t)
	next := *a
	next.pod, next.id = NewPod(t, "next"), "next"
	next.conf = network(config{"device": a.conf["device"], "allPorts": true, "allowDown": true})
	next.add(t)
	if err := os.Remove(filepath.Join(dir, "wait")); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-ended, 3, "port 2", "while ADD waited for its IPAM plugin")
	a.del(t)
	next.pod.hasHCA(t, "mlx5_0")
	next.pod.sh(t, "ip link show net1p2")
	next.del(t)
	for _, want := range []string{"DEL net1\n", "DEL net1p2\n"} {
		if err := calledAs(t, dir, want)(); err != nil {
			t.Error(err)
		}
	}
}

// GC knows the second interface by the first one; both go with it. So does a pod that is gone: the next ADD reclaims
// both.
func TestEtherPortsOfDeadPods(t *testing.T) {
	a, dir := twoPorts(t)
	ipam := config{"ipam": config{"type": "odd"}}
	second := *a
	second.ifname = "net1p2"
	a.add(t)
	if out := collect(t, ipam, a.path, a); out.Failed() {
		t.Errorf("GC: %s", out)
	}
	a.pod.sh(t, "ip link show net1p2")
	if err := calledAs(t, dir, "DEL")(); err == nil {
		t.Error("GC has given back the addresses of a valid attachment")
	}
	if out := collect(t, ipam, a.path); out.Failed() {
		t.Errorf("GC: %s", out)
	}
	for _, gone := range []*attachment{a, &second} {
		if _, err := os.Stat(gone.entryFile()); err == nil {
			t.Errorf("%s is still on record", gone.ifname)
		}
	}
	a.pod.hasHCA(t)

	a.add(t)
	a.pod.Delete(t)
	next := *a
	next.pod, next.id = NewPod(t, "next"), "next"
	next.add(t)
	next.pod.hasHCA(t, "mlx5_0")
	next.pod.sh(t, "ip link show net1p2")
	// An ADD that was killed is cleared by the next one of the same attachment, with its second interface.
	if out := next.call("ADD").Exec(t); !out.Failed() {
		t.Errorf("a second ADD of a whole attachment: %s", out)
	}
	next.del(t)
	RunWithFault(t, next.call("ADD"), "before/ipam-add#2", FaultKill)
	next.add(t)
	next.del(t)
	a.del(t)
}

// RoCE LAG: a bond's RDMA device stays with it on the host, whatever the node policy allows.
func TestEtherBondStays(t *testing.T) {
	Modprobe(t, "bonding")
	nic := nics(t, "e1000e")[0].Attrs().Name
	onHost(t, "ip link add bond9 type bond mode active-backup; ip link set "+nic+" down; ip link set "+nic+
		" master bond9; ip link set bond9 up")
	Fabric{RoCE: []string{"bond9@" + nic}, Names: []string{"mlx5_bond_0"}}.Load(t)
	t.Cleanup(func() { Unload(t); onHost(t, "ip link del bond9; ip link set "+nic+" down") })
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": nic, "allowDown": true}))
	wantError(t, a.call("ADD").Exec(t), 104, nic, "bond")
	policyFile(t, `{"allowEnslaved": ["*"]}`)
	wantError(t, a.call("ADD").Exec(t), 101, "mlx5_bond_0 is that of bond bond9 (RoCE LAG)", "give pods VFs")
	a.del(t)
}

// Where pods may have only what they were given, the other port comes with the RDMA device that kubelet has given; one
// that kubelet has given to another pod does not.
func TestEtherPortsGiven(t *testing.T) {
	a, _ := twoPorts(t)
	policyFile(t, `{"requireAllocated": true}`)
	pci := func(i int) string {
		target, err := os.Readlink("/sys/class/net/" + nics(t, "e1000e")[i].Attrs().Name + "/device")
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(target)
	}
	first, second := pci(0), pci(1)
	delete(a.conf, "device")
	wantError(t, a.byMultus("ADD", first).Exec(t), 104, "was not given to this pod")
	kubeletGives(t, first)
	a.byMultus("ADD", first).Must(t)
	a.pod.sh(t, "ip link show net1p2")
	a.byMultus("CHECK", first).Must(t)
	a.byMultus("DEL", first).Must(t)

	file := filepath.Join(kubelet.DefaultDir, kubelet.Checkpoint)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin = `{"Data":{"PodDeviceEntries":[`
	other := fmt.Sprintf(begin+`{"PodUID":"other","ContainerName":"c","ResourceName":"example.com/nic",`+
		`"DeviceIDs":{"-1":[%q]},"AllocResp":""},`, second)
	both := strings.Replace(string(text), begin, other, 1)
	if err := os.WriteFile(file, []byte(both), 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.byMultus("ADD", first).Exec(t), 101, "port 2", `given to pod of UID "other"`)
	a.byMultus("DEL", first).Must(t)
}
