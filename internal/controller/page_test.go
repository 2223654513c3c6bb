package controller

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// pages are lists as the API server sends them, decoded as client-go does: into the list that is there.
type pages struct {
	client.Reader
	left []string
}

func (p *pages) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	text := p.left[0]
	p.left = p.left[1:]
	return json.UnmarshalCaseSensitivePreserveInts([]byte(text), into)
}

// An object of the second page has nothing of the one that was in its place.
func TestEachPage(t *testing.T) {
	r := &pages{left: []string{
		`{"metadata":{"continue":"2"},"items":[{"metadata":{"name":"a"},"spec":{"allocator":"x"},"status":{"held":{}}}]}`,
		`{"metadata":{},"items":[{"metadata":{"name":"b"}}]}`,
	}}
	list := &v1alpha1.FabricNodeList{}
	var seen []v1alpha1.FabricNode
	err := eachPage(t.Context(), r, list, 1, func() { seen = append(seen, list.Items...) })
	if err != nil || len(seen) != 2 {
		t.Fatalf("%d FabricNodes: %v", len(seen), err)
	}
	if b := seen[1]; seen[0].Spec.Allocator != "x" || b.Name != "b" || b.Spec.Allocator != "" || b.Status.Held != nil {
		t.Errorf("%+v", seen)
	}
}
