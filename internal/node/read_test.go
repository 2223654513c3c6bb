package node_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(b)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func TestRead(t *testing.T) {
	for _, m := range machines.All() {
		n, err := node.Open(m.FS, journal.Store{})
		if err != nil {
			t.Fatal(m.Name, err)
		}
		golden(t, m.Name, struct {
			Node    *node.Node
			Fabrics topology.Fabrics
		}{n, n.Fabrics()})
	}
}
