//go:build labguest

package guest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A pod with NET_ADMIN moves what it got to a third network namespace: that of another pod, or one of its own that a
// process, or only a descriptor on its way (SCM_RIGHTS), holds.

// third makes such a namespace. move moves an interface of a pod there, end ends it.
type third struct {
	*Pod
	end func()
}

func newThird(t *testing.T, name, how string) *third {
	t.Helper()
	x := &third{Pod: NewPod(t, name), end: func() {}}
	if how == "process" {
		x.end = x.Spawn(t).Kill
	}
	return x
}

// hide leaves nothing of the namespace but what holds it.
func (x *third) hide(t *testing.T, how string) {
	t.Helper()
	if how == "second pod" {
		x.end = func() { x.Delete(t) }
		return
	}
	if how == "in flight" {
		x.send(t)
	}
	x.Delete(t)
}

// send puts a descriptor of the namespace into a socket, and closes it.
func (x *third) send(t *testing.T) {
	t.Helper()
	fd, err := unix.Open(x.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendmsg(p[0], []byte("x"), unix.UnixRights(fd), nil, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	x.end = func() { unix.Close(p[0]); unix.Close(p[1]) }
	t.Cleanup(x.end)
}

// childIn is an IPoIB child for a pod, with an address.
func childIn(pod *Pod) *attachment {
	return interfaceOf(pod, "net1", network(config{"mode": "ipoib", "master": "ib0", "ipam": hostLocal("10.0.0.0/24")}))
}

// keepsAddress checks that two DELs fail, that the next ones give up, and that the address is held all the same.
func keepsAddress(t *testing.T, a *attachment) {
	t.Helper()
	for try := 1; try <= 4; try++ {
		if out := a.call("DEL").Exec(t); out.Failed() != (try < 3) {
			t.Errorf("DEL %d: %s", try, out)
		}
	}
	if held := heldAddresses(t); len(held) != 1 {
		t.Errorf("addresses held: %v", held)
	}
}

// The child of shared mode escapes. It is deleted where it is, before its address is given to another pod.
func TestSharedAdversaryChild(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 1}.Load(t)
	before := Unchanged(t)
	for i, how := range []string{"second pod", "process"} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pod gone %t", how, gone), func(t *testing.T) {
				pod := NewPod(t, fmt.Sprintf("pod%d%t", i, gone))
				a := childIn(pod)
				a.add(t)
				x := newThird(t, fmt.Sprintf("third%d%t", i, gone), how)
				pod.sh(t, "ip link set net1 netns "+x.Name)
				x.sh(t, "ip link set net1 name mine; ip link set mine group 7 up; ip address add 10.0.0.2/24 dev mine")
				x.hide(t, how)
				if gone {
					pod.Delete(t)
				}
				a.del(t)
				Same(t, before)
				if how == "second pod" && strings.Contains(x.sh(t, "ip -o -d link"), "ipoib") {
					t.Error("the child is still there")
				}
				x.end()
				Same(t, before)
			})
		}
	}
}

// In a namespace that can't be looked into, the child keeps its address and its entry. It is over when the namespace
// ends: then the kernel puts the child on the host, where the next DEL finds it.
func TestSharedAdversaryChildInFlight(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 1}.Load(t)
	before := Unchanged(t)
	pod := NewPod(t, "pod")
	a := childIn(pod)
	a.add(t)
	x := newThird(t, "third", "in flight")
	pod.sh(t, "ip link set net1 netns third")
	x.sh(t, "ip link set net1 group 7 up; ip address add 10.0.0.2/24 dev net1")
	x.hide(t, "in flight")
	keepsAddress(t, a)
	if got := onFile(t); !strings.Contains(got, "pod@net1") {
		t.Errorf("on file: %s", got)
	}
	x.end()
	Until(t, "the child is on the host", func() error {
		links, err := dump(netlink.LinkList)
		is := func(l netlink.Link) bool { return l.Type() == "ipoib" && l.Attrs().Group == 7 }
		if err == nil && !slices.ContainsFunc(links, is) {
			err = fs.ErrNotExist
		}
		return err
	})
	a.del(t)
	Same(t, before)
}

