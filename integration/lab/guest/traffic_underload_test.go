//go:build labguest

package guest

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// DEL of four rails that all carry data, in both directions.
func TestTrafficDelUnderLoad(t *testing.T) {
	RequireMode(t, "exclusive")
	UserLand(t)
	const rails = 4
	Fabric{Num: 2 * rails}.Load(t)
	Unchanged(t)
	idle := hostObjects(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	var attachments [2][]*attachment
	for i, pod := range pods {
		for rail := range rails {
			attachments[i] = append(attachments[i], interfaceOf(pod, fmt.Sprintf("net%d", rail+1), network(config{
				"device": fmt.Sprintf("ib%d", i*rails+rail),
				"ipam":   static(fmt.Sprintf("10.%d.0.%d/24", rail+1, i+1)),
			})))
			attachments[i][rail].add(t)
		}
	}
	var loads []*Talking
	for rail := range rails {
		hcas := [2]string{fmt.Sprintf("mlx5_%d", rail), fmt.Sprintf("mlx5_%d", rails+rail)}
		address := fmt.Sprintf("10.%d.0.1", rail+1)
		l := endless(t, pods[0], pods[1], hcas[0], hcas[1], address, 18515+rail)
		loads = append(loads, l)
		for _, p := range []*Program{l.Server, l.Client} {
			signal(t, p, syscall.SIGSTOP) // the next ones start faster
		}
	}
	for _, l := range loads {
		for _, p := range []*Program{l.Server, l.Client} {
			signal(t, p, syscall.SIGCONT)
		}
	}
	var took [2]time.Duration
	for i := range pods {
		began := time.Now()
		for _, a := range attachments[i] {
			a.del(t) // each call has its time-out
		}
		took[i] = time.Since(began)
		if i > 0 {
			break
		}
		for _, l := range loads {
			l.Server.Kill()
		}
		for _, l := range loads {
			fails(t, l.Client)
		}
	}
	t.Logf("DEL of %d rails: %s idle, %s under load", rails, took[1], took[0])
	wantObjects(t, InHost(), idle)
	wantUnused(t)
}
