package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
)

// leave removes the definitions of fabrics that have left the settings, when nobody needs them: no pod of this node is
// attached, and no pod of the cluster asks. Every agent does so when it sees the fabric leave: the last one finds
// nobody who would publish it again.
func (l *looker) leave(ctx context.Context) {
	if l.cluster == nil || len(l.memory.Leaving) == 0 {
		return
	}
	attached := l.networks()
	var still []string
	for _, full := range l.memory.Leaving {
		namespace, name, _ := strings.Cut(full, "/")
		if attached[name] || !l.remove(ctx, namespace, name) {
			still = append(still, full)
		}
	}
	if len(still) != len(l.memory.Leaving) {
		l.memory.Leaving = still
		l.save()
	}
}

// remove tells whether a definition needs no more attention: it is gone, or somebody else's by now.
func (l *looker) remove(ctx context.Context, namespace, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := l.cluster.Remove(ctx, namespace, name)
	var kept *cluster.KeptError
	switch {
	case err == nil:
		clear(l.applied) // should it come back
		l.log.Info(
			"removed NetworkAttachmentDefinition: its fabric is not in the settings any more",
			"namespace",
			namespace,
			"name",
			name,
		)
		return true
	case errors.As(err, &kept):
		l.log.Debug(err.Error())
		if kept.Foreign {
			l.log.Warn(err.Error())
		}
		return kept.Foreign
	}
	l.log.Error("cannot remove NetworkAttachmentDefinition", "namespace", namespace, "name", name, "error", err)
	return false
}
