package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// ModeLabel is the label of a Node with its RDMA mode. devicesLabel and rateLabel are the ends of those of a Fabric:
// how many devices of it the node has, and their rate in Gb/s.
const (
	ModeLabel    = "fabric.dev/rdma-mode"
	labelPrefix  = "fabric.dev/"
	devicesLabel = ".devices"
	rateLabel    = ".rate"
)

// ourLabel is what a label of the controller is called.
var ourLabel = regexp.MustCompile(`^fabric\.dev/(rdma-mode|[a-z0-9-]{1,50}\.(devices|rate))$`)

// labelsAtOnce is how many Nodes a round labels at most: what follows from that is the next one.
const labelsAtOnce = 100

// ourLabels are those of a Node that the controller decides.
func ourLabels(all map[string]string) map[string]string {
	var out map[string]string
	for k, v := range all {
		if ourLabel.MatchString(k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// labelsOf are the labels that a node should have, by what its agent says; known is whether that has said anything.
// They follow what the node has, and not how it is: a port that is down has no rate, and then the label stays as it is;
// likewise the mode of a node with devices whose agent could not read it.
func labelsOf(n *v1alpha1.FabricNode, there map[string]bool, is map[string]string) (out map[string]string, known bool) {
	out = map[string]string{}
	if mode := n.Status.RDMAMode; mode == "exclusive" || mode == "shared" {
		out[ModeLabel] = mode
	}
	for i := range n.Status.Fabrics {
		f := &n.Status.Fabrics[i]
		if !there[f.Name] || len(f.Devices) == 0 {
			continue
		}
		out[labelPrefix+f.Name+devicesLabel] = strconv.Itoa(len(f.Devices))
		key := labelPrefix + f.Name + rateLabel
		if rate := lowestRate(f.Devices, is[key]); rate != "" {
			out[key] = rate
		}
	}
	if was := is[ModeLabel]; n.Status.RDMAMode == "" && was != "" && len(out) > 0 { // it could not be read
		out[ModeLabel] = was
	}
	return out, n.Status.Agent != "" || len(n.Status.Fabrics) > 0
}

// lowestRate is the rate that each of some devices has, in Gb/s; was, while one of them says none.
func lowestRate(devices []v1alpha1.FabricDevice, was string) string {
	lowest := int32(0)
	for i := range devices {
		switch r := devices[i].RateGb; {
		case r <= 0 && was != "":
			return was
		case r > 0 && (lowest == 0 || r < lowest):
			lowest = r
		}
	}
	if lowest == 0 {
		return ""
	}
	return strconv.Itoa(int(lowest))
}

// label sets the labels of the Nodes whose agents say something else than they have. A Node without a word of its agent
// stays as it is.
func (c *Controller) label(ctx context.Context, w *world) error {
	if !c.Labels {
		return nil
	}
	there := map[string]bool{}
	for i := range w.fabrics {
		there[w.fabrics[i].Name] = true
	}
	var errs []error
	changed := 0
	for i := range w.nodes {
		n := &w.nodes[i]
		if !w.present[n.Name] {
			continue
		}
		is := ourLabels(w.labels[n.Name])
		should, known := labelsOf(n, there, is)
		if !known || maps.Equal(is, should) {
			continue
		}
		if changed++; changed > labelsAtOnce {
			break
		}
		err := relabel(ctx, c.Client, n.Name, w.uids[n.Name], is, should)
		switch {
		case err == nil:
			c.Log.Info("labels of Node", "node", n.Name, "labels", should)
		case apierrors.IsForbidden(err): // it is so for all others
			return errors.Join(append(errs, err)...)
		default:
			errs = append(errs, unlessRaced(err))
		}
	}
	return errors.Join(errs...)
}

// relabel changes the controller's labels of a Node, and nothing else of it.
func relabel(ctx context.Context, c client.Client, name string, uid types.UID, is, should map[string]string) error {
	labels := map[string]any{}
	for k := range is {
		labels[k] = nil
	}
	for k, v := range should {
		labels[k] = v
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": labels}})
	if err != nil {
		return err
	}
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err = c.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fabrics.Manager))
	if err != nil {
		return fmt.Errorf("write the labels of Node %s: %w", name, err)
	}
	return nil
}

// unlabel removes the controller's labels from all Nodes that have any.
func (r *releaser) unlabel(ctx context.Context) error {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	var errs []error
	err := eachPage(ctx, r.client, page, pageSize, func() {
		for i := range page.Items {
			n := &page.Items[i]
			is := ourLabels(n.Labels)
			if len(is) == 0 {
				continue
			}
			if err := relabel(ctx, r.client, n.Name, n.UID, is, nil); err == nil {
				r.log.Info("removed labels", "node", n.Name, "labels", slices.Sorted(maps.Keys(is)))
			} else {
				errs = append(errs, unlessRaced(err))
			}
		}
	})
	switch {
	case apierrors.IsForbidden(err): // it may, if the controller may label them
		r.log.Info("labels of Nodes are left as they are: release may not list Nodes")
	case err != nil:
		errs = append(errs, fmt.Errorf("list Nodes: %w", err))
	}
	return errors.Join(errs...)
}
