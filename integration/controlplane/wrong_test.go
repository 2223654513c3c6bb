package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// A wrong Fabric is refused when it is applied, with the field and the cure.
func TestWrongFabrics(t *testing.T) {
	for range 100 { // the API server serves a new kind a moment after it has accepted it
		if err := server.ApplyText(t.Context(), []byte(fabrics.Object("probe", "{}"))); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, w := range fabrics.AllWrong {
		err := server.Create(t.Context(), []byte(w.Object()))
		if err == nil {
			t.Errorf("%s: accepted", w.Name)
			continue
		}
		for _, want := range w.Want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", w.Name, err, want)
			}
		}
	}
}
