//go:build labguest

package guest

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// lacks takes PKeys out of the tables of ports, as a subnet manager does: "0:0x9001" is that of the first HCA.
func lacks(t testing.TB, list string) {
	t.Helper()
	if err := os.WriteFile("/sys/module/fakeib/parameters/nopkeys", []byte(list+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// awaitsPartition begins an ADD, gives the port its partition a second later, and wants the ADD to have waited for it.
// It returns once the interface is in the pod.
func awaitsPartition(t *testing.T, a *attachment) {
	t.Helper()
	answer := make(chan Outcome, 1)
	go func() { answer <- a.call("ADD").Exec(t) }()
	select {
	case out := <-answer:
		t.Fatalf("it has not waited: %s", out)
	case <-time.After(time.Second):
	}
	lacks(t, "")
	start := time.Now()
	out := <-answer
	if out.Failed() {
		t.Fatal(out)
	}
	a.prev = json.RawMessage(out.Stdout)
	t.Logf("done %s after the port was in the partition", time.Since(start).Round(time.Millisecond))
	a.call("CHECK").Must(t)
	a.del(t)
}

// ADD waits until the subnet manager has put the port into the partition, and says which one is missing if it does not.
func TestPluginPartition(t *testing.T) {
	S1(t)
	t.Cleanup(func() { lacks(t, "") })
	lacks(t, "0:0x9001")
	Unchanged(t)
	for name, fields := range map[string]config{
		"child":  {"mode": "ipoib", "master": "ibs108"},
		"device": {"device": "ibs108"},
	} {
		t.Run(name, func(t *testing.T) {
			fields["pkey"] = "0x9001"
			a := interfaceOf(NewPod(t, "pod"), "net1", network(fields))
			lacks(t, "0:0x9001")
			wantError(t, a.call("ADD").Exec(t), 102, "pkey", "0x9001", "mlx5_0 port 1", "0x8001", "subnet manager")
			a.del(t)
			awaitsPartition(t, a)
			lacks(t, "0:0x9001")
		})
	}
	// What else is wrong is said at once, and allowDown attaches a device all the same.
	pod := NewPod(t, "pod")
	bad := interfaceOf(pod, "net1", network(config{"device": "bond0", "pkey": "0x9001"}))
	wantError(t, bad.call("ADD").Exec(t), 104, "bond0")
	down := interfaceOf(pod, "net1", network(config{"device": "ibs108", "pkey": "0x9001", "allowDown": true}))
	down.add(t)
	down.del(t)
	lacks(t, "0:0x9001")
}

// With a new GUID the port is in other partitions, which it has when its driver is bound again.
func TestVFPartition(t *testing.T) {
	vfs := VFHost(t, 2, Fabric{})
	all := "0:0x9001,1:0x9001,2:0x9001,3:0x9001"
	t.Cleanup(func() { lacks(t, "") })
	lacks(t, all)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", vfConf(vfs[0], guidA, config{"pkey": "0x1001"}))
	wantError(t, a.call("ADD").Exec(t), 102, "pkey", "0x9001")
	a.del(t)
	awaitsPartition(t, a)
	lacks(t, all)
}
