package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
)

// limitReconciler tells the plugin of which ranges it may give addresses, before the controller is told that the node
// works with them: an ADD that has read an older configuration gives none of a range that the node has lost.
type limitReconciler struct {
	link    *cluster.Link // nil: there is no API server, and no range is taken away
	saved   *savedState
	ipamDir string
	log     *slog.Logger
}

// lockTimeout is how long to wait for an ADD or DEL that has the lock: they have it for some file operations.
const lockTimeout = 5 * time.Second

// reconcile returns whether all limits are as they should be: as long as they are not, the node does not work with its
// ranges.
func (r *limitReconciler) reconcile(ctx context.Context) bool {
	if r.link == nil || !r.link.Synced() {
		return true
	}
	ranges := map[string][]netip.Prefix{}
	entries, err := os.ReadDir(r.ipamDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Error("cannot list the networks that have addresses", "error", err)
		return false
	}
	for _, e := range entries {
		if e.IsDir() && fabrics.IsName(e.Name()) { // hostlocal.Limit leaves those of others alone
			ranges[e.Name()] = nil
		}
	}
	for _, a := range r.saved.Ranges {
		if p, err := netip.ParsePrefix(a.Range); err == nil && fabrics.IsName(a.Fabric) {
			ranges[a.Fabric] = append(ranges[a.Fabric], p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	ok := true
	for network, to := range ranges {
		if err := hostlocal.Limit(ctx, r.ipamDir, network, to); err != nil {
			r.log.Error("cannot tell the plugin of this node's ranges", "error", err)
			ok = false
		}
	}
	return ok
}
