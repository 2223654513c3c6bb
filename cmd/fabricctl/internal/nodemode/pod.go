package nodemode

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// What the pods on the Nodes do, in their label.
const (
	podLabel = Annotation
	podSet   = "set"   // writes the mode and reboots
	podCheck = "check" // looks whether the mode is there to stay
)

// bootNote is for which boot a pod was made.
const bootNote = Annotation + "-boot"

// States of such a pod.
const (
	podRunning = iota
	podSucceeded
	podFailed
)

// maxReport bounds what is printed of what a pod has said.
const maxReport = 1024

// pod creates a pod on the Node unless it is there, and returns how it is and what it has said.
func (r *Run) pod(ctx context.Context, node, what, boot string) (state int, text string, err error) {
	pods := r.kube.CoreV1().Pods(r.Namespace)
	p, err := pods.Get(ctx, podName(node, what), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err = pods.Create(ctx, r.podOf(node, what, boot), metav1.CreateOptions{}); err != nil {
			err = fmt.Errorf("create a pod on the node: %w", err)
		}
		return podRunning, "", err
	case err != nil:
		return podRunning, "", err
	case p.Annotations[bootNote] != boot+" "+r.Mode: // of another run
		err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
		})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return podRunning, "", err
	}
	return judge(p)
}

// judge tells how a pod is. A container that was killed, as by the reboot, has not failed.
func judge(p *corev1.Pod) (state int, text string, err error) {
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i].State
		switch {
		case s.Waiting != nil && strings.HasPrefix(s.Waiting.Reason, "ErrImage"),
			s.Waiting != nil && s.Waiting.Reason == "ImagePullBackOff",
			s.Waiting != nil && s.Waiting.Reason == "InvalidImageName":
			return podRunning, fmt.Sprintf("pod %s waits: %s: %s", p.Name, s.Waiting.Reason,
				quote.Clip(s.Waiting.Message, maxReport)), nil
		case s.Terminated == nil:
			continue
		}
		text = quote.Clip(strings.TrimSpace(s.Terminated.Message), maxReport)
		switch {
		case s.Terminated.ExitCode == 0:
			return podSucceeded, text, nil
		case s.Terminated.ExitCode < 128:
			return podFailed, text, nil
		}
	}
	return podRunning, "", nil
}

// removed deletes the pods of a Node that is done.
func (r *Run) removed(ctx context.Context, node string) error {
	for _, what := range []string{podSet, podCheck} {
		err := r.kube.CoreV1().Pods(r.Namespace).Delete(ctx, podName(node, what),
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// podName is made of a checksum: the name of a Node may be too long.
func podName(node, what string) string {
	return fmt.Sprintf("fabric-node-mode-%s-%.5x", what, sha256.Sum256([]byte(node)))
}

// podOf is a pod with all rights on the node: it writes to /etc, starts what rebuilds the initramfs, and reboots. It is
// there for that time only; the agent, which is always there, has none of these rights.
func (r *Run) podOf(node, what, boot string) *corev1.Pod {
	args := []string{"node-mode", r.Mode, "--local", "--enter-node"}
	if what == podSet {
		args = append(args, "--reboot="+boot)
	} else {
		args = append(args, "--dry-run")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(node, what), Namespace: r.Namespace,
			Labels:      map[string]string{podLabel: what, "app.kubernetes.io/name": "fabric-node-mode"},
			Annotations: map[string]string{bootNote: boot + " " + r.Mode},
		},
		Spec: corev1.PodSpec{
			NodeName:    node, // also if it is cordoned
			HostPID:     true,
			HostNetwork: true, // the mode is read through netlink
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			// It has to live through a shutdown that waits for pods.
			TerminationGracePeriodSeconds: ptr.To[int64](int64((10 * time.Second).Seconds())),
			PriorityClassName:             "system-node-critical",
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			ImagePullSecrets:              r.PullSecrets,
			Containers: []corev1.Container{{
				Name: "node-mode", Image: r.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command:                  append([]string{"/usr/bin/fabricctl"}, args...),
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext: &corev1.SecurityContext{
					Privileged: ptr.To(true), RunAsUser: ptr.To[int64](0),
				},
			}},
		},
	}
}
