package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// addressReconciler notes for the plugin by which addresses the cluster knows the node: an interface that has one is
// not moved. The file is one of the state directory: the policy itself is its owner's.
type addressReconciler struct {
	find  func(context.Context) ([]netip.Addr, error) // nil without an API server
	dir   string                                      // the state directory
	log   *slog.Logger
	now   func() time.Time
	every time.Duration

	next time.Time // when the addresses are looked for again
	want []byte    // the file's content; nil: not known yet
}

// reconcile looks for the addresses once in a while, and keeps the file as it should be. If they can't be found, the
// file stays as it is: an address that the node had is better than none.
func (r *addressReconciler) reconcile(ctx context.Context) {
	if r.find == nil {
		return
	}
	if !r.now().Before(r.next) {
		if err := r.look(ctx); err != nil {
			r.log.Error("cannot find all addresses of the node", "error", err)
		} else {
			r.next = r.now().Add(r.every)
		}
	}
	if r.want == nil {
		return
	}
	file := filepath.Join(r.dir, policy.NodeAddressesFile)
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, r.want) {
		return
	}
	if err := (atomicfile.File{Path: file, Mode: 0o600, DirMode: 0o700}).Write(r.want); err != nil {
		r.log.Error("cannot note the addresses of the node", "error", fmt.Errorf("write %s: %w", file, err))
	}
}

// look takes what is found even if it is not all, unless that is nothing, or there is a file already that has more.
func (r *addressReconciler) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := r.find(ctx)
	if len(found) == 0 || err != nil && (r.want != nil || r.noted()) {
		return err
	}
	b, merr := json.Marshal(policy.NodeAddresses{Addresses: found})
	if merr != nil {
		return merr
	}
	r.want = b
	return err
}

// noted says whether an earlier agent has left a file.
func (r *addressReconciler) noted() bool {
	_, err := os.Stat(filepath.Join(r.dir, policy.NodeAddressesFile))
	return err == nil
}
