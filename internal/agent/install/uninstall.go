package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ErrInUse means that pods still have devices that only the binary can return to the host.
var ErrInUse = errors.New("attachments remain")

// Uninstall removes the binary. While the journal has attachments it returns ErrInUse and names them: without the
// binary nothing returns their devices to the host. With force it removes the binary all the same.
func (t Target) Uninstall(force bool) error {
	remaining, err := t.remaining()
	if err != nil && !force {
		return err
	}
	if len(remaining) > 0 && !force {
		return fmt.Errorf("uninstall %s: %w: %s; delete these pods first, or use --force and return the devices by "+
			"hand", t.Path(), ErrInUse, strings.Join(remaining, ", "))
	}
	if err := t.sweep(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(t.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}

// remaining describes the attachments in the journal. An entry that cannot be read counts as one.
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
