package journal_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

func TestNewer(t *testing.T) {
	s := journal.Store{Dir: t.TempDir()}
	if got, err := s.Newer(); err != nil || got != nil {
		t.Errorf("no journal: %v, %v", got, err)
	}
	dir := filepath.Join(s.Dir, "attachments")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"a@net1":  `{"version":1,"containerID":"a","ifName":"net1","kind":"device"}`,
		"b@net1":  `{"version":2,"containerID":"b","ifName":"net1","kind":"device"}`,
		"c@net1":  `{"version":7,"container":["another","shape"],"kind":3}`,
		"d@net1":  `not JSON`,
		".e@net1": `{"version":9}`, // left by a kill
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Newer()
	if want := []string{"b@net1", "c@net1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
