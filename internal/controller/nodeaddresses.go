package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const (
	// addressesEvery is how often the addresses of Nodes are read; unreadAddressesEvery, while a Node is new or they
	// can't be read. A watch would bring each heartbeat of each Node.
	addressesEvery       = 10 * time.Minute
	unreadAddressesEvery = 30 * time.Second
	// nodePage is how many Nodes a list has at once: one may have 64 KiB.
	nodePage = 50
	// notedAtOnce is how many FabricNodes a round changes at most, and maxNodeAddresses how many addresses it believes.
	notedAtOnce, maxNodeAddresses = 100, 64
)

// nodeAddresses are those of Nodes that their agents are not told of by kubelet.
type nodeAddresses struct {
	at  time.Time
	of  map[types.UID]string // as in the annotation
	err error
}

// noteAddresses writes into FabricNodes which addresses their Nodes have beside those that kubelet tells pods. An agent
// can't read its Node: a role can't say "its own".
func (c *Controller) noteAddresses(ctx context.Context, w *world) error {
	k := &c.known
	if err := k.read(ctx, c.Ranges.Live, w, c.Now()); err != nil {
		return err
	}
	var errs []error
	changed := 0
	for i := range w.nodes {
		n := &w.nodes[i]
		want, known := k.of[w.uids[n.Name]]
		if !known || !w.present[n.Name] || n.Annotations[v1alpha1.NodeAddressesAnnotation] == want {
			continue
		}
		if changed++; changed > notedAtOnce {
			break
		}
		value := any(want)
		if want == "" {
			value = nil // without the annotation
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": n.UID, "annotations": map[string]any{v1alpha1.NodeAddressesAnnotation: value},
		}})
		if err == nil {
			o := &v1alpha1.FabricNode{}
			o.Name = n.Name
			err = c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("note the addresses of Node %s in its FabricNode: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// read reads the addresses of all Nodes, if one of them is new, or if that was a while ago.
func (k *nodeAddresses) read(ctx context.Context, live client.Reader, w *world, now time.Time) error {
	age := now.Sub(k.at)
	fresh := slices.ContainsFunc(w.nodes, func(n v1alpha1.FabricNode) bool {
		_, known := k.of[w.uids[n.Name]]
		return w.present[n.Name] && !known
	})
	switch {
	case k.at.IsZero() && fresh:
	case (fresh || k.err != nil) && age < unreadAddressesEvery, !fresh && k.err == nil && age < addressesEvery:
		return nil
	}
	of := map[types.UID]string{}
	k.at = now
	k.err = eachNode(ctx, live, nodePage, func(n *corev1.Node) { of[n.UID] = moreAddresses(n.Status.Addresses) })
	if k.err != nil {
		return fmt.Errorf("read the addresses of Nodes: %w", k.err)
	}
	k.of = of
	return nil
}

// moreAddresses are those that kubelet does not tell pods (status.hostIPs: of each family the first InternalIP, or
// without one the first ExternalIP; pkg/util/node of Kubernetes, GetNodeHostIPs): most Nodes have none.
func moreAddresses(all []corev1.NodeAddress) string {
	told := map[bool]bool{} // by whether it is of IPv4
	var out []string
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i := range all {
			a, err := netip.ParseAddr(all[i].Address)
			if err != nil || all[i].Type != kind {
				continue
			}
			text := a.Unmap().WithZone("").String()
			if four := a.Unmap().Is4(); !told[four] {
				told[four] = true
			} else if !slices.Contains(out, text) && len(out) < maxNodeAddresses {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
