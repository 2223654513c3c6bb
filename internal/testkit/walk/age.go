package walk

import (
	"errors"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Age makes all attachments of a state directory look ten minutes older: GC leaves those alone that are newer than the
// runtime's list.
func Age(stateDir string) error {
	s := journal.Store{Dir: stateDir}
	entries, err := s.List()
	if errors.Is(err, journal.ErrCorrupt) {
		err = nil
	}
	for _, e := range entries {
		e.BootTime, e.Created = 0, e.Created.Add(-10*time.Minute)
		err = errors.Join(err, s.Save(e))
	}
	return err
}
