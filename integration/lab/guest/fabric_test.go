//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

const (
	stateDown   = "1: DOWN, 2: Polling"
	stateInit   = "2: INIT, 5: LinkUp"
	stateActive = "4: ACTIVE, 5: LinkUp"
)

// carrier waits until a host netdev has, or has not, a carrier.
func carrier(t *testing.T, ifname string, want bool) {
	t.Helper()
	Until(t, fmt.Sprintf("%s has carrier: %v", ifname, want), func() error {
		got, err := os.ReadFile("/sys/class/net/" + ifname + "/carrier")
		if err != nil {
			return err
		}
		if (string(got) == "1\n") != want {
			return fmt.Errorf("carrier is %q", got)
		}
		return nil
	})
}

// up sets a link up, with an address if cidr is not empty.
func up(t *testing.T, h *netlink.Handle, ifname, cidr string) {
	t.Helper()
	l, err := h.LinkByName(ifname)
	if err != nil {
		t.Fatal(err)
	}
	if cidr != "" {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.AddrAdd(l, addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// ping sends from a pod until an answer comes: joining the multicast groups takes a while after the link is up.
func ping(t *testing.T, from *Pod, address string) {
	t.Helper()
	Until(t, address+" answers "+from.Name, func() error {
		out, err := from.Command("ping", "-c", "1", "-W", "1", address)
		if err != nil {
			return err
		}
		if !strings.Contains(out, " 0% packet loss") {
			return errors.New(out)
		}
		return nil
	})
}

func TestFabricPorts(t *testing.T) {
	Fabric{
		Num:    6,
		Names:  []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7", "mlx5_5", "mlx5_6"},
		States: []int{4, 4, 4, 4, 1, 2},
	}.Load(
		t,
	)
	got, err := Ports()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"mlx5_0/1": stateActive, "mlx5_3/1": stateActive, "mlx5_4/1": stateActive, "mlx5_7/1": stateActive,
		"mlx5_5/1": stateDown, "mlx5_6/1": stateInit,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	for hca, want := range map[string]string{"mlx5_0": "0x1", "mlx5_7": "0x4", "mlx5_5": "0x0", "mlx5_6": "0x0"} {
		if lid, err := os.ReadFile(
			"/sys/class/infiniband/" + hca + "/ports/1/lid",
		); err != nil ||
			strings.TrimSpace(string(lid)) != want {
			t.Errorf("LID of %s is %q, %v, want %s", hca, lid, err, want)
		}
	}
	for i, hca := range []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7", "mlx5_5", "mlx5_6"} {
		link, err := NetdevOf(Host(t), BusAddress(i))
		if err != nil || link.Attrs().Name != fmt.Sprintf("ib%d", i) {
			t.Errorf("netdev of %s is %v, %v", hca, link, err)
		}
	}
}

func TestFabricCarrierFollowsPort(t *testing.T) {
	Fabric{Num: 2, States: []int{4, 1}}.Load(t)
	host := Host(t)
	up(t, host, "ib0", "")
	up(t, host, "ib1", "")
	carrier(t, "ib0", true)
	carrier(t, "ib1", false)
	for _, state := range []int{Down, Active, Init, Active, Armed, Active} {
		SetStates(t, Active, state)
		carrier(t, "ib1", state == Active)
	}
	SetStates(t, Down, Active)
	carrier(t, "ib0", false)
	carrier(t, "ib1", true)
	for _, bad := range []string{"0", "5", "x", "4,4,9"} {
		if err := os.WriteFile("/sys/module/fakeib/parameters/state", []byte(bad), 0o644); err == nil {
			t.Errorf("port state %q is accepted", bad)
		}
	}
}

func TestFabricPingOverPKeyChildren(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	host := Host(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for i, pod := range pods {
		parent, err := NetdevOf(host, BusAddress(i))
		if err != nil {
			t.Fatal(err)
		}
		up(t, host, parent.Attrs().Name, "")
		name := fmt.Sprintf("child%d", i)
		if err := Child(host, parent.Attrs().Name, name, 0x8001); err != nil {
			t.Fatal(err)
		}
		child, err := host.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := MoveLink(child.Attrs().Index, pod.Path, name); err != nil {
			t.Fatal(err)
		}
		up(t, pod.Handle(t), name, fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	ping(t, pods[0], "10.0.0.2")
	ping(t, pods[1], "10.0.0.1")
}

func TestFabricPingOverMovedHCAs(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for i, pod := range pods {
		Give(t, pod, i, "net1")
		up(t, pod.Handle(t), "net1", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	ping(t, pods[0], "10.0.0.2")
	for i, pod := range pods {
		want := []string{fmt.Sprintf("mlx5_%d", i)}
		if diff := cmp.Diff(want, pod.Sysfs(t, "/sys/class/infiniband")); diff != "" {
			t.Errorf("HCAs that %s sees (-want +got):\n%s", pod.Name, diff)
		}
	}
	ports, err := Ports()
	if err != nil || len(ports) != 0 {
		t.Errorf("the host still sees %v, %v", slices.Collect(maps.Keys(ports)), err)
	}
}
