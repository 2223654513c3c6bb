package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// Newer lists the entries that a later version of this format wrote: replacing a program by this one would leave them
// to code that knows less than their writer. It looks at the version only, so that an entry which this code can't
// decode at all is found too.
func (s Store) Newer() ([]string, error) {
	dir := filepath.Join(s.Dir, "attachments")
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			continue
		}
		b, err := atomicfile.Read(filepath.Join(dir, n.Name()), maxFile)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, atomicfile.ErrForeign) { // returned meanwhile; no entry
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read journal entry: %w", err)
		}
		var head struct{ Version int }
		if json.Unmarshal(b, &head) == nil && head.Version > Version {
			out = append(out, n.Name())
		}
	}
	return out, nil
}
