package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/claim"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin: the pods of these claims have ended. What the hook of
// their containers has attached returns to the host now. What a runtime has attached returns by its DEL.
func (d *Driver) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		err := d.unprepare(ctx, string(c.UID))
		if err != nil {
			err = fmt.Errorf("claim %s: %w", claim.Key(c.NamespacedName), err)
			d.Log.Error("cannot take back a claim", "error", err)
		}
		out[c.UID] = err
	}
	return out, nil
}

func (d *Driver) unprepare(ctx context.Context, uid string) error {
	defer d.claims.lock(uid)()
	if err := failpoint.Hit("dra/unprepare"); err != nil {
		return err
	}
	if !prepared.IsUID(uid) { // no claim of that name was ever prepared
		return nil
	}
	d.detach(ctx, uid)
	return d.forget(uid)
}

// detach returns what the hook has attached of a claim: no runtime does. What does not work is left to repair, which
// tries again: the pod that has ended does not wait for it, and the next one with the device does.
func (d *Driver) detach(ctx context.Context, claimUID string) {
	entries, err := d.Store.List()
	if err != nil {
		d.Log.Debug("some journal entries cannot be read", "error", err)
	}
	for _, e := range entries {
		if !e.Held || e.FromClaim == nil || e.FromClaim.ClaimUID != claimUID || d.Detach == nil {
			continue
		}
		if err := d.Detach(ctx, e); err != nil {
			d.Log.Error("cannot return a device of a claim now", "of", e.Who(), "interface", e.IfName, "device",
				e.DeviceKey, "error", err)
		}
		if err := failpoint.Hit("dra/detached"); err != nil {
			return
		}
	}
}

// forget removes what has been prepared of a claim: the runtime's file first, as a prepared claim without one is one
// that is being taken back.
func (d *Driver) forget(uid string) error {
	if err := d.CDI.Remove(uid); err != nil {
		return err
	}
	if err := failpoint.Hit("dra/forgotten"); err != nil {
		return err
	}
	return d.Prepared.Remove(uid)
}

// podUID is the pod of an attachment, from the CNI_ARGS of kubelet's runtimes; empty if they do not name it.
func podUID(e *journal.Entry) string {
	for pair := range strings.SplitSeq(e.Args, ";") {
		if uid, ok := strings.CutPrefix(pair, "K8S_POD_UID="); ok {
			return uid
		}
	}
	return ""
}

// compact is JSON without white space, as far as it is JSON.
func compact(b json.RawMessage) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return b
	}
	return out.Bytes()
}
