//go:build labguest

package guest

import (
	"fmt"
	"sync"
	"testing"
)

type countError struct{ got, want int }

func (e countError) Error() string { return fmt.Sprintf("there are %d, want %d", e.got, e.want) }

// udev names what appears on the host, while the plugin moves it on or gives it back its own name (kernel fact 21).
func TestPeerUdevRace(t *testing.T) {
	n := S1(t)
	Unchanged(t)
	// udev's rules are where the host's names come from, so it gives the names that are to come back. Where an
	// administrator has changed a name since, udev can have the last word: between its look at the name and its rename
	// there is no lock.
	udev := StartUdev(t, n.Names(), map[string]string{"fakeib.0": "ibp8s0"})
	for round := range 10 {
		var list []*attachment
		pod := NewPod(t, fmt.Sprintf("pod%d", round))
		for i, r := range n.Rails[:4] {
			list = append(
				list,
				interfaceOf(
					pod,
					fmt.Sprintf("net%d", i+1),
					network(config{"deviceID": "platform/" + r.Bus, "ipam": static(fmt.Sprintf("10.0.0.%d/24", i+1))}),
				),
			)
		}
		together(t, list, "ADD")
		for i := range list {
			pod.has(t, fmt.Sprintf("net%d", i+1), fmt.Sprintf("10.0.0.%d/24", i+1))
		}
		together(t, list, "DEL")
		Same(t, n.Pristine)
		if t.Failed() {
			return
		}
	}
	t.Logf("udev renamed %d netdevs", udev.Renamed())
	if udev.Renamed() == 0 {
		t.Error("udev never won: nothing was raced with")
	}
}

// together calls a command for all attachments at the same time.
func together(t *testing.T, list []*attachment, command string) {
	t.Helper()
	var wait sync.WaitGroup
	for _, a := range list {
		wait.Go(func() {
			if out := a.call(command).Exec(t); out.Failed() {
				t.Errorf("%s of %s %s: %s", command, a.id, a.ifname, out)
			}
		})
	}
	wait.Wait()
}
