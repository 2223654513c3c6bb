package agent

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/podresources"
	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// askFor bounds what is asked for the GPUs of a pod: kubelet admits no other pod meanwhile.
const askFor = 200 * time.Millisecond

// chooser chooses devices where kubelet may.
type chooser struct {
	sys, proc fs.FS // of the node
	kubelet   podresources.Kubelet
	runtime   cri.Runtime
	within    time.Duration
	log       *slog.Logger
}

func (o *Options) chooser(sys fs.FS, log *slog.Logger) *chooser {
	return &chooser{
		sys: sys, proc: os.DirFS(cmp.Or(o.HostProc, "/proc")), within: askFor, log: log,
		kubelet: podresources.Kubelet{Socket: o.PodSocket, HostProc: o.HostProc},
		runtime: cri.Runtime{Socket: o.CRISocket, HostProc: o.HostProc},
	}
}

func (c *chooser) choose(ctx context.Context, from deviceplugin.Choice) []string {
	units := make([]prefer.Unit, 0, len(from.Units))
	for i := range from.Units {
		u := &from.Units[i]
		units = append(units, prefer.Unit{
			ID: u.ID, Slot: u.Slot, Place: node.Place{Path: u.Path, NUMA: u.NUMA},
		})
	}
	var gpus []node.Place
	if from.Size < len(from.Available) && len(from.Must) == 0 {
		gpus = c.gpus(ctx, from.Resource)
	}
	out := prefer.Choose(units, from.Available, from.Must, from.Size, gpus)
	c.log.Debug("devices for a container", "resource", from.Resource, "devices", out, "gpus", len(gpus))
	return out
}

// gpus returns where the GPUs are that kubelet has given the pod that it admits just now; empty if unknown. kubelet
// names no pod, but gives one pod at a time its devices: it is the only one that has GPUs, none of the resource, and no
// sandbox yet. While a container has some units of the resource already (Must), kubelet must not be asked: for an
// answer it works out anew which devices are free, and would forget those (kubelet 1.34,
// devicemanager.UpdateAllocatedDevices).
func (c *chooser) gpus(ctx context.Context, resource string) []node.Place {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	on := node.GPUs(c.sys)
	if c.kubelet.Socket == "" || len(on) == 0 {
		return nil
	}
	list, err := c.kubelet.List(ctx)
	if err != nil {
		c.log.Debug("cannot ask kubelet for the GPUs of a pod", "error", err)
		return nil
	}
	waiting := prefer.Waiting(list, resource, prefer.NewGPUs(on, node.NVIDIA(c.proc)).At)
	if len(waiting) == 0 {
		return nil
	}
	started, err := c.runtime.Started(ctx)
	if err != nil {
		c.log.Debug("cannot ask which pods have started", "error", err)
		return nil
	}
	return prefer.OfStarting(waiting, started)
}
