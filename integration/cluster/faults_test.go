package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// entries is where the node's journal is.
const entries = journal.DefaultDir + "/attachments/"

// hasTwo asserts that two devices and two addresses are out.
func hasTwo(t *testing.T, n *LabNode) {
	t.Helper()
	if held, err := allocations(n); err != nil || len(held) != 2 {
		t.Errorf("addresses: %v, %v", held, err)
	}
	if out := on(t, n, "ls "+entries+" | wc -l"); out != "2\n" {
		t.Errorf("attachments: %s", out)
	}
}

// A pod waits for rails, and gets them when the first pod goes. Then it is forced out.
func forced(t *testing.T, n *LabNode) {
	first, second := "first-"+n.Name, "second-"+n.Name
	railPod(t, first, fabric200, 3, n.Name)
	ready(t, first)
	railPod(t, second, fabric200, 2, n.Name)
	event(t, second, "Insufficient fabric.dev/"+fabric200)
	gone(t, first)
	stage(t, "first pod is gone")
	ready(t, second)
	stage(t, "second pod is Ready")
	hasTwo(t, n)
	k(t, "delete", "pod", second, "--force", "--grace-period=0")
}

// One pod, to which everything happens.
func killed(t *testing.T, n *LabNode) {
	pod := "killed-" + n.Name
	railPod(t, pod, fabric200, 2, n.Name)
	ready(t, pod)
	hasTwo(t, n)
	stage(t, "pod is Ready")
	agentKilled(t, n)
	hasTwo(t, n)
	pauseKilled(t, n, pod, 2)
	hasTwo(t, n)
	kubeletKilled(t, n, pod)
}

// The agent that kubelet starts again finds the devices in the pod, and offers no fewer than before.
func agentKilled(t *testing.T, n *LabNode) {
	t.Helper()
	anotherAgent(t, n)
	offersAll(t, n)
	stage(t, "there is another agent")
}

// anotherAgent kills the agent, and waits for the one that kubelet starts.
func anotherAgent(t *testing.T, n *LabNode) {
	t.Helper()
	on(t, n, "kill -9 $(pidof fabric-agent)")
	eventually(t, "there is another agent", prints("1 true",
		"-n", "fabric-system", "get", "pod", "--field-selector", "spec.nodeName="+n.Name,
		"-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount} "+
			"{.items[*].status.containerStatuses[*].ready}"))
}

// offersAll waits until kubelet offers all devices of the fabric that have a cable. After a boot the API server may
// still have the number of the boot before, with which kubelet admits a pod without devices; kubelet's own file is lost
// with the boot.
func offersAll(t *testing.T, n *LabNode) {
	t.Helper()
	const has = `"fabric.dev/` + fabric200 + `":["`
	eventually(t, "kubelet has the devices from the agent", func() error {
		out, err := n.Run("cat /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
		if err == nil && !strings.Contains(out, has) {
			err = textError(out)
		}
		return err
	})
	want := fmt.Sprint(len(n.Rails))
	eventually(t, "all devices are offered: "+want, prints(want,
		"get", "node", n.Name, "-o", `jsonpath={.status.allocatable.fabric\.dev/`+fabric200+"}"))
}

// kubelet makes a new sandbox for the same pod: the devices go home and come again.
func pauseKilled(t *testing.T, n *LabNode, pod string, devices int) {
	t.Helper()
	ids := strings.Fields(on(t, n, `grep -ho '"containerID": *"[0-9a-f]*"' `+entries+`* | grep -o '[0-9a-f]\{64\}'`))
	if ids = slices.Compact(ids); len(ids) != 1 {
		t.Fatalf("containers with devices: %v", ids)
	}
	on(t, n, "kill -9 $(ctr -n k8s.io tasks ls | awk '$1 == \""+ids[0]+"\" {print $2}')")
	// Attached: an entry is there before its address is. The pod is called Ready all the time.
	eventually(t, "the pod has another sandbox", func() error {
		out, err := n.Run("grep -L " + ids[0] + " " + entries + `* | xargs -r grep -l '"attached": *true' | wc -l`)
		if err == nil && out != fmt.Sprintln(devices) {
			err = textError("entries of another that are attached: " + out)
		}
		return err
	})
	ready(t, pod)
	stage(t, "the pod has another sandbox")
}

// kubelet dies when the first of two devices is home, and the pod goes all the same once there is a kubelet again.
func kubeletKilled(t *testing.T, n *LabNode, pod string) {
	t.Helper()
	k(t, "delete", "pod", pod, "--wait=false")
	on(t, n, "until [ $(ls "+entries+" | wc -l) -lt 2 ]; do sleep .05; done; kill -9 $(cat /run/kubelet.pid)")
	stage(t, "kubelet is dead")
	if err := n.StartKubelet(); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
}

// Without Multus the runtime calls the cluster's own network alone, and the pod's namespace goes with the devices in
// it.
func multusAbsent(t *testing.T, n *LabNode) {
	pod := "lost-" + n.Name
	railPod(t, pod, fabric200, 2, n.Name)
	ready(t, pod)
	stage(t, "pod is Ready")
	withoutMultus(t, n)
	gone(t, pod)
	nodeEventOf(t, n.Name, "DeviceRepaired", "network "+fabric200)
	stage(t, "the agent has repaired")
	withMultus(t, n)
}

// withoutMultus leaves a node the cluster's own network alone.
func withoutMultus(t *testing.T, n *LabNode) {
	t.Helper()
	on(t, n, `cd /etc/cni/net.d && mv 00-multus.conf /run/ && mv /opt/cni/bin/multus /run/
tr -d '\n' </run/00-multus.conf | sed 's/.*"delegates":\[\(.*\)\]}$/\1/' >10-bridge.conflist`)
}

func withMultus(t *testing.T, n *LabNode) {
	t.Helper()
	on(t, n, "rm /etc/cni/net.d/10-bridge.conflist; "+
		"mv /run/multus /opt/cni/bin/ && mv /run/00-multus.conf /etc/cni/net.d/")
}

// reboot cuts the power of a node whose pod has all its rails. The node comes up with the journal of its earlier boot,
// as one does whose /run is on a disk.
func reboot(t *testing.T, n *LabNode) {
	pod := "back-" + n.Name
	railPod(t, pod, fabric200, 4, n.Name)
	ready(t, pod)
	eventually(t, "the journal is copied", func() error { // files come and go in it while it is read
		_, err := n.Run("rm -rf /out/earlier && cp -r " + journal.DefaultDir + " /out/earlier")
		return err
	})
	if err := n.Reboot(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.StartKubelet(), n.Ready()); err != nil {
		t.Fatal(err)
	}
	stage(t, "the node is back")
	offersAll(t, n) // kubelet has none before the agent has registered them
	stage(t, "the agent is back")
	// It is made again, as controllers do: kubelet has looked at it before the agent had registered the devices.
	gone(t, pod)
	railPod(t, pod, fabric200, 4, n.Name)
	eventually(t, "the pod runs", func() error {
		phase, err := output("kubectl", "get", "pod", pod, "-o", "jsonpath={.status.phase}")
		if err == nil && phase == "Failed" { // what the node offered was still that of the boot before
			gone(t, pod)
			railPod(t, pod, fabric200, 4, n.Name)
		}
		if err == nil && phase != "Running" {
			err = textError(phase)
		}
		return err
	})
	ready(t, pod)
	stage(t, "the pod is back")
	hasRails(t, n, pod)
	gone(t, pod)
}