// The pod deletes the child itself: the kernel proves that it is gone.
func TestSharedAdversaryChildDeleted(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 1}.Load(t)
	before := Unchanged(t)
	for _, gone := range []bool{false, true} {
		pod := NewPod(t, fmt.Sprintf("pod%t", gone))
		a := childIn(pod)
		a.add(t)
		pod.sh(t, "ip link del net1")
		if gone {
			pod.Delete(t)
		}
		a.del(t)
		Same(t, before)
	}
}

// Where nldev has never listed the child's queue pair, as with mlx5, its absence proves nothing: the child keeps its
// address and its entry, until the HCA is registered anew. The entry is what tells that ADD has seen the queue pair.
func TestSharedAdversaryChildUnlisted(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 1}.Load(t)
	before := Unchanged(t)
	hca := regexp.MustCompile(`"hca":\d+`)
	for what, proof := range map[string]func(entry string) string{
		"listed":          func(s string) string { return strings.Replace(s, `"group":`, `"listed":true,"group":`, 1) },
		"registered anew": func(s string) string { return hca.ReplaceAllString(s, `"hca":9999`) },
	} {
		t.Run(what, func(t *testing.T) {
			pod := NewPod(t, "pod"+what[:1])
			a := childIn(pod)
			a.add(t)
			edit := func(with func(string) string) {
				t.Helper()
				file := "/run/fabric-cni/attachments/" + pod.Name + "@net1"
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				s := with(string(b))
				if s == string(b) {
					t.Fatalf("nothing to change in %s", s)
				}
				if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			edit(func(s string) string { return strings.Replace(s, `"listed":true`, `"listed":false`, 1) })
			pod.sh(t, "ip link del net1")
			keepsAddress(t, a)
			edit(proof)
			a.del(t)
			Same(t, before)
		})
	}
}

// A child of the host's own that got the queue pair's number, and so the hardware address, of one that the pod has
// deleted: it is left alone.
func TestSharedAdversaryHostsChild(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 1}.Load(t)
	before := Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"mode": "ipoib", "master": "ib0", "ipam": static("10.0.0.1/24")}))
	a.add(t)
	was := pod.link(t, "net1").Attrs().HardwareAddr.String()
	pod.sh(t, "ip link del net1")
	pod.Delete(t)
	shell(t, "ip link add link ib0 name own type ipoib pkey 0xffff; ip link set own up")
	own := mustLink(t, Host(t), "own").HardwareAddr.String()
	file := "/run/fabric-cni/attachments/pod@net1"
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.ReplaceAll(string(b), was, own)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.call("DEL").Exec(t)
	}
	mustLink(t, Host(t), "own")
	shell(t, "ip link del own")
	a.del(t)
	Same(t, before)
}

// escapes are what a pod does with a device's interface and RDMA device before they are in a third namespace for good.
// THIRD stands for its name, $D for the interface.
var escapes = map[string]string{
	"netdev":          `ip link set net1 netns THIRD`,
	"netdev and RDMA": `ip link set net1 netns THIRD; rdma dev set mlx5_0 netns THIRD`,
	"RDMA":            `rdma dev set mlx5_0 netns THIRD`,
}

// A whole device escapes: it is brought home from there; where nothing leads there, its driver is bound again.
func TestEtherAdversaryDevice(t *testing.T) {
	name := nics(t, "e1000e")[0].Attrs().Name
	loseable(t, name, 1)
	Fabric{RoCE: []string{name}}.Load(t)
	before := Unchanged(t)
	i := 0
	for _, how := range []string{"second pod", "process", "in flight"} {
		for what, script := range escapes {
			if how == "in flight" && what != "netdev" { // fakeib's RoCE device does not belong to the card's driver
				continue
			}
			for _, gone := range []bool{false, true} {
				i++
				t.Run(fmt.Sprintf("%s, %s, pod gone %t", how, what, gone), func(t *testing.T) {
					pod := NewPod(t, fmt.Sprintf("pod%d", i))
					fields := config{"device": name, "ipam": hostLocal("10.0.0.0/24")}
					if how == "in flight" {
						fields["rdma"] = "none"
					}
					a := interfaceOf(pod, "net1", network(fields))
					a.add(t)
					x := newThird(t, fmt.Sprintf("third%d", i), how)
					pod.sh(t, strings.ReplaceAll(script, "THIRD", x.Name))
					if what != "RDMA" {
						x.sh(t, "ip link set net1 name mine; ip link set mine up; "+
							"ip link add link mine name kid type macvlan")
					}
					x.hide(t, how)
					if gone {
						pod.Delete(t)
					}
					a.del(t)
					Same(t, before)
					x.end()
					Same(t, before)
				})
			}
		}
	}
}

