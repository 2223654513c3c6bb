package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/podresources"
	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// claimReconciler tells the DRA driver of the devices of Fabrics with allocation DRA.
type claimReconciler struct {
	driver   *dra.Driver // nil: there is no kubelet, or no API server
	networks *networkReconciler
	known    func() bool // whether the API server has said which Fabrics there are
}

func (r *claimReconciler) reconcile(v *view) {
	if r.driver == nil {
		r.unserved(v)
		return
	}
	out := dra.View{
		Known: r.known(), Fabrics: map[string]bool{}, Elsewhere: map[device.Location]bool{}, Rails: map[string]int{},
	}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		devices := v.assigned[f.Name]
		if f.Allocation != v1alpha1.DRA {
			for j := range devices {
				out.Elsewhere[devices[j].Location] = true
			}
			continue
		}
		out.Fabrics[f.Name] = true
		if f.Match.Rail != nil {
			out.Rails[f.Name] = *f.Match.Rail
		}
		conf, err := r.networks.configOf(f, devices)
		for j := range devices {
			out.Devices = append(out.Devices, r.device(f, &devices[j], conf, err))
		}
	}
	r.driver.Update(out)
	problem, refused := r.driver.Problems()
	if problem != "" && len(out.Fabrics) > 0 {
		v.findings.Add(condition.NoAllocation, condition.Node, "%s", problem)
	}
	for _, n := range refused {
		v.findings.Add(condition.NotOffered, condition.Device(n.ID), "%s", n.Reason)
	}
}

// unserved says of Fabrics with allocation DRA that no pod of this node gets their devices.
func (r *claimReconciler) unserved(v *view) {
	for i := range v.fabrics {
		if f := &v.fabrics[i]; f.Allocation == v1alpha1.DRA && len(v.assigned[f.Name]) > 0 {
			v.findings.Add(condition.NoAllocation, condition.Node, "fabric %s has allocation DRA, and this "+
				"agent was started with --no-cluster or without --kubelet-plugins-dir: no pod gets its devices", f.Name)
		}
	}
}

func (r *claimReconciler) device(f *fabrics.Fabric, d *survey.Device, conf []byte, err error) dra.Device {
	it := offer.Item{
		Fabric: f.Name, Resource: f.Resource(), Location: d.Location, LinkLayer: string(d.LinkLayer()),
		RateGb: d.RateGb, RDMADevice: d.HCA.Name, Netdev: d.Netdev, Firmware: d.Firmware, NUMA: d.NUMA,
		PCIeRoot: d.Place().PCIeRoot(), Problem: cmp.Or(d.Unserved, string(network.Problem(f, d))),
	}
	if f.Attachment == v1alpha1.IPoIBChild {
		it.Shares = f.Shares
	}
	if len(d.HCA.Ports) > 0 {
		it.State = d.HCA.Ports[0].State.String()
	}
	if !d.HCA.NodeGUID.IsUnset() {
		it.GUID = d.HCA.NodeGUID.String()
	}
	return dra.Device{
		Item: it, Files: d.Files, Extra: f.Files, Moving: d.Moving(), InPod: d.Holder != nil,
		Conf: conf, ConfErr: err, Health: string(d.Problem),
	}
}

// newDriver returns the DRA driver of the node; nil where there is no kubelet or no API server to serve.
func (o *Options) newDriver(
	c *cluster.Client, node survey.Node, m *metrics.Metrics, log *slog.Logger,
) (*dra.Driver, error) {
	if c == nil || o.PluginsDir == "" {
		return nil, nil
	}
	kube, err := c.Kubernetes()
	if err != nil {
		return nil, err
	}
	specs, err := cdi.In(o.CDIDir, o.target().Path(), o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("prepare claims: %w", err)
	}
	files := func(_ context.Context, _ device.Address, _ bool, was []string) ([]string, error) { return was, nil }
	if o.counters != nil { // the devices are the kernel's
		files = func(ctx context.Context, a device.Address, alone bool, was []string) ([]string, error) {
			return node.FilesNow(ctx, a, alone, was)
		}
	}
	home := repair.Loop{
		Store: o.store(), Plugin: o.target().Path(), HostProc: o.HostProc, CallTimeout: delTimeout, Log: log,
	}
	observe := func(took time.Duration, r dra.Reason) { m.Prepared(took, string(r)) }
	return dra.New(dra.Config{
		Node: o.Node, PluginsDir: o.PluginsDir, Store: o.store(), Prepared: prepared.In(o.StateDir), CDI: specs,
		Kube: kube, Preflight: dra.Preflight(o.StateDir, o.Policy, o.HostProc), Files: files,
		Detach: home.Return, Interface: survey.InterfaceOf, Observe: observe, Log: log, Given: o.given(),
	}), nil
}

// given asks kubelet which units pods have.
func (o *Options) given() func(context.Context) ([]dra.Unit, error) {
	if o.PodSocket == "" {
		return nil
	}
	kubelet := podresources.Kubelet{Socket: o.PodSocket, HostProc: o.HostProc}
	return func(ctx context.Context) (out []dra.Unit, err error) {
		list, err := kubelet.List(ctx)
		for _, c := range list {
			for _, u := range c.Devices {
				out = append(out, dra.Unit{Resource: u.Resource, ID: u.ID})
			}
		}
		return out, err
	}
}
