//go:build labguest

package guest

import "testing"

// VFs that have a GUID from their pods carry traffic, and rdma_cm finds its way by that GUID. One whose link state the
// PF disables stops, and one without a GUID never starts.
func TestTrafficVF(t *testing.T) {
	UserLand(t)
	vfs := VFHost(t, 3, Fabric{NoVFGUID: true})
	t.Cleanup(func() { Unload(t) })
	Unchanged(t)
	vf := func(i int, guid string) config {
		return config{"deviceID": vfs[i].PCI, "runtimeConfig": config{"infinibandGUID": guid}}
	}
	server := podWithRails(t, "server", 1, vf(0, guidA))
	client := podWithRails(t, "client", 2, vf(1, guidB))
	hasGUID(t, server.Pod, "net1", guidA)
	hasGUID(t, client.Pod, "net1", guidB)
	join(t, server, client)
	ping(t, client.Pod, server.address(1))
	worksBetween(t, server, client, server.address(1), true)

	talking := untilError(server, client).Start(t)
	underWay(t, talking, client)
	commands(t, [][]string{{"ip", "link", "set", "ibpf", "vf", "0", "state", "disable"}})
	wantCutOff(t, talking.Wait())
	commands(t, [][]string{{"ip", "link", "set", "ibpf", "vf", "0", "state", "auto"}})
	ping(t, client.Pod, server.address(1))
	worksBetween(t, server, client, server.address(1), true)

	wantError(t, interfaceOf(NewPod(t, "none"), "net1", vfConf(vfs[2], "", config{"allowDown": true})).
		call("ADD").Exec(t), 102, "no GUID")
	wantNoPort(t, InHost(), vfs[2].HCA(), "Init")
	server.leave(t)
	client.leave(t)
}
