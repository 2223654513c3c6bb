//go:build labguest

package guest

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// permutations returns all orders of 0 to n-1.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			q := append(append(append([]int{}, p[:i]...), n-1), p[i:]...)
			all = append(all, q)
		}
	}
	return all
}

// railPods adds one pod with one rail for each of n devices in order, and returns the attachments by device.
func railPods(t *testing.T, order []int, conf func(i int) config) []*attachment {
	t.Helper()
	list := make([]*attachment, len(order))
	for _, i := range order {
		list[i] = interfaceOf(NewPod(t, fmt.Sprintf("pod%d", i)), "net1", network(conf(i)))
		list[i].add(t)
	}
	return list
}

func byBus(i int) config { return config{"deviceID": fmt.Sprintf("platform/fakeib.%d", i)} }

// ib-sriov-cni: A added, B added, B returned, A returned: the names swap, and A's DEL fails for ever. Here four devices
// with the kernel's own names, each the lowest free one when a device returns, in all orders of return.
func TestPeerReturnInAnyOrder(t *testing.T) {
	Fabric{Num: 4}.Load(t)
	before := Snapshot(t)
	for _, order := range permutations(4) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			list := railPods(t, []int{0, 1, 2, 3}, byBus)
			for _, i := range order {
				list[i].del(t)
			}
			Same(t, before)
		})
	}
}

// The same with netdevs that an administrator has named after each other's turn: fakeib.0 is ib3, and so on.
func TestPeerReturnWithCrossedNames(t *testing.T) {
	Fabric{Num: 4}.Load(t)
	shell(
		t,
		"for i in 0 1 2 3; do ip link set ib$i name x$i; done; for i in 0 1 2 3; do ip link set x$i name "+
			"ib$((3-i)); done",
	)
	before := Snapshot(t)
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			list := railPods(t, []int{2, 0, 3, 1}, byBus)
			for _, i := range order {
				list[i].del(t)
			}
			Same(t, before)
		})
	}
}

// The pods die and the kernel brings everything home under whatever names are free; then DEL comes, in any order.
func TestPeerCrossedNamesAfterNetnsDeletion(t *testing.T) {
	Fabric{Num: 4}.Load(t)
	shell(t, "ip link set ib1 name rail1; ip link set ib3 up; ip address add 10.3.0.1/24 dev ib3")
	before := Snapshot(t)
	for round := range 6 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			list := railPods(t, rand.Perm(4), byBus)
			for _, i := range rand.Perm(4) {
				list[i].pod.Delete(t)
			}
			order := rand.Perm(4)
			if round%2 == 0 { // the kernel has finished, with the names in its own order
				for i := range 4 {
					comesBack(t, BusAddress(i))
				}
			}
			for _, i := range order {
				if out := list[i].call("DEL").Exec(t); out.Failed() {
					t.Errorf("return in order %v: DEL of fakeib.%d: %s", order, i, out)
				}
			}
			SameButNumbers(t, before)
		})
	}
}

// Names and altnames that are taken: by another device on the host while this one was away, and by an altname in the
// pod.
func TestPeerNameTakenMeanwhile(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Modprobe(t, "dummy")
	before := Snapshot(t)
	a := railPods(t, []int{0}, byBus)[0]
	shell(t, "ip link add ib0 type dummy")
	out := a.call("DEL").Exec(t)
	t.Logf("DEL with the name taken: %s %s", out, out.Stderr)
	shell(t, "ip link del ib0")
	if comesBack(t, "fakeib.0").Name != "ib0" {
		a.del(t) // whatever it said, calling again must not make it worse
		if name := comesBack(t, "fakeib.0").Name; name != "ib0" {
			if !out.Failed() {
				shell(t, "ip link set "+name+" name ib0")
			} else {
				t.Errorf("the device is %s after DEL was repeated with the name free", name)
			}
		}
	}
	Same(t, before)
}
