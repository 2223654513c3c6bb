package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// uninstall removes the binary, this node's network configurations and the state. With --force the state stays if
// attachments remain: it is the only record of where their devices belong.
func (o *Options) uninstall(log *slog.Logger) error {
	if err := o.target().Uninstall(o.Force); err != nil {
		return err
	}
	if _, err := network.WriteFiles(o.ConfDir, nil, nil); err != nil {
		return err
	}
	switch entries, err := o.store().List(); {
	case err != nil || len(entries) > 0:
		log.Warn("the state stays: it says where devices belong", "path", o.StateDir, "attachments", len(entries))
		// nobody would notice when the node gets other addresses
		err := os.Remove(filepath.Join(o.StateDir, policy.NodeAddressesFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	default:
		if err := o.forgetClaims(); err != nil {
			return err
		}
		if err := removeState(o.StateDir); err != nil {
			return fmt.Errorf("remove the state: %w", err)
		}
	}
	log.Info("uninstalled", "path", filepath.Join(o.BinDir, filepath.Base(o.Source)))
	return nil
}

// removeState empties the state directory, and removes it where it is not a mount of the agent's container.
func removeState(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		}
		return os.Remove(path)
	})
	slices.Reverse(dirs) // what is within a directory before the directory
	for _, d := range dirs {
		if rerr := os.Remove(d); rerr != nil && d != dir {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
