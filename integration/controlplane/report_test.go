package controlplane_test

import (
	"context"
	"log/slog"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// A new node asks for its ranges first, and sends its inventory with what changes when it has them.
func TestFirstReport(t *testing.T) {
	c := api(t)
	defer removeNodes(t, c)
	l, err := cluster.NewLink(server.Config, "new", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	status := fullStatus()
	there := func() *v1alpha1.FabricNode {
		n := &v1alpha1.FabricNode{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "new"}, n); err != nil {
			return nil
		}
		return n
	}
	whole := false
	report := func() {
		t.Helper()
		if whole, err = l.Report(t.Context(), status); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() string {
		if report(); there() == nil {
			return "no FabricNode"
		}
		return ""
	})
	if n := there(); whole || n.Status.Inventory != nil || len(n.Status.Fabrics) != 1 {
		t.Errorf("first %+v", n.Status)
	}
	until(t, func() string {
		if report(); !whole {
			return "the inventory is not reported"
		}
		return ""
	})
	if n := there(); n.Status.Inventory == nil {
		t.Errorf("then %+v", n.Status)
	}
	if status.Inventory == nil {
		t.Error("the agent's own status is changed")
	}
}
