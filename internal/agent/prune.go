package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// pruner removes the definitions of fabrics that are no longer in the settings, once nobody needs them: no pod of this
// node is attached, and no pod of the cluster asks for one. Every agent does so when it sees the fabric leave, so that
// no agent is left that would publish it again.
type pruner struct {
	cluster *cluster.Client // nil: there are no definitions
	store   journal.Store
	saved   *savedState
	log     *slog.Logger
	removed func() // called after each removal
}

func (p *pruner) reconcile(ctx context.Context) {
	if p.cluster == nil || len(p.saved.Leaving) == 0 {
		return
	}
	attached := attachedNetworks(p.store, p.log)
	var waiting []string
	for _, full := range p.saved.Leaving {
		namespace, name, _ := strings.Cut(full, "/")
		if attached[name] || !p.remove(ctx, namespace, name) {
			waiting = append(waiting, full)
		}
	}
	if len(waiting) == len(p.saved.Leaving) {
		return
	}
	p.saved.Leaving = waiting
	if err := p.saved.save(); err != nil {
		p.log.Error(err.Error())
	}
}

// remove returns whether a definition needs no more attention: it is gone, or has become somebody else's.
func (p *pruner) remove(ctx context.Context, namespace, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := p.cluster.Remove(ctx, namespace, name)
	var kept *cluster.KeptError
	switch {
	case err == nil:
		p.removed()
		p.log.Info("removed NetworkAttachmentDefinition: its fabric is no longer in the settings",
			"namespace", namespace, "name", name)
		return true
	case errors.As(err, &kept):
		if kept.Foreign {
			p.log.Warn(err.Error())
		} else {
			p.log.Debug(err.Error())
		}
		return kept.Foreign
	}
	p.log.Error("cannot remove NetworkAttachmentDefinition", "namespace", namespace, "name", name, "error", err)
	return false
}