// names are what a pod can call its interface before its namespace ends.
var oddNames = map[string]string{
	"no text":    `ip link set net1 down; ip link set net1 name "$(printf '\377')"`,
	"all":        `ip link set net1 down mtu 1279; ip link set net1 name all`,
	"default":    `ip link set net1 down mtu 1279; ip link set net1 name default`,
	"blanks":     `ip link set net1 down; ip link set net1 name ';$x'`,
	"altnames":   `ip link property add dev net1 altname "$(printf 'a\377')" altname all`,
	"temporary":  `ip link set net1 down; ip link set net1 name fabric9`,
	"loopback":   `ip link set lo down; ip link set lo name lo2; ip link set net1 down; ip link set net1 name lo`,
	"as another": `ip link set net1 down; ip link set net1 name OTHER`,
}

func TestEtherAdversaryNames(t *testing.T) {
	cards := nics(t, "e1000e")
	name := cards[0].Attrs().Name
	loseable(t, name, 1)
	Fabric{RoCE: []string{name}}.Load(t)
	before := Unchanged(t)
	i := 0
	for what, script := range oddNames {
		for _, gone := range []bool{false, true} {
			i++
			t.Run(fmt.Sprintf("%s, pod gone %t", what, gone), func(t *testing.T) {
				pod := NewPod(t, fmt.Sprintf("pod%d", i))
				a := interfaceOf(pod, "net1", network(config{"device": name, "ipam": static("10.0.0.1/24")}))
				a.add(t)
				pod.sh(t, strings.ReplaceAll(script, "OTHER", cards[1].Attrs().Name))
				if gone {
					pod.Delete(t)
				}
				a.del(t)
				Same(t, before)
			})
		}
	}
}

// A pod parks its device on the host, as a third namespace ends while the pod lives, under the names of a device that
// another pod has: that one gets its name with the first DEL all the same, and an ADD that asks for the name does not
// get the wrong device.
func TestEtherAdversaryParked(t *testing.T) {
	cards := nics(t, "e1000e")
	victim, mine := cards[0].Attrs().Name, cards[1].Attrs().Name
	loseable(t, victim, 1)
	loseable(t, mine, 2)
	pci := functionOf(t, cards[1])
	before := Unchanged(t)
	for i, script := range []string{
		"ip link property add dev net1 altname " + victim,
		"ip link set net1 down; ip link set net1 name " + victim,
		"ip link property add dev net1 altname " + victim + " altname fabric" + fmt.Sprint(cards[0].Attrs().Index),
	} {
		t.Run(script, func(t *testing.T) {
			a := interfaceOf(NewPod(t, fmt.Sprintf("victim%d", i)), "net1", network(config{
				"device": victim, "ipam": static("10.0.0.1/24"),
			}))
			a.add(t)
			b := interfaceOf(NewPod(t, fmt.Sprintf("attacker%d", i)), "net1", network(config{
				"device": mine, "ipam": static("10.0.0.2/24"),
			}))
			b.add(t)
			x := newThird(t, fmt.Sprintf("third%d", i), "second pod")
			b.pod.sh(t, "ip link set net1 netns "+x.Name)
			x.sh(t, script)
			x.Delete(t)
			Until(t, "the device is on the host", func() error {
				list, err := os.ReadDir(filepath.Join("/sys/bus/pci/devices", pci, "net")) // empty while it is away
				if err == nil && len(list) == 0 {
					err = fs.ErrNotExist
				}
				return err
			})
			c := interfaceOf(NewPod(t, fmt.Sprintf("next%d", i)), "net1", network(config{"device": victim}))
			wantError(t, c.call("ADD").Exec(t), 101, fmt.Sprintf("victim%d", i))
			a.del(t)
			mustLink(t, Host(t), victim)
			b.del(t)
			Same(t, before)
		})
	}
}
