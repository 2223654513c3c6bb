package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

// draDriver is the name of the driver of our agents, and of the DeviceClass of all its devices. The DeviceClass of a
// Fabric is NAME.fabric.dev, its extended resource fabric.dev/NAME.
const draDriver = fabrics.Driver

// DRA is what a cluster has of Dynamic Resource Allocation (resource.k8s.io/v1), and the Events of a pod.
type DRA struct {
	Missing []string // what could not be asked or read, with the reason
	// Partial: only claims and templates of the pod's namespace are known, neither classes nor slices.
	Partial bool
	// FabricNodes say what is wrong with devices; they may be missing.
	FabricNodes []FabricNode

	claims    []claim
	templates map[network][]request
	classes   map[string]bool
	slices    []resourcev1.ResourceSliceSpec
	events    []DRAObject
}

// DRAObject is an object of any kind that DRA takes: ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass,
// Event.
type DRAObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`

	// Of an Event.
	Type     string `json:"type"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Involved struct {
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
	} `json:"involvedObject"`
}

// claim is a ResourceClaim.
type claim struct {
	network                                               // namespace and name
	requests   []request                                  // what it asks for
	allocated  bool                                       // the scheduler has given it devices:
	results    []resourcev1.DeviceRequestAllocationResult // these
	reservedBy []string                                   // pods
}

// request is one request of a claim. One that is a list of alternatives has no class.
type request struct {
	Name  string
	Class string
	Count int
	All   bool // as many as there are
	// Tolerations are the taints of devices that it takes nevertheless.
	Tolerations []resourcev1.DeviceToleration
	Selectors   []string // CEL
}

// requestsOf are those of the spec of a claim, as resource.k8s.io/v1 has it.
func requestsOf(s *resourcev1.ResourceClaimSpec) (out []request) {
	for _, r := range s.Devices.Requests {
		q := request{Name: r.Name, Count: 1}
		if e := r.Exactly; e != nil {
			q.Class, q.Count = e.DeviceClassName, int(max(e.Count, 1))
			q.All, q.Tolerations = e.AllocationMode == resourcev1.DeviceAllocationModeAll, e.Tolerations
			for _, s := range e.Selectors {
				if s.CEL != nil {
					q.Selectors = append(q.Selectors, s.CEL.Expression)
				}
			}
		}
		out = append(out, q)
	}
	return out
}

// Add takes an object. One of another kind is an error, and so is one that can't be read.
func (d *DRA) Add(o *DRAObject) (err error) {
	name := network{o.Metadata.Namespace, o.Metadata.Name}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s: %w", o.Kind, name, err)
		}
	}()
	if d.templates == nil {
		d.templates, d.classes = map[network][]request{}, map[string]bool{}
	}
	switch o.Kind {
	case "ResourceClaim":
		return d.addClaim(name, o)
	case "ResourceClaimTemplate":
		var t resourcev1.ResourceClaimTemplateSpec
		err := unmarshal(o.Spec, &t)
		d.templates[name] = requestsOf(&t.Spec)
		return err
	case "ResourceSlice":
		var s resourcev1.ResourceSliceSpec
		if err := unmarshal(o.Spec, &s); err != nil {
			return err
		}
		d.slices = append(d.slices, s)
	case "DeviceClass":
		d.classes[o.Metadata.Name] = true
	case "Event":
		d.events = append(d.events, *o)
	default:
		return fmt.Errorf("want one of ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass, Event")
	}
	return nil
}

func (d *DRA) addClaim(name network, o *DRAObject) error {
	var spec resourcev1.ResourceClaimSpec
	var status resourcev1.ResourceClaimStatus
	if err := unmarshal(o.Spec, &spec); err != nil {
		return err
	}
	if err := unmarshal(o.Status, &status); err != nil {
		return err
	}
	c := claim{network: name, requests: requestsOf(&spec)}
	if status.Allocation != nil {
		c.allocated, c.results = true, status.Allocation.Devices.Results
	}
	for _, r := range status.ReservedFor {
		if r.Resource == "pods" {
			c.reservedBy = append(c.reservedBy, r.Name)
		}
	}
	d.claims = append(d.claims, c)
	return nil
}

// unmarshal is json.Unmarshal, for a part that may be missing.
func unmarshal(b json.RawMessage, into any) error {
	if len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, into)
}

// claim returns a claim, or nil.
func (d *DRA) claim(name network) *claim {
	i := slices.IndexFunc(d.claims, func(c claim) bool { return c.network == name })
	if i < 0 {
		return nil
	}
	return &d.claims[i]
}

// holder says whose a claim is.
func (c *claim) holder() string {
	if len(c.reservedBy) == 0 {
		return "claim " + c.String()
	}
	return "claim " + c.String() + " of pod " + few(c.reservedBy)
}

// fabricOf is the Fabric of a DeviceClass; empty: it is of something else, or of all Fabrics.
func fabricOf(class string) string {
	name, ok := strings.CutSuffix(class, "."+draDriver)
	if !ok {
		return ""
	}
	return name
}

// offer is a device that a node offers, and who has it.
type offer struct {
	node, pool, name string
	device           *resourcev1.Device
	fabric           string
	holders          []string
}

// unusable are the effects of a taint by which no new pod gets a device.
var unusable = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute,
}

// offers are the devices of our driver: those of the newest generation of each pool.
func (d *DRA) offers() (out []offer) {
	held := map[[2]string][]string{}
	for i := range d.claims {
		for _, r := range d.claims[i].results {
			if r.Driver == draDriver {
				k := [2]string{r.Pool, r.Device}
				held[k] = append(held[k], d.claims[i].holder())
			}
		}
	}
	newest := d.generations()
	for _, s := range d.slices {
		if s.Driver != draDriver || s.Pool.Generation != newest[s.Pool.Name] {
			continue
		}
		for i := range s.Devices {
			v := &s.Devices[i]
			out = append(out, offer{
				node: ptr.Deref(s.NodeName, ""), pool: s.Pool.Name, name: v.Name, device: v,
				fabric:  ptr.Deref(v.Attributes["fabric"].StringValue, ""),
				holders: held[[2]string{s.Pool.Name, v.Name}],
			})
		}
	}
	return out
}

// generations are the newest generation of each pool of our driver.
func (d *DRA) generations() map[string]int64 {
	out := map[string]int64{}
	for _, s := range d.slices {
		if s.Driver == draDriver {
			out[s.Pool.Name] = max(out[s.Pool.Name], s.Pool.Generation)
		}
	}
	return out
}

// incomplete are the pools of our driver that miss slices of their newest generation. The scheduler gives nothing of
// those.
func (d *DRA) incomplete() (out []string) {
	newest := d.generations()
	have, want := map[string]int64{}, map[string]int64{}
	for _, s := range d.slices {
		if s.Driver == draDriver && s.Pool.Generation == newest[s.Pool.Name] {
			have[s.Pool.Name]++
			want[s.Pool.Name] = s.Pool.ResourceSliceCount
		}
	}
	for pool, n := range want {
		if have[pool] < n {
			out = append(out, fmt.Sprintf("%s: %d of %d slices of generation %d", pool, have[pool], n, newest[pool]))
		}
	}
	slices.Sort(out)
	return out
}
