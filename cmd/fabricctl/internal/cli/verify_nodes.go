package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// What verify --label-nodes writes to nodes.
const (
	labelVerified   = "fabric.dev/verified"
	annotationTime  = "fabric.dev/verified-at"
	annotationCause = "fabric.dev/verified-result"
)

// placed is where a pod is, as the API server says. What the pod itself says of its node counts for nothing.
type placed struct{ node, uid string }

func (v *verification) placeOf(ctx context.Context, pod string) (placed, error) {
	var p corev1.Pod
	err := v.pods.from.kube.Get(ctx, cluster.Pods, v.namespace, pod, &p)
	if err == nil && (p.Spec.NodeName == "" || nodeRule.check("", p.Spec.NodeName) != nil) {
		err = fmt.Errorf("pod %s is on no node", pod)
	}
	return placed{p.Spec.NodeName, string(p.UID)}, err
}

// nodes asks for the nodes of the pods. They are needed for labels and for the trend, since pods of another run have
// other names or are elsewhere; else they are nice to have.
func (v *verification) nodes(ctx context.Context, ends []*measure.End) error {
	if len(v.netns) > 0 {
		return nil
	}
	for _, e := range ends {
		p, err := v.placeOf(ctx, e.Name)
		if err != nil && v.labels {
			return fmt.Errorf("verify --label-nodes: %w", err)
		}
		if err == nil {
			e.Node, e.UID = p.node, p.uid
		}
	}
	return nil
}

// sameNodes forgets the nodes of pods that were replaced during the measurement: which of the two was measured is
// unknown.
func (v *verification) sameNodes(ctx context.Context, ends []*measure.End) {
	for _, e := range ends {
		p, err := v.placeOf(ctx, e.Name)
		if err != nil || p.uid != e.UID || p.node != e.Node {
			v.moved = append(v.moved, e.Node)
			v.stderr.Printf("warning: pod %s was replaced or has gone while it was measured: node %s gets no label\n",
				e.Name, e.Node)
		}
	}
}

// label labels the nodes that were measured.
func (v *verification) label(ctx context.Context, report *perftest.Report) error {
	moved := map[string]bool{}
	for _, n := range v.moved {
		moved[n] = true
	}
	for _, n := range report.Nodes {
		if moved[n.Name] {
			continue
		}
		err := v.pods.from.kube.Annotate(ctx, cluster.Nodes, n.Name,
			map[string]string{labelVerified: strconv.FormatBool(n.Verified)},
			map[string]string{annotationTime: report.Time, annotationCause: strings.ToValidUTF8(n.Text, "")})
		if err != nil {
			return fmt.Errorf("verify --label-nodes: %w", err)
		}
	}
	return nil
}
