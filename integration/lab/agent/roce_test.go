//go:build labguest

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// roce makes this guest a node with one RoCE rail, whose port has the state of its interface, and returns both names.
func roce(t *testing.T) (hca, netdev string) {
	t.Helper()
	guest.Modprobe(t, "e1000e")
	guest.Until(t, "there is an e1000e", func() error {
		all, err := filepath.Glob("/sys/class/net/*/device/driver")
		if err != nil {
			return err
		}
		for _, link := range all {
			if target, err := os.Readlink(link); err == nil && filepath.Base(target) == "e1000e" {
				netdev = filepath.Base(filepath.Dir(filepath.Dir(link)))
				return nil
			}
		}
		return errors.New("none")
	})
	guest.Fabric{RoCE: []string{netdev}, RoCEVerbs: true}.Load(t)
	t.Cleanup(func() { // the next test may want the node S1, which has no such card
		guest.Unload(t)
		guest.Modprobe(t, "-r", "e1000e")
	})
	if out, err := exec.Command("ip", "link", "set", netdev, "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	guest.Until(t, "the port is Active", func() error {
		for name, d := range look(t) {
			hca = name
			if d.AdminUp && d.State() == "Active" {
				return nil
			}
		}
		return fmt.Errorf("devices: %+v", look(t))
	})
	return hca, netdev
}

// trains is the interval of an agent that gives a link nine seconds after a move: an emulated one has taken more than
// three on a busy machine.
const trains = 3 * time.Second

// The port of a RoCE device goes down with every move, as its interface does: on its way into a pod, on its way home,
// and whenever the pod takes its interface down. An agent that takes a single flap for too many says nothing of it.
func TestAgentMovesRoCE(t *testing.T) {
	hca, netdev := roce(t)
	guest.Unchanged(t)
	r := run(t, trains, `{"flapsPerTenMinutes": 1}`, hca)
	looked := func(verb string, calls int) {
		t.Helper()
		guest.Until(t, "the agent has looked after "+verb, func() error { // it counts a call with the second look
			if got := r.value(t, "fabric_cni_duration_seconds_count", `verb="`+verb+`"`); got < float64(calls) {
				return fmt.Errorf("%v calls are counted", got)
			}
			return nil
		})
	}
	for i := range 3 {
		pod := guest.NewPod(t, fmt.Sprint("pod", i))
		attach(pod, "ADD", netdev).Must(t)
		looked("ADD", i+1)
		if i == 1 {
			for _, to := range []string{"down", "up"} {
				if out, err := pod.Command("ip", "link", "set", "net1", to); err != nil {
					t.Fatal(err, out)
				}
			}
		}
		active := func(in bool) {
			t.Helper()
			guest.Until(t, fmt.Sprint("the port is Active, in the pod: ", in), func() error {
				if d := look(t)[hca]; d.InPod() != in || d.State() != "Active" {
					return fmt.Errorf("%+v", d)
				}
				return nil
			})
		}
		active(true)
		attach(pod, "DEL", netdev).Must(t)
		active(false)
		looked("DEL", i+1)
	}
	if all := r.said(t); len(all) > 0 {
		t.Errorf("said %q", all)
	}
	if got := r.value(t, "fabric_port_flaps_total{"); got != 0 {
		t.Errorf("%v flaps", got)
	}
}
