// Package ipam hands the addressing of an attachment to an IPAM plugin. static and host-local are built in; they give
// the same answers, and use the same files and locks, as their executables. Every other plugin, and these two if the
// configuration has a key that the built-in one does not know, is an executable that speaks CNI, found in CNI_PATH.
//
// Everything a plugin gets is explicit (the configuration, the CNI_* variables). The environment of this process is not
// changed, so calls may run side by side, for different attachments too. An executable is forked from the calling
// thread and starts in that thread's network namespace: do not call from a thread that is inside a pod. What is built
// in works on files only.
package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// ErrNotStarted is matched by the error of a plugin that could not be executed: missing, not executable, or of a name
// that is no file name. Nothing was reserved.
var ErrNotStarted = errors.New("IPAM plugin not started")

// ErrNotSupported is matched by the error of GC when the plugin, or the version of the configuration, has no GC.
var ErrNotSupported = errors.New("not supported")

// ErrHeld is matched by the error of an ADD that has failed, and whose DEL after it has failed too.
var ErrHeld = errors.New("it may still hold addresses")

// undoTimeout bounds the DEL after a failed ADD. The context of the ADD has often just ended, and may not limit it.
const undoTimeout = 10 * time.Second

// Delegate is an IPAM plugin, called for one attachment. With an empty Type there are no addresses, and every method
// succeeds without doing anything.
//
// An error that the plugin itself answered with is found by errors.As with a *types.Error, and keeps its code. All
// errors name the plugin and the command.
type Delegate struct {
	Type   string      // name of the plugin, which is that of its file
	Conf   []byte      // the network configuration, as received on stdin
	Asked  []byte      // the same before the device of a claim was put into it; nil: Conf
	Env    netconf.Env // as received; Command is ignored
	Hold   *os.File    // inherited by an executable and by what that starts; nil: nothing is
	Stderr io.Writer   // gets what an executable writes to its stderr; nil: os.Stderr

	Policy *policy.Policy // of the node's owner; nil: what it is without a file
}

