package offer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Item is a device of a fabric that allocates by ResourceClaims. What is not known is empty.
type Item struct {
	Fabric   string
	Resource string // fabric.dev/NAME
	device.Location
	Rail       int
	Shares     int // of a fabric with attachment IPoIBChild: claims that may have the device; 0: it is one pod's
	LinkLayer  string
	RateGb     float64
	State      string // of its port: Active, Down, ...
	RDMADevice string // on the host, as all names
	Netdev     string
	GUID       string
	Firmware   string
	NUMA       int    // -1: unknown
	PCIeRoot   string // pci0000:3a
	Problem    string // why new pods should not get it; empty: nothing
}

// Form is what the API server keeps of a slice: a server whose feature gate is off drops the fields.
type Form struct {
	Taints   bool // DRADeviceTaints
	Capacity bool // DRAConsumableCapacity
}

// Refused is a device that can't be offered.
type Refused struct {
	ID     string
	Reason string
}

// Devices are what the node's slices say: in rail order, with unique names. A device with a problem has a
// taint, or is left out where the server keeps none. A device with shares may have several claims, or is several
// devices where the server knows no such thing.
func Devices(items []Item, form Form) (out []resourceapi.Device, refused []Refused) {
	items = slices.SortedFunc(slices.Values(items), func(a, b Item) int { return a.Compare(b.Location) })
	by := map[string]string{} // name -> id
	for i := range items {
		it := &items[i]
		name, err := DeviceName(it.ID())
		if last := ShareName(name, max(it.Shares-1, 0)); err == nil && it.Shares > 0 && len(last) > maxName {
			err = fmt.Errorf("device %q has no name in a ResourceSlice: %s is longer than %d characters", it.ID(), last,
				maxName)
		}
		if other, taken := by[name]; err == nil && taken {
			err = fmt.Errorf("device %q has the name of device %q in a ResourceSlice: %s", it.ID(), other, name)
		}
		if err != nil {
			refused = append(refused, Refused{it.ID(), err.Error()})
			continue
		}
		by[name] = it.ID()
		if it.Problem != "" && !form.Taints {
			continue
		}
		out = append(out, it.devices(name, form)...)
	}
	return out, refused
}

func (it *Item) devices(name string, form Form) []resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: it.attributes(it.ID())}
	if it.Problem != "" {
		d.Taints = []resourceapi.DeviceTaint{{
			Key: TaintUnhealthy, Value: it.Problem, Effect: resourceapi.DeviceTaintEffectNoSchedule,
		}}
	}
	switch {
	case it.Shares == 0:
		return []resourceapi.Device{d}
	case form.Capacity:
		multiple, one := true, resource.MustParse("1")
		d.AllowMultipleAllocations = &multiple
		d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{CapacityShares: {
			Value: *resource.NewQuantity(int64(it.Shares), resource.DecimalSI),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: &one, ValidValues: []resource.Quantity{one},
			},
		}}
		return []resourceapi.Device{d}
	}
	var out []resourceapi.Device
	for i := range it.Shares {
		s := d.DeepCopy()
		s.Name = ShareName(name, i)
		s.Attributes = it.attributes(ShareName(it.ID(), i))
		out = append(out, *s)
	}
	return out
}

// AttributesJSON are the attributes of a device, or of a share of one, by its id, as containers read them.
func (it *Item) AttributesJSON(id string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for name, a := range it.attributes(id) {
		b, err := json.Marshal(a)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		out[string(name)] = b
	}
	return out, nil
}

func (it *Item) attributes(id string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	out := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	number := func(name resourceapi.QualifiedName, n int64) {
		out[name] = resourceapi.DeviceAttribute{IntValue: &n}
	}
	number(AttrRail, int64(it.Rail))
	if it.RateGb >= 1 && it.RateGb < math.MaxInt32 {
		number(AttrRateGb, int64(it.RateGb))
	}
	if it.NUMA >= 0 {
		number(AttrNUMA, int64(it.NUMA))
		number(AttrNUMANode, int64(it.NUMA))
	}
	for name, text := range map[resourceapi.QualifiedName]string{
		AttrFabric: it.Fabric, AttrLinkLayer: it.LinkLayer, AttrState: it.State, AttrRDMADevice: it.RDMADevice,
		AttrNetdev: it.Netdev, AttrGUID: it.GUID, AttrFirmware: it.Firmware, AttrPCIeRoot: it.PCIeRoot,
		AttrPCIBusID: it.PCI, AttrDeviceID: id, AttrResource: it.Resource,
	} {
		if text = quote.Terminal(text); text != "" && fits(text) {
			out[name] = resourceapi.DeviceAttribute{StringValue: &text}
		}
	}
	return out
}

// fits reports whether the API server takes a text as the value of an attribute. One that it does not take is left out.
func fits(text string) bool {
	return len(text) <= resourceapi.DeviceAttributeMaxValueLength && utf8.ValidString(text)
}

// Chunks splits devices into slices of as many as the API server takes; one that is empty where there are none.
func Chunks(devices []resourceapi.Device) [][]resourceapi.Device {
	if len(devices) == 0 {
		return [][]resourceapi.Device{nil}
	}
	return slices.Collect(slices.Chunk(devices, maxDevices))
}

// maxDevices is how many devices a slice may have. Those with taints will be fewer in later versions of Kubernetes
// (64): a pool of more than these needs one slice more at most.
const maxDevices = resourceapi.ResourceSliceMaxDevices / 2

// Rails numbers the items of each fabric in rail order. An item whose fabric names its rail keeps that.
func Rails(items []Item, named map[string]int) {
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Fabric, b.Fabric), a.Compare(b.Location))
	})
	rail := 0
	for i := range items {
		if i > 0 && items[i-1].Fabric != items[i].Fabric {
			rail = 0
		}
		items[i].Rail = rail
		if n, ok := named[items[i].Fabric]; ok {
			items[i].Rail = n
		}
		rail++
	}
}
