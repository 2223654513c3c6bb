//go:build labguest

package guest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// rename gives an RDMA device in the pod another name, as a pod with NET_ADMIN can.
func (p *Pod) rename(t testing.TB, index uint32, name string) {
	t.Helper()
	if err := p.Do(func() error { return SetRDMA(index, name, "") }); err != nil {
		t.Fatal(err)
	}
}

// retried calls DEL as a runtime does: again, until it succeeds. Something that can't be restored for good is reported
// twice.
func (a *attachment) retried(t testing.TB) (failed int) {
	t.Helper()
	for range 3 {
		out := a.call("DEL").Exec(t)
		if !out.Failed() {
			return failed
		}
		failed++
		t.Logf("DEL of %s %s: %s", a.id, a.ifname, out)
	}
	t.Errorf("DEL of %s %s has failed three times", a.id, a.ifname)
	return failed
}

// ends are the ways in which two attachments end: which is returned first, and whether their pods live then.
func ends(t *testing.T, f func(t *testing.T, order [2]int, dead bool)) {
	for _, dead := range []bool{false, true} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprintf("dead %t, order %v", dead, order), func(t *testing.T) { f(t, order, dead) })
		}
	}
}

// end returns both attachments, dead pods or not.
func end(t *testing.T, list []*attachment, order [2]int, dead bool) (failed int) {
	t.Helper()
	if dead {
		for _, a := range list {
			if _, err := os.Stat(a.pod.Path); err == nil { // one pod may have both
				a.pod.Delete(t)
			}
		}
	}
	for _, i := range order {
		failed += list[i].retried(t)
	}
	return failed
}

// A pod with two rails swaps their RDMA names. Every DEL works at once, whichever comes first, with the pod and without
// it, and what comes after it finds the devices with their own names.
func TestRDMANameSwapped(t *testing.T) {
	ends(t, func(t *testing.T, order [2]int, dead bool) {
		Fabric{Num: 2}.Load(t)
		before := Snapshot(t)
		pod := NewPod(t, "pod")
		list := []*attachment{
			interfaceOf(pod, "net1", network(config{"device": "ib0", "ipam": static("10.0.0.1/24")})),
			interfaceOf(pod, "net2", network(config{"device": "ib1", "ipam": static("10.0.1.1/24")})),
		}
		first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
		for _, a := range list {
			a.add(t)
		}
		pod.rename(t, first, "away")
		pod.rename(t, second, "mlx5_0")
		pod.rename(t, first, "mlx5_1")
		if failed := end(t, list, order, dead); failed > 0 {
			t.Errorf("%d DELs failed", failed)
		}
		Same(t, before)
	})
}

// The same, and then no DEL comes: the next pod gets the device, under its own name.
func TestRDMANameSwappedAndReclaimed(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	before := Snapshot(t)
	pod := NewPod(t, "pod")
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	for i := range 2 {
		interfaceOf(pod, fmt.Sprintf("net%d", i), network(byBus(i))).add(t)
	}
	pod.rename(t, first, "away")
	pod.rename(t, second, "mlx5_0")
	pod.rename(t, first, "mlx5_1")
	pod.Delete(t)
	for _, i := range []int{1, 0} {
		next := interfaceOf(NewPod(t, fmt.Sprintf("next%d", i)), "net1", network(byBus(i)))
		next.add(t)
		next.pod.hasHCA(t, fmt.Sprintf("mlx5_%d", i))
		next.del(t)
	}
	Same(t, before)
}

// Pod a has mlx5_0 under another name, and pod b calls its own device mlx5_0 meanwhile. Where names are unique in the
// system, the first DEL can't give the name back while b lives: it reports that, and the last DEL gives it back.
func TestRDMANameOfAnotherDevice(t *testing.T) {
	ends(t, func(t *testing.T, order [2]int, dead bool) {
		Fabric{Num: 2}.Load(t)
		before := Snapshot(t)
		first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
		list := []*attachment{
			interfaceOf(NewPod(t, "a"), "net1", network(config{"device": "ib0", "rdmaName": "rail0"})),
			interfaceOf(NewPod(t, "b"), "net1", network(config{"device": "ib1"})),
		}
		for _, a := range list {
			a.add(t)
		}
		if got := nameIn(t, list[0].pod, first); got != "rail0" {
			t.Errorf("the device of a is %q", got)
		}
		list[1].pod.rename(t, second, "mlx5_0")
		start := time.Now()
		failed := end(t, list, order, dead)
		t.Logf("%d DELs failed, in %v", failed, time.Since(start).Round(time.Millisecond))
		if wait := !dead && order[0] == 0 && !namesPerNetns(t); (failed > 0) != wait {
			t.Errorf("%d DELs failed", failed)
		}
		Same(t, before)
	})
}

// The name of a device that is away is given to another device, which stays on the host: by the node's owner, by a udev
// rule. DEL reports it twice, and brings everything else home. Once the name is free the next DEL gives it back.
func TestRDMANameTakenOnTheHost(t *testing.T) {
	Fabric{Num: 3}.Load(t)
	before := Snapshot(t)
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	a := interfaceOf(NewPod(t, "a"), "net1", network(config{"device": "ib0", "rdmaName": "rail0"}))
	a.add(t)
	if err := SetRDMA(second, "mlx5_0", ""); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.call("DEL").Exec(t), 105, "the device is home, but not as it was", "mlx5_0")
	if l := comesBack(t, "fakeib.0"); l.Name != "ib0" {
		t.Errorf("the netdev is %s", l.Name)
	}
	if failed := a.retried(t); failed != 1 {
		t.Errorf("%d more DELs failed, want 1", failed)
	}
	next := interfaceOf(NewPod(t, "next"), "net1", network(byBus(0))) // with the name that it could not get
	next.add(t)
	next.call("CHECK").Must(t)
	if err := SetRDMA(second, "mlx5_1", ""); err != nil {
		t.Fatal(err)
	}
	if nameOnHost(t, first) != "" {
		t.Error("the device of next is on the host")
	}
	next.del(t)
	Same(t, before)
}

