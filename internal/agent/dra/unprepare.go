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

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin: the pods of these claims have ended. A device that is
// still in one returns to the host by DEL or repair, as without claims.
func (d *Driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		err := d.unprepare(string(c.UID))
		if err != nil {
			err = fmt.Errorf("claim %s: %w", claim.Key(c.NamespacedName), err)
			d.Log.Error("cannot take back a claim", "error", err)
		}
		out[c.UID] = err
	}
	return out, nil
}

func (d *Driver) unprepare(uid string) error {
	defer d.claims.lock(uid)()
	if err := failpoint.Hit("dra/unprepare"); err != nil {
		return err
	}
	if !prepared.IsUID(uid) { // no claim of that name was ever prepared
		return nil
	}
	return d.forget(uid)
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
