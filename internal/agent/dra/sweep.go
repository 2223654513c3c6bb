package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// sweepEvery is how often the driver looks for unwanted claims, and abandoned how long one must have been unwanted.
const (
	sweepEvery = 5 * time.Minute
	abandoned  = 15 * time.Minute
)

// reconcileFiles compares what is prepared with the runtime's files, before kubelet asks for anything: an agent may
// have been killed between the two. A prepared claim has its file, and there is no other.
func (d *Driver) reconcileFiles() error {
	claims, err := d.Prepared.All()
	errs := []error{err}
	want := map[string]bool{}
	for _, c := range claims {
		want[c.UID] = true
		if err := d.refresh(c); err != nil {
			errs = append(errs, err)
		}
	}
	files, ferr := d.CDI.Claims()
	errs = append(errs, ferr)
	for _, uid := range files {
		if !want[uid] && !d.Prepared.Has(uid) { // one that can't be read may be a pod's
			errs = append(errs, d.forget(uid))
		}
	}
	return errors.Join(errs...)
}

// sweepLoop removes what is prepared for unwanted claims, until ctx ends. kubelet takes back all that it knows, and it
// knows what its checkpoint says: what is left has been prepared for pods that kubelet has lost.
func (d *Driver) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	gone := map[string]time.Time{} // claim -> since when
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			gone = d.sweep(ctx, gone)
		}
	}
}

// sweep forgets claims that the API server no longer has, or no longer has for their pod, and has not for a while.
// While a pod is there, its claim is too: it has a finalizer. A claim of a pod that the journal has stays in any case,
// and one that the API server was not able to speak of.
func (d *Driver) sweep(ctx context.Context, gone map[string]time.Time) map[string]time.Time {
	claims, err := d.Prepared.All()
	if err != nil {
		d.Log.Debug("some prepared claims cannot be read", "error", err)
	}
	now := d.Now()
	out := map[string]time.Time{}
	for _, c := range claims {
		if c.Version > prepared.Version { // of a newer agent
			continue
		}
		reason, err := d.unwanted(ctx, c)
		if err != nil {
			d.Log.Debug("cannot tell whether a prepared claim is wanted", "claim", c.UID, "error", err)
		}
		if reason == "" {
			continue
		}
		since, known := gone[c.UID]
		if !known {
			since = now
		}
		if now.Sub(since) < abandoned {
			out[c.UID] = since
			continue
		}
		if err := d.unprepare(ctx, c.UID); err != nil {
			d.Log.Error("cannot remove an abandoned claim", "error", err)
			out[c.UID] = since
			continue
		}
		d.Log.Warn("removed what was prepared for a claim that no pod needs", "claim",
			quote.Terminal(c.Namespace+"/"+c.Name), "pod", quote.Terminal(c.Pod), "reason", reason)
	}
	return out
}

// unwanted says why a prepared claim is not wanted; empty: it may be.
func (d *Driver) unwanted(ctx context.Context, c *prepared.Claim) (string, error) {
	entries, err := d.Store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // what is damaged is no claim's
		return "", err
	}
	for _, e := range entries {
		if podUID(e) == c.PodUID {
			return "", nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	got, err := d.Kube.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	switch {
	case isNotFound(err):
		return "there is no such claim", nil
	case err != nil:
		return "", fmt.Errorf("get claim: %w", err)
	case string(got.UID) != c.UID:
		return "there is another claim of its name", nil
	}
	for i := range got.Status.ReservedFor {
		if string(got.Status.ReservedFor[i].UID) == c.PodUID {
			return "", nil
		}
	}
	return "it is no longer reserved for the pod", nil
}
