package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// ErrInUse means that pods still have devices that only the binary can return to the host.
var ErrInUse = errors.New("attachments remain")

// Uninstall removes the binary. While pods have devices it returns what InUse does: without the binary nothing returns
// them to the host. With force it removes the binary all the same.
func (t Target) Uninstall(force bool) error {
	if !force {
		if err := t.InUse(); err != nil {
			return err
		}
	}
	if err := t.sweep(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(t.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}

// InUse returns ErrInUse while the journal has attachments or a ResourceClaim is prepared, and names their pods.
func (t Target) InUse() error {
	remaining, err := t.remaining()
	switch {
	case err != nil:
		return fmt.Errorf("uninstall %s: %w: %w", t.Path(), ErrInUse, err)
	case len(remaining) > 0:
		return fmt.Errorf("uninstall %s: %w: %s; delete these pods first, or use --force and return the devices by "+
			"hand", t.Path(), ErrInUse, named(remaining))
	}
	return nil
}

// maxNamed is how many attachments a message names: a node may have thousands, and the others need no name to be found.
const maxNamed = 20

func named(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), more)
	}
	return strings.Join(all, ", ")
}

// remaining describes the attachments in the journal and what is prepared for pods. What is damaged and has no device
// holds nothing up. The error is of what can't be read at all.
func (t Target) remaining() ([]string, error) {
	entries, err := t.Store.List()
	var out []string
	pods := map[string]bool{}
	for _, e := range entries {
		if pod := e.Pod(); pod != "" {
			pods[pod] = true
		}
		of := e.Who() + ", " + e.IfName
		out = append(out, quote.Terminal(fmt.Sprintf("%s (network %s, device %s)", of, e.Network, e.DeviceKey)))
	}
	damaged, derr := t.Store.Damaged()
	for _, k := range damaged {
		out = append(out, quote.Terminal(k.Who()+", "+k.IfName)+" (its journal entry is damaged)")
	}
	claims, cerr := prepared.In(t.Store.Dir).All()
	for _, c := range claims {
		if !pods[c.Namespace+"/"+c.Pod] {
			out = append(out, fmt.Sprintf("pod %s (ResourceClaim %s)", c.ForPod(), c.Whose()))
		}
	}
	if errors.Is(err, journal.ErrCorrupt) { // of those that hold something Damaged has told
		err = nil
	}
	if errors.Is(cerr, prepared.ErrDamaged) {
		cerr = nil
	}
	return out, errors.Join(err, derr, cerr)
}
