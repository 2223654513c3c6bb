package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ErrInUse tells that pods still have what only the binary can take home.
var ErrInUse = errors.New("attachments remain")

// Uninstall removes the binary. While the journal has attachments it refuses and names them: without the binary nobody
// brings their devices home. With force it removes it all the same.
func (t Target) Uninstall(force bool) error {
	remaining, err := t.remaining()
	if err != nil && !force {
		return err
	}
	if len(remaining) > 0 && !force {
		return fmt.Errorf(
			"uninstall %s: %w: %s; delete these pods first, or use --force and bring the devices home by hand",
			t.Path(),
			ErrInUse,
			strings.Join(remaining, ", "),
		)
	}
	if err := t.sweep(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(t.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}

// remaining names the attachments of the journal. An entry that can't be read counts as one.
func (t Target) remaining() ([]string, error) {
	entries, err := t.Store.List()
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s (network %s, device %s)", e.Key, e.Network, e.Claim))
	}
	if err != nil {
		return out, fmt.Errorf("uninstall %s: %w: %w", t.Path(), ErrInUse, err)
	}
	return out, nil
}
