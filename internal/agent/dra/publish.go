package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// publisher is what publish remembers.
type publisher struct {
	asked time.Time            // when the API server was asked what it keeps
	since map[string]time.Time // by resource: since when its fabric has allocation DRA here
	given bool                 // kubelet has given devices of such a fabric
}

// askEvery is how often the API server is asked again what it keeps of a slice: a feature gate may be on by then.
const askEvery = time.Hour

// writeTimeout bounds one call of the API server.
const writeTimeout = 10 * time.Second

// publish tells the library what the slices of the node are. It writes what has changed, in the background.
func (d *Driver) publish(ctx context.Context) {
	if now := d.Now(); d.published.asked.IsZero() || now.Sub(d.published.asked) >= askEvery {
		form, err := d.ask(ctx)
		if err != nil {
			d.fail("ask the API server what it keeps of a ResourceSlice: %v", err)
			return
		}
		d.published.asked = now
		d.setForm(form)
	}
	items, err := d.offered(ctx)
	if err != nil {
		d.fail("%v", err)
		return
	}
	d.mu.Lock()
	devices, refused := offer.Devices(items, d.form)
	d.refused = refused
	d.mu.Unlock()
	pool := resourceslice.Pool{}
	for _, chunk := range offer.Chunks(devices) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
	}
	// The first call waits until the API server has told of the slices that there are.
	pools := map[string]resourceslice.Pool{d.Node: pool}
	err = d.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools})
	switch {
	case err != nil && ctx.Err() == nil:
		d.fail("publish ResourceSlices: %v", err)
	case err == nil && d.well():
		d.fail("")
	}
}

func (d *Driver) setForm(f offer.Form) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f != d.form {
		d.Log.Info("the API server keeps of ResourceSlices", "deviceTaints", f.Taints, "consumableCapacity", f.Capacity)
	}
	d.form = f
}

// ask has the API server judge a slice without keeping it, and looks at which fields it drops. To publish and see would
// offer devices that are unhealthy, or shares as whole devices, until the next look.
func (d *Driver) ask(ctx context.Context) (offer.Form, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	item := offer.Item{Location: device.LocationOnPCI("0000:00:00.0"), Shares: 1, Problem: "Asked", NUMA: -1}
	devices, _ := offer.Devices([]offer.Item{item}, offer.Form{Taints: true, Capacity: true})
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: d.Node + "-ask-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: fabrics.Driver, NodeName: &d.Node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: d.Node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	got, err := d.Kube.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return offer.Form{}, err
	}
	if len(got.Spec.Devices) != 1 {
		return offer.Form{}, fmt.Errorf("it keeps %d of one device", len(got.Spec.Devices))
	}
	one := &got.Spec.Devices[0]
	capacity := one.AllowMultipleAllocations != nil && consumable(one)
	return offer.Form{Taints: len(one.Taints) > 0, Capacity: capacity}, nil
}

// consumable tells whether the server has kept how much of a capacity a claim consumes.
func consumable(d *resourceapi.Device) bool {
	c, ok := d.Capacity[offer.CapacityShares]
	return ok && c.RequestPolicy != nil && c.Value.Cmp(resource.Quantity{}) > 0
}

// HandleError implements kubeletplugin.DRAPlugin: errors of the background.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) { // a gate has been switched off since
		d.mu.Lock()
		d.form = keptOf(dropped, d.form)
		d.mu.Unlock()
		d.Log.Warn("the API server drops fields of ResourceSlices", "error", err)
		select {
		case d.poke <- struct{}{}:
		default:
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	d.failed = d.Now()
	d.mu.Unlock()
	d.fail("%s: %v", msg, err)
}

// quiet is how long nothing must have failed in the background for the driver to be well: the library tries again with
// each look at the node.
const quiet = 3 * retryEvery

func (d *Driver) well() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Now().Sub(d.failed) >= quiet
}

// keptOf is what a server keeps that has dropped fields.
func keptOf(err *resourceslice.DroppedFieldsError, f offer.Form) offer.Form {
	for _, gate := range err.DisabledFeatures() {
		switch gate {
		case "DRADeviceTaints":
			f.Taints = false
		case "DRAConsumableCapacity":
			f.Capacity = false
		default: // whatever it is: the plainest form has nothing that can be dropped
			f = offer.Form{}
		}
	}
	return f
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// Withdraw deletes the node's ResourceSlices, after Run: nothing is prepared here any more. kubelet would do it when it
// has missed the driver for a while, and until then pods would be sent to this node.
func (d *Driver) Withdraw(ctx context.Context) {
	if d == nil || d.helper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	slices := d.Kube.ResourceV1().ResourceSlices()
	list, err := slices.List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: d.Node, resourceapi.ResourceSliceSelectorDriver: fabrics.Driver,
	}.String()})
	for i := 0; err == nil && i < len(list.Items); i++ {
		if err = slices.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); isNotFound(err) {
			err = nil
		}
	}
	if err != nil {
		d.Log.Error("cannot withdraw the node's ResourceSlices: kubelet does so later", "error", err)
	}
}
