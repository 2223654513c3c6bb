// Package claim reads what a ResourceClaim of driver fabric.dev gives to its pod: devices of this node, and what the
// claim and its DeviceClasses say of their interfaces. It is pure. Everything in a claim but its allocation is what a
// tenant has written.
package claim

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	sigsjson "sigs.k8s.io/json"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Pod is whom a claim is for.
type Pod struct {
	Name string
	UID  string
}

// Device is a device of the node that a claim gives to its pod.
type Device struct {
	Request string // of the claim: "rails", or "rails/subrequest"
	Name    string // in the ResourceSlice
	ShareID string // of a device that several claims may have
	// Network has the settings that replace those of the fabric's configuration; nil: none.
	Network   json.RawMessage
	Interface prepared.InterfaceName // in the pod
}

// Of returns the pod that a claim is for, and the devices of the driver that it has in a pool. A claim that more than
// one pod has is an error: an interface goes into one pod.
func Of(c *resourceapi.ResourceClaim, pool string) (Pod, []Device, error) {
	pod, err := podOf(c)
	if err != nil {
		return Pod{}, nil, err
	}
	var out []Device
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if r.Driver != fabrics.Driver || r.Pool != pool {
			continue
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return Pod{}, nil, fmt.Errorf("request %s: adminAccess true: want false: a device goes into one pod",
				quote.Terminal(r.Request))
		}
		d := Device{Request: r.Request, Name: r.Device}
		if r.ShareID != nil {
			d.ShareID = string(*r.ShareID)
		}
		if d.Network, d.Interface, err = network(c.Status.Allocation.Devices.Config, r.Request); err != nil {
			return Pod{}, nil, err
		}
		out = append(out, d)
	}
	return pod, out, oneEach(out)
}

// oneEach returns an error if two devices would have one name in the pod.
func oneEach(devices []Device) error {
	has := map[prepared.InterfaceName]string{} // name -> request
	for _, d := range devices {
		if d.Interface.Numbered() {
			continue
		}
		if other, taken := has[d.Interface]; taken {
			return fmt.Errorf("%s: interface %q is for one device, and there are two of it, of the requests %s and "+
				"%s: give each request a name of its own, or let the name end with %%d", kind, d.Interface,
				quote.Terminal(other), quote.Terminal(d.Request))
		}
		has[d.Interface] = d.Request
	}
	return nil
}

func podOf(c *resourceapi.ResourceClaim) (Pod, error) {
	if c.Status.Allocation == nil {
		return Pod{}, fmt.Errorf("the claim is not allocated")
	}
	var names []string
	for i := range c.Status.ReservedFor {
		r := &c.Status.ReservedFor[i]
		names = append(names, strings.TrimSuffix(r.Resource, "s")+" "+r.Name)
	}
	one := len(names) == 1 && c.Status.ReservedFor[0].APIGroup == "" && c.Status.ReservedFor[0].Resource == "pods"
	if !one {
		who := "no pod"
		if len(names) > 0 {
			slices.Sort(names)
			who = quote.Terminal(strings.Join(names[:min(len(names), 5)], ", "))
		}
		return Pod{}, fmt.Errorf("the claim is reserved for %s: want exactly one pod, because an interface goes into "+
			"one; use a ResourceClaimTemplate, or one claim for each pod", who)
	}
	return Pod{Name: c.Status.ReservedFor[0].Name, UID: string(c.Status.ReservedFor[0].UID)}, nil
}

// network merges the parameters that concern a request: those of the class first, then the claim's own. Each setting
// replaces an earlier one. That of the interface's name is no setting of a network.
func network(
	configs []resourceapi.DeviceAllocationConfiguration, request string,
) (json.RawMessage, prepared.InterfaceName, error) {
	merged := map[string]any{}
	for _, source := range []resourceapi.AllocationConfigSource{
		resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim,
	} {
		for i := range configs {
			c := &configs[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != fabrics.Driver || !concerns(c, request) {
				continue
			}
			from := "the claim"
			if source == resourceapi.AllocationConfigSourceClass {
				from = "the DeviceClass"
			}
			if err := add(merged, c.Opaque.Parameters.Raw); err != nil {
				return nil, "", fmt.Errorf("parameters of %s for request %s: %w", from, quote.Terminal(request), err)
			}
		}
	}
	text, _ := merged[interfaceKey].(string)
	delete(merged, interfaceKey)
	if len(merged) == 0 {
		return nil, prepared.InterfaceName(text), nil
	}
	b, err := json.Marshal(merged)
	return b, prepared.InterfaceName(text), err
}

// interfaceKey is the setting that names interfaces.
const interfaceKey = "interface"

// concerns tells whether a configuration is for a request, which may be one of the alternatives of another.
func concerns(c *resourceapi.DeviceAllocationConfiguration, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(c.Requests) == 0 || slices.Contains(c.Requests, request) || slices.Contains(c.Requests, main)
}

// kind is what every opaque parameter of the driver says that it is.
const kind = "InterfaceConfig"

// add reads one InterfaceConfig strictly, and puts its settings over those that there are.
func add(merged map[string]any, raw []byte) error {
	if len(raw) > resourceapi.OpaqueParametersMaxLength {
		return fmt.Errorf("%d bytes: want at most %d", len(raw), resourceapi.OpaqueParametersMaxLength)
	}
	var c v1alpha1.InterfaceConfig
	strict, err := sigsjson.UnmarshalStrict(raw, &c)
	if err != nil {
		return fmt.Errorf("read %s: %s", kind, quote.Terminal(err.Error()))
	}
	if c.APIVersion != v1alpha1.GroupVersion.String() || c.Kind != kind {
		return fmt.Errorf("apiVersion %q, kind %q: want apiVersion %s, kind %s", short(c.APIVersion), short(c.Kind),
			v1alpha1.GroupVersion, kind)
	}
	if len(strict) > 0 {
		return fmt.Errorf("%s: %s; allowed are %s", kind, quote.Terminal(strict[0].Error()), allowed())
	}
	if err := prepared.InterfaceName(c.Interface).Check(); err != nil {
		return fmt.Errorf("%s: %s %w", kind, interfaceKey, err)
	}
	c.TypeMeta = metav1.TypeMeta{}
	settings, err := fabrics.Settings(c)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	maps.Copy(merged, settings)
	return nil
}

// allowed lists the settings of an InterfaceConfig.
func allowed() string {
	var names []string
	t := reflect.TypeFor[v1alpha1.InterfaceConfig]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// short bounds a value in a message that quotes it.
func short(s string) string { return s[:min(len(s), 60)] }

// PodClaimName is what the pod calls a claim that has been made for it of a template; empty: it is not one of those. A
// tenant may write anything there, and it becomes part of a path in the tenant's containers.
func PodClaimName(c *resourceapi.ResourceClaim) string {
	name := c.Annotations[resourceapi.PodResourceClaimAnnotation]
	if len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}

// MetadataPath is where containers read the metadata of a request.
func MetadataPath(c *prepared.Claim, request string) string {
	if c.PodClaimName != "" {
		return metadata.ResourceClaimTemplateFilePath(fabrics.Driver, c.PodClaimName, request)
	}
	return metadata.ResourceClaimFilePath(fabrics.Driver, c.Name, request)
}

// Key is namespace/name of a claim, for messages.
func Key(n types.NamespacedName) string { return quote.Terminal(n.String()) }
