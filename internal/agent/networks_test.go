package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// The file of a network that a pod of this node is on stays when its fabric has left the settings. The file of a
// fabric with nodeRanges stays while the cluster cannot be asked, and goes when the range is another node's.
func TestFilesStay(t *testing.T) {
	dir := t.TempDir()
	attachment := filepath.Join(dir, "attachments/a@net1")
	if err := os.MkdirAll(filepath.Dir(attachment), 0o700); err != nil {
		t.Fatal(err)
	}
	const entry = `{"version":1,"containerID":"a","ifName":"net1","kind":"ipoib","network":"used"}`
	if err := os.WriteFile(attachment, []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Parse([]byte("fabrics: [{name: parted, nodeRanges: {range: 10.0.0.0/16, perNode: /26}}, " +
		"{name: shared, mode: shared}]"))
	if err != nil {
		t.Fatal(err)
	}
	r := &networkReconciler{
		confDir: filepath.Join(dir, "net.d"), store: journal.Store{Dir: dir},
		ranges: &rangeReconciler{ranges: map[string]nodeRange{}},
		log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	written := func(files map[string][]byte, want ...string) {
		t.Helper()
		r.write(s.Fabrics, files)
		list, err := filepath.Glob(filepath.Join(r.confDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "fabric-agent-"), ".conf"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	b := []byte("{}")
	written(map[string][]byte{"used": b, "unused": b, "parted": b, "shared": b}, "parted", "shared", "unused", "used")
	written(nil, "parted", "used")
	r.ranges.ranges["parted"] = nodeRange{lost: true}
	written(nil, "used")
	if err := os.Remove(attachment); err != nil {
		t.Fatal(err)
	}
	written(nil)
}
