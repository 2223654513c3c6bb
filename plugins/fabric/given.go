package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// allotted reads what kubelet and ResourceClaims have given to this pod of the device, and what kubelet has given to
// others of its card. Without a pod (STATUS) nothing is to be judged.
func (g *gatherer) allotted(claims []*prepared.Claim, card []device.Address) {
	p, f := g.facts.Policy, g.facts
	if p == nil || g.pod == nil {
		return
	}
	uid := g.cfg.Pod.UID
	f.Given = attach.Given{
		Unjudged: g.planned && uid == "", NoUID: !prepared.IsUID(uid), Whole: g.chosen.fromClaim != nil,
		Resource: p.Resource(g.dev.Claim()),
	}
	_, fabric, _ := strings.Cut(f.Given.Resource, "/")
	for _, c := range claims {
		for i := range c.Devices {
			switch d := &c.Devices[i]; {
			case c.PodUID != uid || f.Given.NoUID:
			case d.Shared && d.Fabric == fabric:
				f.Given.Shares++
			case !d.Shared && d.Address == card[0]:
				f.Given.Whole = true
			}
		}
	}
	g.countChildren(p.Resource)
	ids := g.idsOf(card)
	var all []string
	for id := range ids {
		all = append(all, id)
	}
	held, err := kubelet.Who(p.DevicePluginDir, uid, all)
	if err != nil {
		f.Given.Unknown = err
		g.log.Warn("it is not known which devices kubelet has given to pods", "reason", err)
		return
	}
	f.Promises = append(f.Promises, g.regard(p.DevicePluginDir, held, ids)...)
}

// regard counts what is this pod's, and returns what is others'.
func (g *gatherer) regard(
	dir string, held []kubelet.Holding, ids map[string]device.Address,
) (others []attach.Promise) {
	f := g.facts
	shares := map[string]bool{}
	for i := range held {
		h := &held[i]
		own := h.PodUID == g.cfg.Pod.UID
		if !own && hasEnded(dir, h.PodUID) {
			continue
		}
		for _, id := range h.IDs {
			whole := kubelet.Whole(id)
			a, related := ids[whole]
			switch {
			case own && whole != id:
				if h.Resource == f.Given.Resource {
					shares[id] = true
				}
			case own:
				f.Given.Whole = f.Given.Whole || related && a == g.address()
			case related:
				others = append(others, attach.Promise{
					Pod: fmt.Sprintf("of UID %q", h.PodUID), Resource: fmt.Sprintf("%q", h.Resource),
					Device: a.String(), Shared: whole != id,
				})
			}
		}
	}
	f.Given.Shares += len(shares)
	if f.Given.Whole { // two resources may have it: the first pod gets it
		others = slices.DeleteFunc(others, func(p attach.Promise) bool { return p.Device == g.dev.Claim() })
	}
	return others
}

// address is the device as the journal and claims name it.
func (g *gatherer) address() device.Address {
	if g.dev.Address.IsZero() && g.dev.Netdev != nil {
		return device.Address{Bus: prepared.Virtual, Name: g.dev.Netdev.Name}
	}
	return g.dev.Address
}

// idsOf are the ids by which device plugins know these devices. That of a function whose bus is another one than PCI,
// such as virtio, may be its PCI address; of a subfunction that is another device's.
func (g *gatherer) idsOf(card []device.Address) map[string]device.Address {
	out := map[string]device.Address{}
	if g.dev.PCI != "" && g.dev.Address.Bus != "auxiliary" {
		out[g.dev.PCI] = g.address()
	}
	for _, a := range card {
		out[a.ID()] = a
		if a.Bus == "auxiliary" { // other device plugins leave the bus out
			out[a.Name] = a
		}
	}
	return out
}

// countChildren counts the other children of the container on devices of the same resource.
func (g *gatherer) countChildren(resource func(claim string) string) {
	if g.facts.Given.Resource == "" {
		return
	}
	for _, e := range g.store.Of(g.key.ContainerID) {
		if e.Key != g.key && e.Kind == journal.KindIPoIB && resource(e.Claim) == g.facts.Given.Resource {
			g.facts.Given.Children++
		}
	}
}

// starting is how long a pod may have no directory of its own after kubelet has written what it gets.
const starting = time.Minute

// hasEnded reports whether a pod has no directory any more, in which kubelet has its volumes until it has ended. A pod
// that starts has none yet.
func hasEnded(devicePlugins, podUID string) bool {
	pods := filepath.Join(filepath.Dir(filepath.Clean(devicePlugins)), "pods")
	if !prepared.IsUID(podUID) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(pods, podUID)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if info, err := os.Stat(pods); err != nil || !info.IsDir() {
		return false
	}
	info, err := os.Lstat(filepath.Join(devicePlugins, kubelet.Checkpoint))
	return err == nil && time.Since(info.ModTime()) > starting
}
