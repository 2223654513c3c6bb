package cli

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/internal/clusternet"
)

// usesReader reads what a cluster uses with the rights of the kubeconfig.
type usesReader struct{ kube *cluster.Cluster }

// clusterUses is what a cluster has addresses for, as far as the kubeconfig may list it.
func clusterUses(ctx context.Context, kube *cluster.Cluster) *clusternet.Net {
	return clusternet.Read(ctx, usesReader{kube})
}

// Each is of clusternet.Reader. An object that can't be read has no range here.
func (r usesReader) Each(
	ctx context.Context, s *clusternet.Source, version string, each func(map[string]any),
) (known bool, err error) {
	of := cluster.Resource{Group: s.Group, Version: version, Resource: s.Resource}
	if s.Name != "" {
		var o map[string]any
		if err = r.kube.Get(ctx, of, s.Namespace, s.Name, &o); err == nil {
			each(o)
		}
	} else {
		err = cluster.Each(ctx, r.kube, cluster.List{Of: of}, func(o *map[string]any, bad error) {
			if bad == nil {
				each(*o)
			}
		})
	}
	if errors.Is(err, cluster.ErrNotServed) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
