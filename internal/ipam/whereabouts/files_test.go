package whereabouts_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

var section = regexp.MustCompile(`"ipam" *: *\{`)

// Whereabouts understands every section in the files that users start from, and in those that fabricctl generates.
func TestFiles(t *testing.T) {
	found := map[string]int{}
	for _, top := range []string{"conf", "docs", "README.md", "cmd/fabricctl/internal/generate/testdata"} {
		err := filepath.WalkDir(filepath.Join("../../..", top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, at := range section.FindAllIndex(b, -1) {
				var ipam json.RawMessage
				var kind struct{ Type string }
				if err := json.NewDecoder(bytes.NewReader(b[at[1]-1:])).Decode(&ipam); err != nil {
					continue // an excerpt
				}
				if json.Unmarshal(ipam, &kind) != nil || kind.Type != whereabouts.Type {
					continue
				}
				found[top]++
				if _, err := whereabouts.Parse(ipam); err != nil {
					t.Errorf("%s: %s: %v", file, ipam, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found["conf"] < 5 || found["cmd/fabricctl/internal/generate/testdata"] < 5 {
		t.Errorf("%v", found)
	}
}
