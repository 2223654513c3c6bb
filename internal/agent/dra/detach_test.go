package dra

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// What the hook has attached of a claim is returned before the claim is forgotten, and nothing else. What can't be
// returned now is left to repair.
func TestUnprepareDetaches(t *testing.T) {
	n := newNode(t, "0000:3b:00.0", "0000:5e:00.0")
	of := func(container, ifName, claim string, held bool) *journal.Entry {
		return &journal.Entry{Key: journal.Key{ContainerID: container, IfName: ifName}, Held: held,
			Kind: journal.KindDevice, Attached: true, FromClaim: &journal.ClaimDevice{ClaimUID: claim}}
	}
	foreign := of("other", "net1", "", false)
	foreign.FromClaim = nil
	for _, e := range []*journal.Entry{
		of("pod-1", "net1", "c1", true), of("pod-1", "net2", "c1", true), of("sandbox", "net3", "c1", false),
		of("pod-2", "net1", "c2", true), foreign,
	} {
		if err := n.Store.Save(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.prepare(t.Context(), given("c1", "p1", "pci-0000-3b-00-0", "pci-0000-5e-00-0")); err != nil {
		t.Fatal(err)
	}
	var detached []string
	n.Detach = func(_ context.Context, e *journal.Entry) error {
		if !n.Prepared.Has("c1") {
			t.Error("the claim has been forgotten before")
		}
		detached = append(detached, e.String())
		return errors.New("the plugin is away")
	}
	errs, err := n.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: types.UID("c1")}})
	if err != nil || errs["c1"] != nil {
		t.Error(err, errs)
	}
	if !slices.Equal(detached, []string{"pod-1/net1", "pod-1/net2"}) || n.Prepared.Has("c1") {
		t.Errorf("detached %v, prepared %v", detached, n.Prepared.Has("c1"))
	}
}
