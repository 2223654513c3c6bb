package nodemode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubectl/pkg/drain"
)

// change takes one Node from where it is to the end.
func (r *Run) change(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if done, err := r.done(limit, name); done || err != nil {
		return err
	}
	err := r.steps(limit, name)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // interrupted
		return fmt.Errorf("interrupted; the same command continues: %w", ctx.Err())
	case limit.Err() != nil:
		err = fmt.Errorf("timed out after %v: %w", r.Timeout, err)
	}
	return fmt.Errorf("%w; the node stays cordoned: after the repair the same command continues", err)
}

func (r *Run) steps(ctx context.Context, name string) error {
	rec, err := r.cordon(ctx, name)
	if err != nil {
		return err
	}
	if rec.Boot == "" {
		if err := r.drain(ctx, name); err != nil {
			return err
		}
		rec, err = r.note(ctx, name, func(n *corev1.Node, rec *record) { rec.Boot = n.Status.NodeInfo.BootID })
		if err != nil {
			return err
		}
	}
	if err := r.reboot(ctx, name, rec); err != nil {
		return err
	}
	r.say(name, "check the mode")
	if err := r.look(ctx, name, rec); err != nil {
		_, e := r.note(ctx, name, func(_ *corev1.Node, rec *record) { rec.Boot = "" }) // from the beginning
		return errors.Join(err, e)
	}
	return r.uncordon(ctx, name)
}

// done asks a Node that no run has begun with, and whose mode no agent has reported, whether it is in the mode.
func (r *Run) done(ctx context.Context, name string) (done bool, err error) {
	if r.Reported[name] != "" {
		return false, nil
	}
	n, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if rec, err := recordOf(n); rec != nil || err != nil {
		return false, err
	}
	r.say(name, "ask for its mode")
	state, _, err := r.checked(ctx, name, "")
	if done = state == podSucceeded; err == nil && done {
		r.say(name, "it is in "+r.Mode+" mode already")
	}
	return done, errors.Join(err, r.removed(ctx, name))
}

// cordon marks the Node, so that no pod comes any more.
func (r *Run) cordon(ctx context.Context, name string) (*record, error) {
	return r.update(ctx, name, func(n *corev1.Node, rec *record) (*record, *bool) {
		yes := true
		switch {
		case rec == nil:
			r.say(name, "cordon")
			return &record{Mode: r.Mode, Uncordon: !n.Spec.Unschedulable}, &yes
		case rec.Mode != r.Mode:
			r.say(name, "begin again: it was to be "+rec.Mode)
			return &record{Mode: r.Mode, Uncordon: rec.Uncordon}, &yes
		}
		r.say(name, "continue what another run has begun")
		return rec, &yes
	})
}

// note changes the record.
func (r *Run) note(ctx context.Context, name string, change func(n *corev1.Node, rec *record)) (*record, error) {
	return r.update(ctx, name, func(n *corev1.Node, rec *record) (*record, *bool) {
		if rec == nil {
			return nil, nil
		}
		change(n, rec)
		return rec, nil
	})
}

// uncordon ends it.
func (r *Run) uncordon(ctx context.Context, name string) error {
	_, err := r.update(ctx, name, func(_ *corev1.Node, rec *record) (*record, *bool) {
		if rec == nil || !rec.Uncordon {
			r.say(name, "done: "+r.Mode+"; it was cordoned before, and stays so")
			return nil, nil
		}
		no := false
		r.say(name, "done: "+r.Mode)
		return nil, &no
	})
	return errors.Join(err, r.removed(ctx, name))
}

