package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/announce"
	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Codes of our own, from 100 on as the specification reserves them for plugins.
const (
	codeNoDevice  = 100 // no such device
	codeInUse     = 101 // the device belongs to another attachment
	codePortDown  = 102 // the port is not Active
	codeRDMAMode  = 103 // the RDMA network namespace mode does not fit
	codeRefused   = 104 // refused by node policy
	codeKernel    = 105 // the kernel refused an operation
	codeConflict  = 106 // another interface on the network has the address
	codeNotReady  = 50  // STATUS: the plugin can't serve an ADD
	codeLimited   = 51  // STATUS: nor do existing containers work
	codeBadEnv    = types.ErrInvalidEnvironmentVariables
	codeTryAgain  = types.ErrTryAgainLater
	codeBadConfig = types.ErrInvalidNetworkConfig
)

// codeOf is the code of each reason why an attachment is refused.
var codeOf = map[attach.Reason]uint{
	attach.NoDevice:  codeNoDevice,
	attach.InUse:     codeInUse,
	attach.PortDown:  codePortDown,
	attach.RDMAMode:  codeRDMAMode,
	attach.Forbidden: codeRefused,
	attach.NameTaken: codeBadEnv,
	attach.BadConfig: codeBadConfig,
	attach.NotYet:    codeTryAgain,
}

// failure is an error whose code and remedy are known where it happens.
type failure struct {
	code uint
	err  error
	hint string // what to do, in one clause
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// refused is the error of an ADD that is refused.
func refused(r *attach.Refusal) error {
	return &failure{code: codeOf[r.Reason], err: errors.New(r.Message), hint: r.Hint}
}

// typed gives an error its CNI code and the form users see. doing completes "could not ...".
func typed(doing string, err error) *types.Error {
	code, hint := classify(err)
	msg := "fabric: could not " + doing + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	if hint != "" {
		msg += "; " + hint
	}
	return &types.Error{Code: code, Msg: msg}
}

// classify finds the code of an error, and what to do about it.
func classify(err error) (code uint, hint string) {
	var f *failure
	var conf *netconf.Error
	var step *apply.StepError
	var path *fs.PathError
	var answer *types.Error
	var conflict *announce.ConflictError
	switch {
	case errors.As(err, &conflict):
		return codeConflict, "find that host, or give the pod another address; exclude this one from the IPAM range"
	case errors.Is(err, apply.ErrNoCarrier):
		return codePortDown, "connect the port, or set \"allowDown\" to do without the probe"
	case errors.As(err, &f):
		return f.code, f.hint
	case errors.As(err, &conf):
		return conf.Code, ""
	case errors.As(err, &answer) && answer.Code != 0: // the IPAM plugin's code; its words are in the message
		return answer.Code, ""
	case errors.Is(err, journal.ErrBusy):
		return codeTryAgain, "try again"
	case errors.Is(err, inventory.ErrAmbiguous):
		return codeBadConfig, ""
	case errors.As(err, &step):
		return codeKernel, ""
	case errors.Is(err, context.DeadlineExceeded):
		return codeTryAgain, "try again"
	case errors.Is(err, rdma.ErrNoRDMA):
		return codeNoDevice, "load it with: modprobe ib_core"
	case errors.Is(err, policy.ErrRefused):
		return codeRefused, ""
	case errors.Is(err, ipam.ErrNotStarted):
		return codeBadConfig, ""
	case errors.Is(err, fs.ErrNotExist):
		return codeNoDevice, ""
	case errors.Is(err, fs.ErrPermission):
		return types.ErrIOFailure, "the plugin has to run as root"
	case errors.As(err, &path):
		return types.ErrIOFailure, ""
	}
	return types.ErrInternal, ""
}

// notAnew says what to do if the driver of a VF could not be bound again for another tenant.
func (a *attachment) notAnew(err error) error {
	var step *apply.StepError
	if !a.Change.Anew || !errors.As(err, &step) || step.Step.Kind() != (plan.Rebind{}).Kind() ||
		errors.Is(err, journal.ErrBusy) {
		return err
	}
	return &failure{
		code: codeKernel,
		err:  fmt.Errorf("device %s, which a pod of another namespace had: %w", a.entry.DeviceKey, err),
		hint: "see what the driver says in the kernel's log; reset the VF, or set \"rebindBetweenTenants\": false in " +
			policy.DefaultPath,
	}
}
