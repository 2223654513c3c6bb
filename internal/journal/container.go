package journal

import (
	"os"
	"path/filepath"
)

// Of returns the attachments of one container, without those that can't be read: the names of the files tell whose
// they are.
func (s Store) Of(containerID string) []*Entry {
	names, err := os.ReadDir(filepath.Join(s.Dir, "attachments"))
	if err != nil {
		return nil
	}
	var out []*Entry
	for _, n := range names {
		if k, ok := keyOf(n.Name()); ok && k.ContainerID == containerID {
			if e, err := s.Load(k); err == nil {
				out = append(out, e)
			}
		}
	}
	return out
}