// update reads a Node, and writes the record that f makes of its own.
func (r *Run) update(ctx context.Context, name string,
	f func(n *corev1.Node, rec *record) (*record, *bool),
) (out *record, err error) {
	err = r.retry(ctx, func() (bool, error) {
		n, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		rec, err := recordOf(n)
		if err != nil {
			return false, err
		}
		var cordon *bool
		out, cordon = f(n, rec)
		patch, err := out.patch(n, cordon)
		if err == nil {
			_, err = r.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err == nil, err
	})
	return out, err
}

// retry asks until it is done. An API server that is away, or a Node that another client has written, is asked again.
func (r *Run) retry(ctx context.Context, f func() (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, r.pause, true, func(context.Context) (bool, error) {
		done, err := f()
		last = err
		if err == nil {
			return done, nil
		}
		var status apierrors.APIStatus
		if errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsServerTimeout(err) &&
			!apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) &&
			!apierrors.IsInternalError(err) && !apierrors.IsTimeout(err) {
			return false, err
		}
		var stop permanent
		if errors.As(err, &stop) {
			return false, err
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

// permanent is an error that does not pass.
type permanent struct{ error }

// Unwrap is for errors.Is.
func (p permanent) Unwrap() error { return p.error }

// Pods are those that have to leave a Node.
func (r *Run) Pods(ctx context.Context, name string) (*drain.PodDeleteList, []error) {
	return r.helper(ctx, io.Discard, io.Discard).GetPodsForDeletion(name)
}

func (r *Run) helper(ctx context.Context, out, errOut io.Writer) *drain.Helper {
	grace := -1
	if r.GracePeriod >= 0 {
		grace = int(r.GracePeriod.Seconds())
	}
	return &drain.Helper{
		Ctx: ctx, Client: r.kube, Force: r.Force, GracePeriodSeconds: grace, IgnoreAllDaemonSets: true,
		Timeout: r.Timeout, DeleteEmptyDirData: r.DeleteEmptyDir, Out: out, ErrOut: errOut,
		PodSelector: "!" + podLabel, // its own
	}
}

// drain evicts the pods, as kubectl drain does.
func (r *Run) drain(ctx context.Context, name string) error {
	r.say(name, "drain")
	say := &lines{say: func(line string) { r.say(name, line) }}
	h := r.helper(ctx, say, say)
	list, errs := h.GetPodsForDeletion(name)
	if len(errs) > 0 {
		return fmt.Errorf("drain: %w", errors.Join(errs...))
	}
	if err := h.DeleteOrEvictPods(list.Pods()); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// lines hands over whole lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	say func(line string)
}

// Write takes text.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for {
		b := l.buf.Bytes()
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return len(p), nil
		}
		if line := strings.TrimSpace(string(b[:i])); line != "" {
			l.say(line)
		}
		l.buf.Next(i + 1)
	}
}

// reboot has the mode written on the Node and the Node rebooted, unless that has been done, and waits until it is back.
func (r *Run) reboot(ctx context.Context, name string, rec *record) error {
	begun := false
	return r.retry(ctx, func() (bool, error) {
		n, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if n.Status.NodeInfo.BootID != rec.Boot {
			r.say(name, "rebooted; wait until it is Ready")
			return ready(n), nil
		}
		if !begun {
			r.say(name, "write the mode, rebuild the initramfs, reboot")
			begun = true
		}
		state, text, err := r.pod(ctx, name, podSet, rec.Boot)
		switch {
		case err != nil:
			return false, err
		case state == podFailed:
			return false, permanent{errors.New(text)}
		case state == podSucceeded: // it is in the mode
			r.say(name, text)
			return true, nil
		case text != "":
			r.say(name, text)
		}
		return false, nil
	})
}

// look asks the Node for its mode.
func (r *Run) look(ctx context.Context, name string, rec *record) error {
	state, text, err := r.checked(ctx, name, rec.Boot)
	if err == nil && state == podFailed {
		err = errors.New(text)
	}
	return err
}

// checked waits until the pod that checks the mode of a Node has ended.
func (r *Run) checked(ctx context.Context, name, boot string) (state int, text string, err error) {
	err = r.retry(ctx, func() (bool, error) {
		if state, text, err = r.pod(ctx, name, podCheck, boot); state == podRunning && text != "" {
			r.say(name, text)
		}
		return state != podRunning, err
	})
	return state, text, err
}
