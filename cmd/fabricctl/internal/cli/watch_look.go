package cli

import (
	"path/filepath"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// started is what looks are timed from.
var started = time.Now()

// look reads the ports of the machine: of the running one as fabric-agent does, with those in pods.
func (w *watcher) look() (*watchLook, error) {
	at := time.Now()
	out := &watchLook{at: at, up: at.Sub(started)}
	if filepath.Clean(w.root) != "/" {
		return out, w.lookAt(out)
	}
	if err := w.running("watch"); err != nil {
		return nil, err
	}
	return out, w.lookHere(out)
}

// lookAt reads the tree of a machine that is mounted elsewhere, which is not asked about its pods.
func (w *watcher) lookAt(out *watchLook) error {
	tree, err := w.tree()
	if err != nil {
		return err
	}
	n, err := node.Open(tree, w.store())
	if err != nil {
		return err
	}
	out.addTree(n, counters.Read(tree, n))
	return nil
}

// addTree adds the ports of a tree.
func (l *watchLook) addTree(n *node.Node, look *counters.Look) {
	for _, p := range look.Ports {
		h := n.HCA(p.HCA)
		q := h.Port(p.Number)
		if q == nil {
			continue
		}
		l.ports = append(l.ports, watchedPort{
			Port: p, device: h.PCI, netdev: q.Netdev, pod: h.InPod, state: q.State, rateGb: q.RateGb,
		})
	}
}
