package node_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// A recording, a recording of it, and JSON of the picture are all as good as the machine.
func TestRecord(t *testing.T) {
	for _, m := range machines.All() {
		dir := t.TempDir()
		if err := m.Plant(dir); err != nil {
			t.Fatal(err)
		}
		first, want, err := node.Record(os.DirFS(dir), journal.Store{})
		if err != nil {
			t.Fatal(m.Name, err)
		}
		var packed, again bytes.Buffer
		if _, err := first.WriteTo(&packed); err != nil {
			t.Fatal(err)
		}
		size := packed.Len()
		once := packed.String()
		tree, err := node.Unpack(&packed)
		if err != nil {
			t.Fatal(err)
		}
		second, got, err := node.Record(tree, journal.Store{})
		if err != nil {
			t.Fatal(m.Name, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("%s, recorded (-want +got):\n%s", m.Name, d)
		}
		if _, err := second.WriteTo(&again); err != nil || again.String() != once {
			t.Errorf("%s: recording a recording gives other bytes, %v", m.Name, err)
		}
		if size > 40<<10 {
			t.Errorf("%s: the recording has %d bytes", m.Name, size)
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back node.Node
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Fabrics(), back.Fabrics(), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("%s: the fabrics of a picture read from JSON (-want +got):\n%s", m.Name, d)
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	if _, err := node.Unpack(strings.NewReader("no archive")); err == nil || !strings.Contains(err.Error(), "tar.gz") {
		t.Errorf("no archive: %v", err)
	}
	if _, err := node.Open(
		os.DirFS(t.TempDir()),
		journal.Store{},
	); err == nil ||
		!strings.Contains(err.Error(), "--root") {
		t.Errorf("empty tree: %v", err)
	}
}

// The host itself has whatever it has: reading it must not fail.
func TestThisMachine(t *testing.T) {
	if _, err := node.Open(os.DirFS("/"), journal.Store{Dir: t.TempDir()}); err != nil {
		t.Error(err)
	}
}
