package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
)

// How long the API server's answer counts: a policy that was just made is in force a few seconds later.
const (
	confinedFor   = time.Hour
	unconfinedFor = 10 * time.Second
)

// confinedReconciler proves that this agent may not write the FabricNode of another node: an admission policy that is
// missing, or does not know the agent, is seen by nothing else.
type confinedReconciler struct {
	mayWriteOthers func(context.Context) (bool, error) // nil: there is no API server
	log            *slog.Logger
	now            func() time.Time

	next     time.Time
	admitted int // in a row
}

func (r *confinedReconciler) reconcile(ctx context.Context, findings *condition.Set) {
	if r.mayWriteOthers == nil {
		return
	}
	if now := r.now(); !now.Before(r.next) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		may, err := r.mayWriteOthers(ctx)
		r.next = now.Add(unconfinedFor)
		switch {
		case err != nil:
			r.log.Debug("cannot ask whether this agent may write about other nodes", "error", err)
		case may:
			r.admitted++
		default:
			r.next, r.admitted = now.Add(confinedFor), 0
		}
	}
	if r.admitted > 1 {
		findings.Add(condition.WritesUnconfined, condition.Node, "the API server lets this agent write about other "+
			"nodes, and so anybody with the token of a node: the ValidatingAdmissionPolicy fabric-agent is missing, "+
			"or not of this version: apply the manifests again; Kubernetes must be 1.32 or later")
	}
}