// Add reserves the addresses of the attachment. The answer has at least one; Interfaces is empty.
//
// A plugin that failed, or answered with something that is no result, is called with DEL before Add returns, as the
// spec asks of a delegating plugin; an error of that DEL is joined. When Add succeeds and a later step fails, Del is
// the caller's.
func (d Delegate) Add(ctx context.Context) (*result.Result, error) {
	if d.Type == "" {
		return &result.Result{}, nil
	}
	r, err := d.add(ctx)
	if err == nil || errors.Is(err, ErrNotStarted) || errors.Is(err, policy.ErrRefused) {
		return r, err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if failed := d.Del(undo); failed != nil {
		return nil, fmt.Errorf("%w; %w: %w", err, ErrHeld, failed)
	}
	return nil, err
}

// Usable returns an error if no call of the plugin with this configuration can succeed, whatever else is on the node:
// the owner's policy forbids it (the error matches policy.ErrRefused), there is no such plugin (ErrNotStarted), or the
// configuration of one that is built in is wrong. An ADD with it reserves nothing, and a DEL has nothing to give back.
func (d Delegate) Usable(command string) error {
	if d.Type == "" {
		return nil
	}
	b, _, err := d.choose(command)
	if b == nil || err != nil {
		return err
	}
	env := d.Env
	env.Command = command
	if _, err := b.answer(env, d.Conf, func() ([]byte, error) { return nil, b.valid(env, d.Conf) }); err != nil {
		return d.wrap(command, err)
	}
	return nil
}

func (d Delegate) add(ctx context.Context) (*result.Result, error) {
	out, err := d.call(ctx, "ADD", d.Env, d.Conf)
	if err != nil {
		return nil, err
	}
	r, err := result.Parse(out, confVersion(d.Conf))
	if err != nil {
		return nil, d.wrap("ADD", fmt.Errorf("answered %s: %w", quote(out), err))
	}
	if len(r.Addresses) == 0 {
		return nil, d.wrap("ADD", fmt.Errorf("answered without an address: %s", quote(out)))
	}
	r.Interfaces = nil // the spec has none in the answer of an IPAM plugin
	for i := range r.Addresses {
		r.Addresses[i].Interface = result.NoInterface
	}
	return r, nil
}

// Del gives the addresses of the attachment back. It is right also for one whose ADD failed or never ran, and when the
// network namespace is gone. For a stale attachment, set its ContainerID and IfName in Env.
func (d Delegate) Del(ctx context.Context) error {
	if d.Type == "" {
		return nil
	}
	_, err := d.call(ctx, "DEL", d.Env, d.Conf)
	if errors.Is(err, errSelf) {
		return nil // no ADD can have reserved anything, and DEL has to end some time
	}
	return err
}

// Check asks the plugin whether the attachment still has its addresses. Conf has to hold the prevResult. A plugin that
// rejects CHECK is not asked.
func (d Delegate) Check(ctx context.Context) error {
	if d.Type == "" || TypeOf(d.Type).RejectsCheck {
		return nil
	}
	_, err := d.call(ctx, "CHECK", d.Env, d.Conf)
	return err
}

// Status asks the plugin whether it could serve an ADD now. One that has no STATUS has nothing to say against it; one
// that is missing has.
func (d Delegate) Status(ctx context.Context) error {
	if d.Type == "" {
		return nil
	}
	err := d.call110(ctx, "STATUS", d.Conf)
	if errors.Is(err, ErrNotSupported) {
		return nil
	}
	return err
}

// GC passes the plugin the attachments of the network that are valid; it may free the addresses of all others. Success
// does not mean that it did: a plugin may accept GC and do nothing (host-local and whereabouts do), so call Del for
// every attachment that is known to be stale as well. The error matches ErrNotSupported when there is no GC.
func (d Delegate) GC(ctx context.Context, valid []netconf.Attachment) error {
	if d.Type == "" {
		return nil
	}
	conf, err := withAttachments(d.Conf, valid)
	if err != nil {
		return d.wrap("GC", err)
	}
	return d.call110(ctx, "GC", conf)
}

// call110 calls a command that came with CNI 1.1.0. The plugin is asked for its versions first: one that does not know
// a command may do anything, as a script with a default branch does.
func (d Delegate) call110(ctx context.Context, command string, conf []byte) error {
	// Filled in for plugins older than VERSION, which want all of them.
	dummy := netconf.Env{ContainerID: "dummy", Netns: "dummy", IfName: "dummy", Path: d.Env.Path}
	out, err := d.call(ctx, "VERSION", dummy, []byte(`{"cniVersion":"1.1.0"}`))
	if unknownCommand(err) {
		return d.wrap(command, fmt.Errorf("%w: no VERSION either: %w", ErrNotSupported, err))
	}
	if err != nil {
		return err
	}
	info, err := new(version.PluginDecoder).Decode(out)
	if err != nil {
		return d.wrap("VERSION", fmt.Errorf("answered %s: %w", quote(out), err))
	}
	if has := info.SupportedVersions(); !slices.Contains(has, "1.1.0") {
		return d.wrap(command, fmt.Errorf("%w: came with CNI 1.1.0, the plugin has %q", ErrNotSupported, has))
	}
	if v := confVersion(conf); v != "1.1.0" {
		return d.wrap(command, fmt.Errorf("%w: came with CNI 1.1.0, the configuration is %q", ErrNotSupported, v))
	}
	_, err = d.call(ctx, command, netconf.Env{Path: d.Env.Path}, conf)
	if unknownCommand(err) {
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// unknownCommand reports whether an error is what containernetworking/cni's skel answers to a command it does not have.
func unknownCommand(err error) bool {
	var e *types.Error
	return errors.As(err, &e) && strings.HasPrefix(e.Msg, "unknown CNI_COMMAND")
}

// confVersion is empty for what is no configuration: the plugin reports that itself.
func confVersion(conf []byte) string {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(conf, &c) != nil {
		return ""
	}
	return c.CNIVersion
}

// withAttachments sets both keys that libcni sets: the one of the spec, and the one of its release candidates.
func withAttachments(conf []byte, valid []netconf.Attachment) ([]byte, error) {
	var c map[string]json.RawMessage
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, fmt.Errorf("decode network configuration %s: %w", quote(conf), err)
	}
	if c == nil {
		return nil, errors.New("the network configuration is null")
	}
	if valid == nil {
		valid = []netconf.Attachment{} // [] and not null: nothing is valid
	}
	list, err := json.Marshal(valid)
	if err != nil {
		return nil, fmt.Errorf("encode valid attachments: %w", err)
	}
	c["cni.dev/valid-attachments"], c["cni.dev/attachments"] = list, list
	return json.Marshal(c)
}
