package fabric_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// railNode is a node with so many rails, and with a kubelet.
type railNode struct {
	*node
	kubelet string
	ids     []string
	t       *testing.T
}

func newRailNode(t *testing.T, rails int) *railNode {
	t.Helper()
	r := &railNode{node: newNode(t), kubelet: t.TempDir(), ids: []string{"netdev/v0"}}
	for i := 1; i < rails; i++ {
		name := fmt.Sprint("v", i)
		r.host.Veth(t, name, r.far, "w"+name)
		r.ids = append(r.ids, "netdev/"+name)
	}
	r.policy(t, strings.TrimSuffix(sandbox.AllowVirtual, "}")+fmt.Sprintf(`,"devicePluginDir":%q}`, r.kubelet))
	r.before = r.host.State(t)
	return r
}

const railResource = "fabric.dev/rail"

// give is what kubelet remembers: other pods, and these devices of a pod, those of each container for itself.
func (r *railNode) give(t *testing.T, pod string, containers ...[]string) {
	t.Helper()
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[string][]string
		AllocResp                           []byte
	}
	entries := []entry{{"other", "c", railResource, map[string][]string{"-1": {"netdev/v8", "netdev/v9"}}, nil},
		{pod, "c", "fabric.dev/storage", map[string][]string{"0": {"netdev/v7"}}, nil}}
	for i, ids := range containers {
		entries = append(entries,
			entry{pod, fmt.Sprint("c", i), railResource, map[string][]string{"0": ids}, []byte("answer")})
	}
	var file struct {
		Data struct {
			PodDeviceEntries  []entry
			RegisteredDevices map[string][]string
		}
		Checksum uint64
	}
	file.Data.PodDeviceEntries = entries
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.kubelet, kubelet.Checkpoint), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// multus is a call for an interface as Multus makes it for a device of kubelet.
func (r *railNode) multus(command, ifName, id string, fields ...string) call {
	both := fmt.Sprintf(`"deviceID":%q,"pciBusID":%q,"runtimeConfig":{"deviceID":%q}`, id, id, id)
	c := r.call(command, confOf("1.1.0", append([]string{both}, fields...)...))
	c.ifName, c.env = ifName, []string{podArgs(podUID)}
	return c
}

// has asserts which device an interface has.
func (r *railNode) has(t *testing.T, ifName, want string) {
	t.Helper()
	if got := r.deviceOf(t, "c1", ifName); got != want {
		t.Errorf("%s has %s, want %s", ifName, got, want)
	}
}

// In whatever order kubelet has the devices, net1 has the first rail, net2 the second: in each pod. CHECK and DEL come
// with the device that Multus has named.
func TestAddInRailOrder(t *testing.T) {
	t.Parallel()
	r := newRailNode(t, 4)
	for _, order := range [][]int{{2, 0, 3, 1}, {3, 2, 1, 0}} {
		var ids []string
		for _, i := range order {
			ids = append(ids, r.ids[i])
		}
		r.give(t, podUID, ids[:3], ids[3:])
		ifName := func(i int) string { return fmt.Sprint("net", i+1) }
		for i, id := range ids {
			c := r.multus("ADD", ifName(i), id, `"routing":{"sourceBased":true}`)
			if out, err := r.planWith(c, "--cni-args", strings.TrimPrefix(podArgs(podUID), "CNI_ARGS=")); err != nil ||
				!strings.HasPrefix(out, "# device "+r.ids[i]+";") {
				t.Errorf("plan of %s: %v\n%s", ifName(i), err, out)
			}
			result := r.must(t, c).stdout
			r.has(t, ifName(i), r.ids[i])
			c.command, c.conf = "CHECK", with(t, c.conf, result)
			r.must(t, c)
		}
		// Two are attached again, in another order: they get what the others have left.
		for _, i := range []int{2, 1} {
			r.must(t, r.multus("DEL", ifName(i), ids[i]))
		}
		r.must(t, r.multus("ADD", ifName(1), ids[1]))
		r.has(t, ifName(1), r.ids[1])
		if a := r.run(t, r.multus("ADD", ifName(1), ids[1])); a.Code != 101 {
			t.Errorf("ADD again: %+v", a)
		}
		r.has(t, ifName(1), r.ids[1])
		r.must(t, r.multus("ADD", ifName(2), ids[2]))
		r.has(t, ifName(2), r.ids[2])
		// One network more than there are devices. Multus gives it none, or one that kubelet names twice.
		a := r.run(t, r.multus("ADD", "net5", ids[0]))
		if a.Code != 101 || !strings.Contains(a.Msg, "in use by this very container: it is attached as net") {
			t.Errorf("a fifth network: %+v", a)
		}
		for i := range ids {
			r.must(t, r.multus("DEL", ifName(i), ids[i]))
			r.must(t, r.multus("DEL", ifName(i), ids[i]))
		}
		r.same(t, "after DEL")
	}
}

// Two ADDs at once never choose the same device.
func TestAddInRailOrderAtOnce(t *testing.T) {
	t.Parallel()
	r := newRailNode(t, 4)
	r.give(t, podUID, r.ids)
	var wg sync.WaitGroup
	for i, id := range r.ids {
		wg.Go(func() {
			if a := r.retry(t, r.multus("ADD", fmt.Sprint("net", i+1), id)); !a.ok {
				t.Errorf("net%d: %+v", i+1, a)
			}
		})
	}
	wg.Wait()
	var got []string
	for i := range r.ids {
		got = append(got, r.deviceOf(t, "c1", fmt.Sprint("net", i+1)))
	}
	if slices.Sort(got); !slices.Equal(got, r.ids) {
		t.Errorf("devices: %v", got)
	}
	for i, id := range r.ids {
		wg.Go(func() {
			if a := r.run(t, r.multus("DEL", fmt.Sprint("net", i+1), id)); !a.ok {
				t.Errorf("DEL of net%d: %+v", i+1, a)
			}
		})
	}
	wg.Wait()
	r.same(t, "after DEL")
}

