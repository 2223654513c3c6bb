package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// twoPorts replaces the HCAs of the node by mlx5_20, which has two Ethernet ports: ens20 and ens21. The node has no
// other HCA from now on.
func twoPorts(t *testing.T, n *LabNode) {
	t.Helper()
	on(t, n, `modprobe e1000e
i=20
for d in $(ls -d /sys/bus/pci/drivers/e1000e/0000:*); do
  was=$(ls "$d/net")
  ip link set "$was" name ens$i
  ip link set ens$i up
  i=$((i + 1))
done
[ $i = 22 ]
until rmmod fakeib; do sleep 1; done # the agent may be about to read
modprobe fakeib num=0 roce=ens20+ens21 roce_verbs=1 names=mlx5_20`)
	n.Rails = []Rail{{HCA: "mlx5_20", Netdev: "ens20"}, {HCA: "mlx5_20", Netdev: "ens21"}}
	stage(t, "the node has an HCA with two Ethernet ports")
}

// A Fabric with allPorts: one device, and a pod that gets it has the interfaces of both ports, allocated by the device
// plugin or by a ResourceClaim, and again after its sandbox was killed.
func ports(t *testing.T, n *LabNode) {
	spec := `{precedence: 1, allocation: %s, match: {devices: [ens20]},
  network: {rdmaMode: Exclusive, allPorts: true},
  addresses: {nodeRanges: {ranges: [{range: 10.30.0.0/16, perNodePrefixLength: 27}]}}}`
	t.Run("device plugin", func(t *testing.T) {
		const name, pod = "ports", "by-resource"
		fabric(t, name, fmt.Sprintf(spec, "DevicePlugin"))
		eventually(t, "one device is offered", prints("1",
			"get", "node", n.Name, "-o", `jsonpath={.status.allocatable.fabric\.dev/`+name+"}"))
		railPod(t, pod, name, 1, n.Name)
		ready(t, pod)
		hasPorts(t, n, pod)
		if s := status(t, pod); len(s) != 3 || s[1].Interface != "net1" || s[2].Interface != "net1p2" {
			t.Errorf("network-status: %+v", s)
		}
		pauseKilled(t, n, pod, 2)
		restarted(t, pod)
		hasPorts(t, n, pod)
		gone(t, pod)
	})
	t.Run("claim", func(t *testing.T) {
		const name, pod = "ports-dra", "by-claim"
		fabric(t, name, fmt.Sprintf(spec, "DRA"))
		published(t, n, name, func(devices []resourceapi.Device) error {
			if len(devices) != 1 || text(devices[0], "rdmaDevice") != "mlx5_20" || len(devices[0].Taints) > 0 {
				return textError("want mlx5_20 alone")
			}
			return nil
		})
		template(t, "both-ports", rails(name, 1))
		claimPod(t, pod, n.Name, name, []string{"both-ports"})
		ready(t, pod)
		hasPorts(t, n, pod)
		gone(t, pod)
		unprepared(t, n)
	})
}

// hasPorts asserts that the pod has the HCA, its device files and the interfaces of both ports, each with an address.
func hasPorts(t *testing.T, n *LabNode, pod string) {
	t.Helper()
	out := k(t, "exec", pod, "--", "sh", "-c", `ls /dev/infiniband | xargs; ls /sys/class/infiniband
ip -4 -o addr show scope global | awk '$2 ~ /^net/ {print $2, $4}'`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || lines[1] != "mlx5_20" || !strings.HasPrefix(lines[2], "net1 10.30.") ||
		!strings.HasPrefix(lines[3], "net1p2 10.30.") {
		t.Fatalf("pod %s has:\n%s", pod, out)
	}
	if want := filesOn(t, n, "mlx5_20"); !slices.Equal(strings.Fields(lines[0]), want) || len(want) != 2 {
		t.Errorf("device files %s, want %v", lines[0], want)
	}
}
