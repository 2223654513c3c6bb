package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// use is one that has a device: an attachment, or a ResourceClaim that was prepared.
type use struct {
	id      string // another one has another
	network string // as its configuration has it, which may be anybody's; of a claim the Fabric
	pod     string // namespace/name; empty: not known
	claim   bool
}

func (u *use) String() string {
	who := "pod " + quote.Terminal(cmp.Or(u.pod, "of which nothing is known"))
	if u.claim {
		return who + " has it by a ResourceClaim"
	}
	return who + " has it, on network " + quote.Terminal(cut(u.network))
}

// cut bounds what a tenant has named.
func cut(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// holders are who has what on this node.
type holders struct {
	whole    map[string][]use // by the device's address
	children map[string][]use // by the parent's address: IPoIB children
	on       map[string]int   // by network, how many attachments
	paths    []string         // CNI_PATH of the attachments, each once
	// given are the pods to which kubelet has given units, by resource and id. Nil: kubelet can't be asked.
	given map[[2]string]string
}

// holderReader finds out who has what.
type holderReader struct {
	store  journal.Store
	claims prepared.Store
	// given asks kubelet what it has given to whom. May be nil.
	given func(context.Context) ([]prefer.Container, error)
	log   *slog.Logger
}

func (r *holderReader) read(ctx context.Context) *holders {
	h := &holders{whole: map[string][]use{}, children: map[string][]use{}, on: map[string]int{}}
	entries, err := r.store.List()
	if err != nil {
		r.log.Debug("some journal entries cannot be read", "error", err)
	}
	for _, e := range entries {
		h.on[e.Network]++
		if e.Path != "" && !slices.Contains(h.paths, e.Path) {
			h.paths = append(h.paths, e.Path)
		}
		u := use{id: e.String() + " " + e.Nonce, network: e.Network, pod: e.Pod()}
		if e.Child != nil {
			at := e.Child.Parent.String()
			h.children[at] = append(h.children[at], u)
			continue
		}
		// Late entries apart: the device is home, or another attachment's.
		if owner, ok, err := r.store.Owner(e.DeviceKey); e.DeviceKey == "" || err != nil || !ok || owner != e.Key {
			continue
		}
		at := e.Address
		if e.HCA != nil && !e.HCA.Address.IsZero() {
			at = e.HCA.Address
		}
		h.whole[at.String()] = append(h.whole[at.String()], u)
	}
	claims, err := r.claims.All()
	if err != nil {
		r.log.Debug("some prepared claims cannot be read", "error", err)
	}
	for _, c := range claims {
		for i := range c.Devices {
			at := c.Devices[i].Address.String()
			u := use{id: c.UID, network: c.Devices[i].Fabric, pod: c.ForPod(), claim: true}
			h.whole[at] = append(h.whole[at], u)
		}
	}
	if r.given != nil && len(entries) > 0 { // else no pod has a device
		h.ask(ctx, r)
	}
	return h
}

// ask asks kubelet, which may be restarting just then: then names have to do.
func (h *holders) ask(ctx context.Context, r *holderReader) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.given(ctx)
	if err != nil {
		r.log.Debug("cannot ask kubelet which devices pods have", "error", err)
		return
	}
	h.given = map[[2]string]string{}
	for _, c := range list {
		for _, u := range c.Devices {
			h.given[[2]string{u.Resource, u.ID}] = c.Pod
		}
	}
}

// to returns the pod that kubelet has given a unit to.
func (h *holders) to(f *fabrics.Fabric, unit string) (pod string, given bool) {
	pod, given = h.given[[2]string{f.Resource(), unit}]
	return pod, given
}

// stranger returns who has a device of a fabric without having been given it: no pod of the fabric can be served with
// it. sure is false if that may be over in a moment: a pod that has just ended, or begins.
func (h *holders) stranger(f *fabrics.Fabric, d *survey.Device) (u *use, sure bool) {
	whole := h.whole[d.Address.String()]
	if f.Attachment == v1alpha1.IPoIBChild {
		for i := range whole {
			if !whole[i].claim || f.Allocation != v1alpha1.DRA { // a claim has a share
				return &whole[i], true
			}
		}
		return nil, true
	}
	for i := range whole {
		if u := &whole[i]; !h.own(f, d, u) {
			return u, h.given == nil || u.network != f.Name && !h.knows(f, d)
		}
	}
	if children := h.children[d.Address.String()]; len(children) > 0 { // a move would destroy them
		return &children[0], true
	}
	return nil, true
}

func (h *holders) knows(f *fabrics.Fabric, d *survey.Device) bool {
	_, given := h.to(f, d.ID())
	return given
}

// own tells whether an exclusive device was given to its holder. kubelet knows; the name of a network does only where
// kubelet can't be asked, because a tenant chooses it.
func (h *holders) own(f *fabrics.Fabric, d *survey.Device, u *use) bool {
	if f.Allocation == v1alpha1.DRA {
		return u.claim || u.network == f.Name
	}
	if u.claim {
		return false // from before the fabric has changed from DRA: until its pod has ended
	}
	if h.given == nil {
		return u.network == f.Name
	}
	pod, given := h.to(f, d.ID())
	return given && (pod == u.pod || u.pod == "")
}
