package cli

import (
	"context"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// What there is of Dynamic Resource Allocation: one request for all kinds, as people do it for a file.
const (
	draClaims = "resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io"
	draKinds  = draClaims + ",resourceslices.resource.k8s.io,deviceclasses.resource.k8s.io"
)

// into takes the objects of a list. One that can't be read is left out and named.
func into(d *doctor.DRA) func(o *doctor.DRAObject, bad error) {
	return func(o *doctor.DRAObject, bad error) {
		if bad == nil {
			bad = d.Add(o)
		}
		if bad != nil {
			d.Missing = append(d.Missing, bad.Error()+"; left out")
		}
	}
}

// listDRA asks for all of it; who may not list the whole cluster gets the claims of a namespace.
func listDRA(ctx context.Context, d *doctor.DRA, namespace string) {
	all := &doctor.DRA{}
	err := kubectlEach(ctx, into(all), "get", draKinds, "-A", "-o", "json")
	if err == nil {
		*d = *all
		return
	}
	d.Partial = true
	d.Missing = append(d.Missing, err.Error())
	if err := kubectlEach(ctx, into(d), "-n", namespace, "get", draClaims, "-o", "json"); err != nil {
		d.Missing = append(d.Missing, err.Error())
	}
}

// collectDRA asks for what the checks of the cluster need, if a Fabric has to do with it.
func (c *collector) collectDRA(ctx context.Context) {
	if !c.ClaimsWanted() {
		return
	}
	var served struct{ Versions []struct{ Version string } }
	err := kubectlGet(ctx, &served, "get", "--raw", "/apis/resource.k8s.io")
	c.DRA = &doctor.ClusterDRA{}
	for _, v := range served.Versions {
		c.DRA.Served = c.DRA.Served || v.Version == "v1"
	}
	if err != nil || !c.DRA.Served {
		return // a group that is not served is an error
	}
	err = kubectlEach(ctx, into(&c.DRA.DRA), "get",
		"resourceslices.resource.k8s.io,deviceclasses.resource.k8s.io", "-A", "-o", "json")
	c.DRA.Partial = !c.missing(err)
	c.Missing = append(c.Missing, c.DRA.Missing...)
}
