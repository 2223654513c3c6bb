//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// walkDevice is a device of a walk, as it is on the host.
type walkDevice struct {
	sysfs, netdev, hca string
	conf               config
}

// walkWorld is a guest with these devices and two pods.
type walkWorld struct {
	t       *testing.T
	devices []walkDevice
	setUp   func() State
	pods    []*Pod
	third   *Pod // a network namespace that is no pod's
	held    []*exec.Cmd
	points  map[string][]string
	left    bool // hardware has left in this round
	start   State

	mu      sync.Mutex
	results map[walk.Attachment]json.RawMessage
}

func newWalkWorld(t *testing.T, devices []walkDevice, setUp func() State) *walkWorld {
	t.Helper()
	w := &walkWorld{
		t: t, devices: devices, setUp: setUp, pods: []*Pod{NewPod(t, "walk0"), NewPod(t, "walk1")},
		third:  NewPod(t, "walk-third"),
		points: map[string][]string{}, results: map[walk.Attachment]json.RawMessage{}, start: setUp(),
	}
	t.Cleanup(w.release)
	for i := range devices {
		// The pods are of two namespaces: the driver of a VF is bound anew for the second one.
		for n, verb := range []string{"ADD", "DEL", "ADD", "DEL"} {
			c := w.callOf(walk.Call{Verb: verb, Of: walk.Attachment{Device: i, Pod: n / 2}, Netns: true})
			points, out := Points(t, c)
			if out.Failed() {
				t.Fatalf("%s of %s: %s", verb, devices[i].netdev, out)
			}
			w.points[fmt.Sprint(verb, i)] = points
		}
	}
	w.points["GC0"] = w.points["DEL0"]
	Same(t, w.start)
	return w
}

func (w *walkWorld) callOf(c walk.Call) Call {
	out := Call{
		Command: c.Verb, ContainerID: c.Of.ID(), IfName: c.Of.IfName(),
		Args: fmt.Sprint("IgnoreUnknown=1;K8S_POD_NAMESPACE=team-", c.Of.Pod),
	}
	conf := maps.Clone(w.devices[c.Of.Device].conf)
	if c.Netns {
		out.Netns = w.pods[c.Of.Pod].Path
	}
	if c.Verb == "GC" {
		out.ContainerID, out.IfName = "", ""
		valid := []config{}
		for _, a := range c.Valid {
			valid = append(valid, config{"containerID": a.ID(), "ifname": a.IfName()})
		}
		conf["cni.dev/valid-attachments"] = valid
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.results[c.Of]; r != nil && (c.Verb == "CHECK" || c.Verb == "DEL") {
		conf["prevResult"] = r
	}
	out.Config = conf
	return out
}

func (w *walkWorld) Call(c walk.Call) (walk.Answer, error) {
	in := w.callOf(c)
	if points := w.points[fmt.Sprint(c.Verb, c.Of.Device)]; c.Fault != "" && len(points) > 0 {
		in.Env = []string{"FABRIC_FAILPOINT=" + points[c.At*len(points)/1000] + ":" + c.Fault}
	}
	out, err := in.run(w.t.Context())
	if err != nil {
		return walk.Answer{}, err
	}
	a := walk.Answer{OK: !out.Failed(), Killed: out.Killed}
	if !a.OK {
		a.Text = out.String()
	}
	if strings.Contains(a.Text+out.Stderr, "panic") {
		return a, fmt.Errorf("%s of %s: %s%s", c.Verb, c.Of.ID(), a.Text, out.Stderr)
	}
	if a.OK && c.Verb == "ADD" {
		w.mu.Lock()
		w.results[c.Of] = json.RawMessage(out.Stdout)
		w.mu.Unlock()
	}
	return a, nil
}

func (w *walkWorld) Mischief(pod, device int, what string) error {
	d, other := w.devices[device], w.devices[(device+1)%len(w.devices)]
	const find = `set -- $(ls $SYSFS/net | grep -v ^kid); D=$1
[ -n "$D" ] || exit 0
set -- $(ls $SYSFS/infiniband); R=$1
`
	script, _ := walk.Trick(what) // the others are for Ethernet
	return w.pods[pod].DoSysfs(func() error {
		cmd := exec.Command("sh", "-c", find+script)
		cmd.Env = append(os.Environ(), "SYSFS="+d.sysfs, fmt.Sprint("I=", device), "OTHER="+other.netdev,
			"OTHERRDMA="+other.hca, "THIRD="+w.third.Name, "SECOND="+w.pods[(pod+1)%len(w.pods)].Name)
		_ = cmd.Run() // what the kernel refuses has not happened
		return nil
	})
}

func (w *walkWorld) EndPod(pod int, held bool) error {
	p := w.pods[pod]
	if held {
		cmd := exec.Command("/run/busybox", "sleep", "100000")
		if err := p.Do(cmd.Start); err != nil {
			return err
		}
		w.held = append(w.held, cmd)
	}
	if err := p.remove(); err != nil {
		return err
	}
	return p.create()
}

func (w *walkWorld) release() {
	for _, cmd := range w.held {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	w.held = nil
}

// driver is where the device's driver is bound; it is fakeib's on the bus of PCI.
const driver = "/sys/bus/pci/drivers/fakeib/"

func (w *walkWorld) Unplug(device int) error { return w.bind(device, "unbind", true) }

func (w *walkWorld) Plug(device int) error { return w.bind(device, "bind", false) }

// bind writes to a file of the driver if the device is bound, or not.
func (w *walkWorld) bind(device int, file string, bound bool) error {
	sysfs := w.devices[device].sysfs
	if _, err := os.Stat(sysfs + "/driver"); (err == nil) != bound {
		return nil
	}
	w.left = true
	return os.WriteFile(driver+file, []byte(filepath.Base(sysfs)), 0o200)
}

// Home compares. After a round in which hardware has left, it sets up the host again, as after a reboot; then only what
// is on file is compared: whether the plugin gives back what has returned under a new driver has tests of its own.
func (w *walkWorld) Home() (string, error) {
	w.release()
	clear(w.results)
	if !w.left {
		return difference(w.start, Take, Patience), nil
	}
	w.left = false
	for i := range w.devices {
		if err := w.Plug(i); err != nil {
			return "", err
		}
	}
	now, err := Take()
	if err != nil {
		return "", err
	}
	if len(now.Files) > 0 {
		return fmt.Sprint("on file: ", now.Files), nil
	}
	w.left = false
	w.start = w.setUp()
	return "", nil
}
