package dra

import (
	"context"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// offered are the devices that the scheduler may give to claims: not those that pods have by kubelet's device plugin,
// from before their fabric has changed to DRA.
func (d *Driver) offered(ctx context.Context) ([]offer.Item, error) {
	claims, err := d.Prepared.All()
	if err != nil {
		d.Log.Debug("some prepared claims cannot be read", "error", err)
	}
	entries, err := d.Store.List()
	if err != nil {
		d.Log.Debug("some journal entries cannot be read", "error", err)
	}
	others := heldByOthers(entries, claims)
	given := d.givenByKubelet(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []offer.Item
	for i := range d.view.Devices {
		n := &d.view.Devices[i]
		if !others[n.Item.Address.String()] && !given[Unit{n.Item.Resource, n.Item.ID()}] {
			out = append(out, n.Item)
		}
	}
	return out, nil
}

// Unit is a device that kubelet has given to a pod: of a resource, by its id.
type Unit struct{ Resource, ID string }

// askKubelet is for how long kubelet is asked what it has given, once a fabric has allocation DRA here: its device
// plugin offers nothing from then on, but a pod may have been given a device, and have no ADD yet.
const askKubelet = time.Minute

// givenByKubelet are the devices that kubelet's device plugin has given to pods. Shares count as their device.
func (d *Driver) givenByKubelet(ctx context.Context) map[Unit]bool {
	if d.Given == nil || !d.askGiven() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	list, err := d.Given(ctx)
	if err != nil {
		d.Log.Debug("cannot ask kubelet for what it has given", "error", err)
	}
	out := map[Unit]bool{}
	ours := d.resources() // as of now, as offered has its devices: the answer may have taken a second
	for _, u := range list {
		if ours[u.Resource] {
			whole, _ := offer.Share(u.ID)
			out[Unit{u.Resource, whole}] = true
		}
	}
	d.published.given = len(out) > 0
	return out
}

// askGiven tells whether kubelet may have given devices of a fabric with allocation DRA.
func (d *Driver) askGiven() bool {
	now, ours := d.Now(), d.resources()
	for r := range ours {
		if _, known := d.published.since[r]; !known {
			d.published.since[r] = now
		}
	}
	for r, since := range d.published.since {
		if !ours[r] {
			delete(d.published.since, r)
		} else if now.Sub(since) < askKubelet {
			return true
		}
	}
	return d.published.given
}

// resources are those of the fabrics with allocation DRA.
func (d *Driver) resources() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]bool{}
	for i := range d.view.Devices {
		out[d.view.Devices[i].Item.Resource] = true
	}
	return out
}

// heldByOthers are the addresses of devices that are in pods for which no claim of theirs is prepared.
func heldByOthers(entries []*journal.Entry, claims []*prepared.Claim) map[string]bool {
	given := map[string]bool{}
	for _, c := range claims {
		for i := range c.Devices {
			given[c.PodUID+" "+c.Devices[i].Address.String()] = true
		}
	}
	out := map[string]bool{}
	for _, e := range entries {
		at := e.DeviceKey
		if e.Child != nil {
			at = e.Child.Parent.String()
		}
		if at != "" && !given[podUID(e)+" "+at] {
			out[at] = true
		}
	}
	return out
}
