package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// draKinds is what there is of Dynamic Resource Allocation, as people ask for it.
const draKinds = "resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io," +
	"resourceslices.resource.k8s.io,deviceclasses.resource.k8s.io"

// listedKind is the kind of the objects of lists: the API server leaves it out in those of Kubernetes itself.
var listedKind = map[cluster.Resource]string{
	cluster.Claims: "ResourceClaim", cluster.Templates: "ResourceClaimTemplate", cluster.Slices: "ResourceSlice",
	cluster.Classes: "DeviceClass", cluster.Events: "Event",
}

// into takes the objects of a list, of this kind if they say none. One that can't be read is left out and named.
func into(d *doctor.DRA, kind string) func(o *doctor.DRAObject, bad error) {
	return func(o *doctor.DRAObject, bad error) {
		o.Kind = cmp.Or(o.Kind, kind)
		if bad == nil {
			bad = d.Add(o)
		}
		if bad != nil {
			d.Missing = append(d.Missing, bad.Error()+"; left out")
		}
	}
}

// addDRA asks for the objects of some kinds.
func addDRA(ctx context.Context, kube *cluster.Cluster, d *doctor.DRA, namespace string,
	kinds ...cluster.Resource,
) error {
	for _, of := range kinds {
		in := cluster.List{Of: of, Namespace: namespace}
		if err := cluster.Each(ctx, kube, in, into(d, listedKind[of])); err != nil {
			return err
		}
	}
	return nil
}

// servesDRA reports whether the API server has the stable API of Dynamic Resource Allocation. A group that is not
// served is an error.
func servesDRA(ctx context.Context, kube *cluster.Cluster) bool {
	versions, err := kube.Versions(ctx, cluster.DRA)
	return err == nil && slices.Contains(versions, "v1")
}

// listDRA asks for all of it; who may not list the whole cluster gets the claims of a namespace.
func listDRA(ctx context.Context, kube *cluster.Cluster, d *doctor.DRA, namespace string) {
	all := &doctor.DRA{}
	err := addDRA(ctx, kube, all, "", cluster.Claims, cluster.Templates, cluster.Slices, cluster.Classes)
	if err == nil {
		*d = *all
		return
	}
	d.Partial = true
	d.Missing = append(d.Missing, err.Error())
	if err := addDRA(ctx, kube, d, namespace, cluster.Claims, cluster.Templates); err != nil {
		d.Missing = append(d.Missing, err.Error())
	}
}

// collectDRA asks for what the checks of the cluster need, if a Fabric has to do with it.
func (c *collector) collectDRA(ctx context.Context) {
	if !c.ClaimsWanted() {
		return
	}
	c.DRA = &doctor.ClusterDRA{Served: servesDRA(ctx, c.kube)}
	if !c.DRA.Served {
		return
	}
	err := addDRA(ctx, c.kube, &c.DRA.DRA, "", cluster.Slices, cluster.Classes)
	c.DRA.Partial = !c.missing(err)
	c.Missing = append(c.Missing, c.DRA.Missing...)
}
