//go:build labguest

package guest

import (
	"strings"
	"testing"
)

// A port that is not Active is not handed out silently.
func TestPluginPortStates(t *testing.T) {
	n := S1(t)
	Unchanged(t)
	t.Cleanup(func() { SetStates(t, 4, 4, 4, 4, 1, 1) })
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		state int
		words []string
	}{
		"Down":  {Down, []string{"state Down", "physical state Polling", "cable"}},
		"Init":  {Init, []string{"state Init", "physical state LinkUp", "subnet manager", "00:02:c9:03:00:fa:00:30"}},
		"Armed": {Armed, []string{"state Armed", "subnet manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			SetStates(t, 4, 4, c.state, 4, 1, 1)
			words := append([]string{"mlx5_4 port 1", "allowDown"}, c.words...)
			for _, fields := range []config{
				{"device": "ibs112"}, {"mode": "ipoib", "master": "ibs112", "rdma": "shared"},
			} {
				a := interfaceOf(pod, "net1", network(fields))
				wantError(t, a.call("ADD").Exec(t), 102, words...)
				a.del(t)
				a.conf["allowDown"] = true
				a.add(t)
				pod.link(t, "net1")
				a.del(t)
			}
			// Who asks for no RDMA gets the netdev as it is.
			a := interfaceOf(pod, "net1", network(config{"device": "ibs112", "rdma": "none"}))
			a.add(t)
			pod.hasHCA(t)
			a.del(t)
		})
	}
	SetStates(t, 4, 4, 4, 4, 1, 1)
	a := interfaceOf(pod, "net1", network(config{"device": n.Rails[4].Netdev}))
	wantError(t, a.call("ADD").Exec(t), 102, "mlx5_5")
}

// A child carries traffic through the same port: also by default, with a policy that does not look at RDMA.
func TestPluginPortStateOfMaster(t *testing.T) {
	S1(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"mode": "ipoib", "master": "ibs116"}))
	wantError(t, a.call("ADD").Exec(t), 102, "mlx5_5", "state Down")
}

// A driver that can't move its devices is named in the error, with the kernel, and everything is as it was.
func TestPluginImmovable(t *testing.T) {
	freshHost(t)
	Fabric{Num: 1, Immovable: true}.Load(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"rdmaDevice": "mlx5_0"}))
	release := strings.TrimSpace(readFile(t, "/proc/sys/kernel/osrelease"))
	wantError(t, a.call("ADD").Exec(t), 105, "the driver of mlx5_0", "Linux "+release)
	a.del(t)
}
