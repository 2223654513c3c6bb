package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// endTime is how long uninstall waits for the node's agent to withdraw its devices.
const endTime = time.Minute

// uninstall removes everything that this project has put on the node. It refuses while pods have devices. An agent that
// runs here withdraws its devices from kubelet first, so that no pod gets one meanwhile, and does nothing from then on.
// With --force the state stays if attachments remain: it is the only record of where their devices belong.
func (o *Options) uninstall(ctx context.Context, log *slog.Logger) error {
	o.adopt()
	inUse := func() error {
		if o.Force {
			return nil
		}
		return o.target().InUse()
	}
	if err := inUse(); err != nil {
		return err // nothing has been changed
	}
	p := presence{o.StateDir}
	present, err := p.dismiss(ctx)
	if err != nil {
		return err
	}
	defer present.Close()
	calls, err := o.calls(ctx, log)
	if err != nil {
		return errors.Join(err, remove(p.away()))
	}
	defer calls.Unlock()
	if err := inUse(); err != nil { // of a pod that got its devices before they were withdrawn
		return errors.Join(err, remove(p.away()))
	}
	if err := o.removeFiles(); err != nil {
		return fmt.Errorf("%w; the agent of this node does nothing meanwhile: run uninstall again", err)
	}
	if err := o.removeRecords(log); err != nil {
		return err
	}
	if err := errors.Join(remove(p.present()), o.last()); err != nil {
		return fmt.Errorf("remove the state: %w", err)
	}
	log.Info("uninstalled", "path", o.target().Path())
	return nil
}

// calls waits until no call of the plugin is at work, and keeps others from beginning: an ADD that waits for a device
// has no entry yet. With --force one that goes on for too long is not waited for: it is refused when it has the device.
func (o *Options) calls(ctx context.Context, log *slog.Logger) (*journal.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	held, err := o.store().LockCalls(ctx)
	if o.Force && errors.Is(err, journal.ErrBusy) {
		log.Warn("calls of the plugin are at work still, and not waited for")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall: wait for the plugin's calls that are at work: %w; run uninstall again", err)
	}
	return held, nil
}

// dismiss makes the agents of this node do nothing, and waits until they do.
func (p presence) dismiss(ctx context.Context) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, fmt.Errorf("uninstall: stop the agent of this node: %w", err)
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(p.away(), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := f.Close(); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	present, err := lock(ctx, p.present(), os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return fail(errors.Join(err, remove(p.away())))
	}
	return present, nil
}

// removeFiles removes what is outside of the state directory.
func (o *Options) removeFiles() error {
	if err := o.target().Uninstall(true); err != nil {
		return err
	}
	errs := []error{deviceplugin.Remove(o.DeviceDir, o.InfoDir, fabrics.ResourcePrefix)}
	if o.ConfDir != "" {
		_, err := network.WriteFiles(o.ConfDir, nil, nil)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}

// removeRecords removes the state and the runtime's files of claims, unless pods have devices still.
func (o *Options) removeRecords(log *slog.Logger) error {
	if err := o.target().InUse(); err != nil {
		log.Warn("the state stays: it says where devices belong", "path", o.StateDir, "reason", err.Error())
		// it would not be updated when the node gets other addresses
		return remove(filepath.Join(o.StateDir, policy.NodeAddressesFile))
	}
	if (journal.Holds{Store: o.store()}).Any() {
		if err := repair.ReleaseHolds(o.HostProc, o.store()); err != nil {
			return fmt.Errorf("remove the state: %w", err)
		}
	}
	specs, err := cdi.In(o.CDIDir, o.target().Path(), o.StateDir)
	if err != nil {
		return fmt.Errorf("forget claims: %w", err)
	}
	claims, err := specs.Claims()
	errs := []error{err}
	for _, uid := range claims {
		errs = append(errs, specs.Remove(uid))
	}
	if o.PluginsDir != "" {
		dir := filepath.Join(o.PluginsDir, fabrics.Driver)
		errs = append(errs, remove(filepath.Join(o.PluginsDir+"_registry", fabrics.Driver+"-reg.sock")),
			remove(filepath.Join(dir, "dra.sock")), remove(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget claims: %w", err)
	}
	return removeState(o.StateDir, presentName, awayName)
}

// last removes the file for which agents wait, unless one does, and then the state directory, if nothing else is in it.
func (o *Options) last() error {
	gone, err := presence{o.StateDir}.leave()
	if err == nil && gone {
		_ = os.Remove(o.StateDir) // a mount of the agent's container stays, and so does what --force has left
	}
	return err
}

// removeState empties the state directory but for these files.
func removeState(dir string, but ...string) error {
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
		case filepath.Dir(path) == filepath.Clean(dir) && slices.Contains(but, d.Name()):
			return nil
		}
		return remove(path)
	})
	slices.Reverse(dirs) // what is within a directory before the directory
	for _, d := range dirs {
		if d != dir {
			err = errors.Join(err, remove(d))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the state: %w", err)
	}
	return nil
}

// install puts the binary in place, and lets the agents of a node that was uninstalled work again.
func (o *Options) install() (changed bool, err error) {
	o.store().Private()
	if changed, err = o.target().Install(); err == nil {
		err = remove(presence{o.StateDir}.away())
	}
	return changed, err
}
