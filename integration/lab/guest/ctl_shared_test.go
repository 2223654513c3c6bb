//go:build labguest

package guest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// In shared mode every pod sees the RDMA devices of all, and sysfs calls the interface of each of them net1. What
// fabricctl says of a pod is about its own only: by the port that an IPoIB interface or child is on, and by the
// interface that nldev and the GIDs of a RoCE port have.
func TestToolSharedEnv(t *testing.T) {
	RequireMode(t, "shared")
	nics := nics(t, "e1000e")
	eth := []string{nics[0].Attrs().Name, nics[1].Attrs().Name}
	for name, c := range map[string]struct {
		fabric Fabric
		fields func(i int) config
	}{
		"IPoIB": {Fabric{Num: 2}, func(i int) config { return config{"device": fmt.Sprintf("ib%d", i)} }},
		"child": {Fabric{Num: 2}, func(i int) config {
			return config{"mode": "ipoib", "master": fmt.Sprintf("ib%d", i)}
		}},
		"RoCE": {Fabric{RoCE: eth}, func(i int) config { return config{"device": eth[i]} }},
	} {
		t.Run(name, func(t *testing.T) {
			c.fabric.Load(t)
			Unchanged(t)
			for i, pod := range []*Pod{NewPod(t, "a"), NewPod(t, "b")} {
				fields := c.fields(i)
				fields["ipam"] = static(fmt.Sprintf("10.0.0.%d/24", i+1))
				a := interfaceOf(pod, "net1", network(fields))
				a.add(t)
				defer a.del(t)
			}
			for i, pod := range []string{"a", "b"} {
				own, other := fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("mlx5_%d", 1-i)
				env := ctl(t, 0, "nccl-env", "--netns", "/run/netns/"+pod)
				if !containsAll(env, "\nexport NCCL_IB_HCA='="+own+":1'\n", "\nexport UCX_NET_DEVICES='"+own+":1'\n",
					"another network namespace: "+other+":1") {
					t.Errorf("nccl-env of pod %s:\n%s", pod, env)
				}
				// In the pod, as its containers see it.
				inside := (&Pod{Name: pod, Path: "/run/netns/" + pod}).inside(t, filepath.Join(BinDir(), "fabricctl"),
					"nccl-env")
				if !containsAll(inside, "NCCL_IB_HCA='="+own+":1'\n", "UCX_NET_DEVICES='"+own+":1'\n") {
					t.Errorf("nccl-env in pod %s:\n%s", pod, inside)
				}
				out := ctl(t, 0, "doctor", "pod", "--all", "--netns", "/run/netns/"+pod)
				if !containsAll(out, "pod-port-state  1 ports, all Active", "pod-interface  net1") ||
					strings.Contains(out, other) {
					t.Errorf("doctor pod of %s:\n%s", pod, out)
				}
			}
		})
	}
}

// inside runs a program with the pod's network namespace and /sys, and returns its output.
func (p *Pod) inside(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := p.Command("ip", append([]string{"netns", "exec", p.Name, name}, args...)...)
	if err != nil {
		t.Error(err)
	}
	return out
}