// Whatever is not as expected leaves the device that Multus names. So does a network that wants it, or a device that a
// user has written.
func TestAddNotInRailOrder(t *testing.T) {
	both := func(r *railNode) { r.give0(r.ids) }
	conf := func(conf string) func(*call) { return func(c *call) { c.conf = conf } }
	field := func(f string) func(*call) {
		return func(c *call) { c.conf = strings.Replace(c.conf, `"type"`, f+`,"type"`, 1) }
	}
	for name, tt := range map[string]struct {
		prepare func(*railNode)
		edit    func(*call)
		log     string
	}{
		"no checkpoint": {func(*railNode) {}, nil, "no such file or directory"},
		"a link": {func(r *railNode) {
			both(r)
			r.mustDo(os.Rename(r.file(), r.file()+".1"), os.Symlink(r.file()+".1", r.file()))
		}, nil, "too many levels of symbolic links"},
		"not root's": {func(r *railNode) {
			both(r)
			r.mustDo(os.Chmod(r.file(), 0o666))
		}, nil, "only root can write"},
		"damaged": {func(r *railNode) {
			r.mustDo(os.WriteFile(r.file(), []byte("{"), 0o600))
		}, nil, "want it to begin"},
		"not by kubelet":    {func(r *railNode) { r.give0([]string{"netdev/v0"}) }, nil, ""},
		"shares":            {func(r *railNode) { r.give0([]string{"netdev/v1", "netdev/v0!share"}) }, nil, ""},
		"railOrder false":   {both, field(`"railOrder":false`), ""},
		"of the annotation": {both, conf(confOf("1.1.0", `"runtimeConfig":{"deviceID":"netdev/v1"}`)), ""},
		"of the definition": {both, conf(confOf("1.1.0", `"deviceID":"netdev/v1"`)), ""},
		"by name":           {both, field(`"device":"v1"`), ""},
		"moved by another plugin": {func(r *railNode) {
			both(r)
			r.host.IP(r.t, "link", "set", "v0", "netns", r.far.Name, "name", "taken")
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRailNode(t, 2)
			r.t = t
			tt.prepare(r)
			r.before = r.host.State(t)
			c := r.multus("ADD", "net1", "netdev/v1")
			if tt.edit != nil {
				tt.edit(&c)
			}
			a := r.must(t, c)
			r.has(t, "net1", "netdev/v1")
			if (tt.log == "") != (a.stderr == "") || !strings.Contains(a.stderr, tt.log) {
				t.Errorf("log %q, want %q", a.stderr, tt.log)
			}
			c.command = "DEL"
			r.must(t, c)
			r.same(t, "after DEL")
		})
	}
}

func (r *railNode) file() string { return filepath.Join(r.kubelet, kubelet.Checkpoint) }

// give0 gives the pod devices.
func (r *railNode) give0(ids []string) { r.give(r.t, podUID, ids) }

func (r *railNode) mustDo(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A device plugin has described the device that Multus names, and Multus tells the pod of it before the plugin runs.
// Where the plugin can't correct that, the pod gets that device.
func TestRailOrderNeedsDeviceInfo(t *testing.T) {
	t.Parallel()
	r := newRailNode(t, 2)
	r.give(t, podUID, r.ids)
	file := filepath.Join(devinfo.PluginDir, devinfo.PluginFile(railResource, r.ids[1]))
	if err := devinfo.Write(file, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	c := r.multus("ADD", "net1", r.ids[1])
	if a := r.must(t, c); !strings.Contains(a.stderr, "the network has no capability CNIDeviceInfoFile") {
		t.Errorf("log: %q", a.stderr)
	}
	r.has(t, "net1", r.ids[1])
	r.must(t, r.multus("ADD", "net2", r.ids[0], `"railOrder":true`))
	r.has(t, "net2", r.ids[0])
	for i, ifName := range []string{"net2", "net1"} {
		r.must(t, r.multus("DEL", ifName, r.ids[i]))
	}
	c.conf = strings.Replace(c.conf, `"runtimeConfig":{`, `"runtimeConfig":{"CNIDeviceInfoFile":"rail-order",`, 1)
	r.must(t, c)
	r.has(t, "net1", r.ids[0])
	c.command = "DEL"
	r.must(t, c)
	r.same(t, "after DEL")
}

// Networks of two definitions, one of which keeps the order of kubelet: each gets a device, whichever comes first.
func TestRailOrderOfTwoDefinitions(t *testing.T) {
	t.Parallel()
	r := newRailNode(t, 4)
	for range 2 {
		ids := slices.Clone(r.ids)
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		r.give(t, podUID, ids, ids[:1]) // the first one is an init container's as well
		for i, id := range ids {
			var fields []string
			if i%2 == 1 {
				fields = []string{`"railOrder":false`}
			}
			r.must(t, r.multus("ADD", fmt.Sprint("net", i+1), id, fields...))
		}
		for i, id := range ids {
			r.must(t, r.multus("DEL", fmt.Sprint("net", i+1), id))
		}
		r.same(t, "after DEL")
	}
}