// The same, and what gives the name back is the DEL of another device.
func TestRDMANameOwed(t *testing.T) {
	Fabric{Num: 3}.Load(t)
	before := Snapshot(t)
	second := indexOf(t, "mlx5_1")
	a := interfaceOf(NewPod(t, "a"), "net1", network(config{"device": "ib0", "rdmaName": "rail0"}))
	other := interfaceOf(NewPod(t, "b"), "net1", network(config{"device": "ib2"}))
	a.add(t)
	other.add(t)
	if err := SetRDMA(second, "mlx5_0", ""); err != nil {
		t.Fatal(err)
	}
	if failed := a.retried(t); failed != 2 {
		t.Errorf("%d DELs failed, want 2", failed)
	}
	if err := SetRDMA(second, "mlx5_1", ""); err != nil {
		t.Fatal(err)
	}
	other.del(t)
	Same(t, before)
}

// A pod calls its device as one of the host is called: a move home under that name fails where names are unique per
// namespace, and the end of the namespace brings it home as ibdevN. And it takes the temporary name of its neighbour.
func TestRDMANameOfAHostDevice(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			Fabric{Num: 3}.Load(t)
			before := Snapshot(t)
			pod := NewPod(t, "pod")
			first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
			list := []*attachment{
				interfaceOf(pod, "net1", network(config{"device": "ib0"})),
				interfaceOf(pod, "net2", network(config{"device": "ib1"})),
			}
			for _, a := range list {
				a.add(t)
			}
			pod.rename(t, second, fmt.Sprintf("fabric%d", first))
			if namesPerNetns(t) {
				pod.rename(t, first, "mlx5_2")
			}
			if failed := end(t, list, [2]int{0, 1}, dead); failed > 0 {
				t.Errorf("%d DELs failed", failed)
			}
			Same(t, before)
		})
	}
}

// Where names are unique in the system, a name that another attachment's device has on the host is refused: that device
// could not return. Where they are not, two pods have equal names, and each device returns under its own.
func TestRDMANameThatIsAnotherDevices(t *testing.T) {
	Fabric{Num: 3}.Load(t)
	before := Snapshot(t)
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	a := interfaceOf(NewPod(t, "a"), "net1", network(config{"device": "ib0", "rdmaName": "rail0"}))
	b := interfaceOf(NewPod(t, "b"), "net1", network(config{"device": "ib1", "rdmaName": "mlx5_0"}))
	a.add(t)
	out := b.call("ADD").Exec(t)
	if !namesPerNetns(t) {
		wantError(t, out, 101, "mlx5_0", "container a has as net1", "unique in the whole system")
		b.del(t)
	} else {
		c := interfaceOf(NewPod(t, "c"), "net1", network(config{"device": "ib2", "rdmaName": "mlx5_0"}))
		c.add(t)
		b.call("CHECK").Must(t)
		c.call("CHECK").Must(t)
		if x, y := nameIn(t, b.pod, second), nameIn(t, a.pod, first); x != "mlx5_0" || y != "rail0" {
			t.Errorf("the devices are %q and %q", x, y)
		}
		b.pod.Delete(t)
		c.pod.Delete(t)
		c.del(t)
		b.del(t)
	}
	a.del(t)
	own := interfaceOf(NewPod(t, "own"), "net1", network(config{"device": "ib0", "rdmaName": "mlx5_0"}))
	own.add(t)
	own.del(t)
	Same(t, before)
}

// With "auto" every pod sees mlx5_0 and up, whatever its devices are called on the host. Where names are unique in the
// system they stay as they are.
func TestRDMANameAuto(t *testing.T) {
	Fabric{Num: 4, Names: []string{"rocep1", "mlx5_0", "mlx5_7", "mlx5_1"}}.Load(t)
	before := Snapshot(t)
	want := [][]string{{"rocep1", "mlx5_0"}, {"mlx5_7", "mlx5_1"}}
	if namesPerNetns(t) {
		want = [][]string{{"mlx5_0", "mlx5_1"}, {"mlx5_0", "mlx5_1"}}
	}
	var list []*attachment
	for i := range 4 {
		pod := list
		if i%2 == 0 {
			pod = []*attachment{interfaceOf(NewPod(t, fmt.Sprintf("pod%d", i)), "", nil)}
		}
		conf := byBus(i)
		conf["rdmaName"] = "auto"
		a := interfaceOf(pod[len(pod)-1].pod, fmt.Sprintf("net%d", i), network(conf))
		steps, _ := planned(t, a)
		a.add(t)
		list = append(list, a)
		name := want[i/2][i%2]
		if own := []string{"rocep1", "mlx5_0", "mlx5_7", "mlx5_1"}[i]; own != name {
			if text := strings.Join(steps, "\n"); !strings.Contains(text, " name "+name+"; ") {
				t.Errorf("the plan does not name it %s:\n%s", name, text)
			}
		}
	}
	for i, a := range list {
		a.call("CHECK").Must(t)
		a.pod.hasHCA(t, want[i/2]...)
	}
	for _, i := range []int{1, 2} {
		list[i].del(t)
	}
	list[0].pod.Delete(t)
	list[3].pod.Delete(t)
	list[3].del(t)
	list[0].del(t)
	SameButNumbers(t, before)
}
