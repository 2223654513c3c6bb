package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
)

// hold takes the lock of the call's attachment: one ADD or DEL of it at a time. It is taken before a device's.
func (c *call) hold() error {
	ctx, cancel := bounded(lockWait)
	defer cancel()
	var err error
	c.held, err = c.store.LockAttachment(ctx, c.key)
	return err
}

// enroll keeps an uninstall from removing anything until the call ends. An ADD that comes while one is at work, or has
// waited for it, is refused: there would be no plugin to return its device. Other verbs go on in any case.
func (s *session) enroll() error {
	s.store.Private()
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := s.store.LockCall(ctx)
	if err == nil {
		s.closers = append(s.closers, func() error { lock.Unlock(); return nil })
	}
	if s.Command != "ADD" {
		if err != nil {
			s.log.Warn("an uninstall does not wait for this call", "reason", err)
		}
		return nil
	}
	if err != nil && !errors.Is(err, journal.ErrBusy) {
		return err
	}
	return s.installed()
}

// installed refuses an ADD whose plugin is being uninstalled, or has been since the process began.
func (s *session) installed() error {
	away := s.store.Away()
	exe, _ := os.Readlink("/proc/self/exe")
	if path, deleted := strings.CutSuffix(exe, " (deleted)"); deleted { // or replaced by another version
		_, err := os.Lstat(path)
		away = away || errors.Is(err, fs.ErrNotExist)
	}
	if !away {
		return nil
	}
	return &failure{code: codeTryAgain, err: errors.New("the plugin is being uninstalled from this node"),
		hint: "install it again, or let the pod run on another node"}
}

func (c *call) letGo() { c.held.Unlock() }

// addresses waits for IPAM, or calls it now when it needed the interface.
func (a *attachment) addresses() (*result.Result, error) {
	if a.ipam == nil {
		a.ipam = a.startIPAM()
	}
	if err := a.await(); err != nil {
		return nil, err
	}
	return a.ipam.res, a.ipam.err
}

// await waits for IPAM and holds no lock meanwhile: an IPAM plugin may hang, and no other call is to hang with it. A
// DEL, or another ADD of this container and interface, may have returned the device by then, and the next pod may have
// it: then nothing of it may be touched.
func (a *attachment) await() error {
	if a.superseded == nil && !a.ipam.ended() {
		a.lock.Unlock()
		a.letGo()
		a.ipam.wait()
		var err error
		if a.superseded, err = a.regain(); err != nil {
			a.superseded = &superseded{err: err}
		}
	}
	if a.superseded != nil {
		return a.superseded
	}
	return nil
}

// superseded says that an attachment is not its ADD's any more.
type superseded struct {
	err       error
	addresses bool // no other call gives back what IPAM has given: this ADD has to
	entry     bool // likewise what is left on disk
}

func (s *superseded) Error() string { return s.err.Error() }
func (s *superseded) Unwrap() error { return s.err }

// regain takes the attachment's lock again and looks whether the attachment is this ADD's still.
func (a *attachment) regain() (*superseded, error) {
	if err := a.hold(); err != nil {
		return nil, err // the call that works on it for so long returns it, and calls IPAM's DEL
	}
	e, err := a.store.Load(a.key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &superseded{err: returned("DEL came while ADD waited for its IPAM plugin"), addresses: true}, nil
	case err != nil:
		return nil, err
	case e.Nonce != a.entry.Nonce:
		return &superseded{err: &failure{
			code: codeInUse, err: errors.New("another ADD of this attachment came while this one waited for IPAM"),
		}}, nil
	}
	mine, err := a.holdsDevice()
	if err != nil || mine {
		return nil, err
	}
	const what = "its device was returned while ADD waited for its IPAM plugin"
	return &superseded{err: returned(what), addresses: true, entry: true}, nil
}

// returned is the error of an ADD whose attachment has been ended meanwhile. Nothing is left of it: the specification
// has a code for that.
func returned(what string) error {
	return &failure{code: types.ErrUnknownContainer, err: fmt.Errorf("%s", what)}
}

// holdsDevice says whether the journal has the device, or the child on it, as this attachment's.
func (a *attachment) holdsDevice() (bool, error) {
	e := a.entry
	if e.Kind == journal.KindIPoIB {
		users, err := a.store.Children(e.Claim)
		return slices.Contains(users, e.Key), err
	}
	owner, ok, err := a.store.Owner(e.Claim)
	return ok && owner == e.Key, err
}

// releaseAddresses waits for IPAM and gives back what it has given, in an ADD that has failed with err. held is set if
// the plugin may hold addresses all the same.
func (a *attachment) releaseAddresses(err error) (held bool, _ error) {
	var errs []error
	if werr := a.await(); werr != nil && !errors.Is(err, werr) {
		errs = append(errs, werr)
	}
	ierr := a.ipam.err
	held = errors.Is(ierr, ipam.ErrHeld)
	switch {
	case ierr != nil && !errors.Is(err, ierr):
		errs = append(errs, ierr)
	case ierr == nil && (a.superseded == nil || a.superseded.addresses):
		derr := a.callIPAMDel(a.key, a.delegate())
		held = derr != nil
		errs = append(errs, derr)
	}
	return held, errors.Join(errs...)
}

// clear removes what is left on disk of an attachment whose device has been returned.
func (s *superseded) clear(a *attachment) error {
	if !s.entry {
		return nil
	}
	return a.erase(a.entry)
}
