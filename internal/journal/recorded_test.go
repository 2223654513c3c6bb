package journal

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/recorded"
)

// What an older binary has written is read and written again without loss, and with what a newer one adds to it.
func TestRecordedEntries(t *testing.T) {
	entries, err := recorded.Entries()
	must(t, err)
	if len(entries) < 7 {
		t.Fatalf("%d recorded entries", len(entries))
	}
	for name, b := range entries {
		t.Run(name, func(t *testing.T) {
			lossless(t, b)

			var all map[string]any
			must(t, json.Unmarshal(b, &all))
			all["version"], all["added"] = 2, map[string]any{"by": "a newer version"}
			if n, ok := all["netdev"].(map[string]any); ok {
				n["added"] = []any{1, 2}
			}
			newer, err := json.Marshal(all)
			must(t, err)
			lossless(t, newer)
		})
	}
}

func lossless(t *testing.T, b []byte) {
	t.Helper()
	s := Store{t.TempDir()}
	e, err := Decode(b)
	must(t, err)
	if e.DeviceKey == "" || e.Netns.Ino == 0 || e.BootID == "" || e.Conf == nil || !e.Attached {
		t.Errorf("read as %+v", e)
	}
	must(t, s.Save(e))
	again, err := s.Load(e.Key)
	must(t, err)
	written, err := again.Encode()
	must(t, err)
	if diff := cmp.Diff(indent(t, b), indent(t, written)); diff != "" {
		t.Errorf("-recorded +written:\n%s", diff)
	}
}
