//go:build labguest

package guest

import (
	"fmt"
	"os/exec"
	"testing"
)

// inUserNamespace makes a pod's network namespace one that belongs to a user namespace, as that of a pod with hostUsers
// false does, and returns what runs a program as that one's root.
func inUserNamespace(t *testing.T, p *Pod) (enter []string) {
	t.Helper()
	holder := exec.Command("unshare", "--user", "--map-root-user", "--net", "sleep", "100000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	pid := holder.Process.Pid
	Until(t, "unshare has its namespaces", func() error {
		return exec.Command("sh", "-c", fmt.Sprintf(
			"test $(readlink /proc/%[1]d/ns/net) != $(readlink /proc/self/ns/net) && "+
				"test $(readlink /proc/%[1]d/ns/user) != $(readlink /proc/self/ns/user)", pid)).Run()
	})
	shell(t, fmt.Sprintf("umount %[2]s && mount --bind /proc/%[1]d/ns/net %[2]s", pid, p.Path))
	return []string{"-t", fmt.Sprint(pid), "-U", "--preserve-credentials"}
}

// Pods with a user namespace of their own get their rails and do RDMA over them.
func TestTrafficUserNamespace(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	var pods [2]*Pod
	var rails [2]*attachment
	var args [2][]string
	for i, name := range []string{"server", "client"} {
		pods[i] = NewPod(t, name)
		args[i] = append(inUserNamespace(t, pods[i]), "ibv_rc_pingpong", "-e", "-n", "50")
		rails[i] = interfaceOf(pods[i], "net1", network(config{
			"device": fmt.Sprint("ib", i), "ipam": static(fmt.Sprintf("10.1.0.%d/24", i+1)),
		}))
		rails[i].add(t)
	}
	ping(t, pods[1], "10.1.0.1")
	Pair{
		Server: pods[0], Client: pods[1], Tool: []string{"nsenter"}, ServerArgs: args[0], ClientArgs: args[1],
		Address: "10.1.0.1",
	}.Must(t)
	for _, r := range rails {
		r.call("CHECK").Must(t)
		r.del(t)
	}
}
