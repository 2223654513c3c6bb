package agent

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// inventoryEvery is how often the inventory is read: it is hundreds of small files on a node with many VFs.
const inventoryEvery = time.Minute

// A FabricNode may have so many devices of a fabric, and pods of a device: with more the API server refuses all of it.
const (
	maxDevices = 1024
	maxPods    = 1000
)

// statusReconciler says in the status of the node's FabricNode what the node has, and what is wrong.
type statusReconciler struct {
	link    *cluster.Link // nil: not reported
	version string        // of the agent
	node    string        // name of the Node, which need not be the host's
	plugin  install.Target
	store   journal.Store
	ipamDir string // where the addresses of nodeRanges are that pods hold
	log     *slog.Logger
	now     func() time.Time

	inventory *runtime.RawExtension
	mode      string
	read      time.Time // when the inventory was last read
	since     map[string]metav1.Time
	reported  outcome
}

func (r *statusReconciler) reconcile(ctx context.Context, v *view) {
	if r.link == nil {
		return
	}
	if r.read.IsZero() || r.now().Sub(r.read) >= inventoryEvery {
		r.look(v.kept)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.link.Report(ctx, r.status(v))
	r.reported.note(r.log, r.now(), err)
}

// look reads the inventory: what fabricctl discover prints on this node, without what other fields tell.
func (r *statusReconciler) look(kept map[string]string) {
	r.read = r.now()
	n, err := node.Open(os.DirFS("/"), r.store)
	if err == nil {
		n.Name, n.Kept = r.node, kept
		var b []byte
		if b, err = n.Compact(node.MaxCompact); err == nil {
			r.inventory, r.mode = &runtime.RawExtension{Raw: b}, n.RDMAMode
		}
	}
	if err != nil {
		r.log.Error("cannot read the node's inventory", "error", err)
	}
}

func (r *statusReconciler) status(v *view) *v1alpha1.FabricNodeStatus {
	s := &v1alpha1.FabricNodeStatus{
		Agent: r.version, Plugin: v1alpha1.Plugin{Version: r.version}, RDMAMode: r.mode, Inventory: r.inventory,
		Conditions: r.conditions(v.findings), ObservedGeneration: v.generation,
	}
	var err error
	if s.Held, err = held(r.ipamDir); err != nil { // nothing is said, which is not "none"
		r.log.Error("cannot list the addresses that pods hold", "error", err)
	}
	if sum, err := r.plugin.Sum(); err == nil {
		s.Plugin.SHA256 = sum
	}
	pods := podsOf(r.store, prepared.In(r.store.Dir), r.log)
	for i := range v.fabrics {
		f := &v.fabrics[i]
		nf := v1alpha1.NodeFabric{Name: f.Name, Generation: f.Generation, Addresses: v.given[f.Name]}
		for j := range v.assigned[f.Name] {
			d := deviceOf(&v.assigned[f.Name][j], pods)
			s.Devices.Total++
			switch d.Problem {
			case "":
				s.Devices.Healthy++
			case string(health.NotConnected):
				s.Devices.NotConnected++
			}
			s.Devices.Attached += int32(len(d.Pods))
			d.Pods = d.Pods[:min(len(d.Pods), maxPods)]
			if len(nf.Devices) < maxDevices {
				nf.Devices = append(nf.Devices, d)
			}
		}
		if len(nf.Devices) > 0 {
			s.Fabrics = append(s.Fabrics, nf)
		}
	}
	return s
}

func deviceOf(d *survey.Device, pods map[string][]string) v1alpha1.FabricDevice {
	return v1alpha1.FabricDevice{
		ID: d.ID(), HCA: quote.Terminal(d.HCA.Name), LinkLayer: string(d.LinkLayer()), RateGb: int32(d.RateGb),
		Problem: problemOf(d), Pods: pods[d.Address.String()],
	}
}

// problemOf is why no pod should get a device, or can: no pod would get one without a cable, whatever else is missing.
func problemOf(d *survey.Device) string {
	if d.Problem == health.NotConnected {
		return string(d.Problem)
	}
	return cmp.Or(d.Unserved, string(d.Problem))
}

// podsOf are the pods that have a device, by its address; with attachment IPoIBChild by that of the parent. A pod for
// which a claim is prepared has its devices, before its ADD and on the host's network too: its Fabric stays as long.
func podsOf(store journal.Store, claims prepared.Store, log *slog.Logger) map[string][]string {
	entries, err := store.List()
	if err != nil {
		log.Debug("some journal entries cannot be read", "error", err)
	}
	out := map[string][]string{}
	for _, e := range entries {
		at := e.Address.String()
		if e.Child != nil {
			at = e.Child.Parent.String()
		}
		out[at] = append(out[at], e.Pod())
	}
	given, err := claims.All()
	if err != nil {
		log.Debug("some prepared claims cannot be read", "error", err)
	}
	for _, c := range given {
		for i := range c.Devices {
			at, pod := c.Devices[i].Address.String(), c.Namespace+"/"+c.Pod
			if !slices.Contains(out[at], pod) {
				out[at] = append(out[at], pod)
			}
		}
	}
	for _, pods := range out {
		slices.Sort(pods)
	}
	return out
}

// conditions are Ready, with the reason and message of the worst of the others, and those.
func (r *statusReconciler) conditions(set *condition.Set) (out []metav1.Condition) {
	ready := metav1.Condition{Type: v1alpha1.FabricNodeReady, Status: metav1.ConditionTrue, Reason: "Ready"}
	wrong, notes := set.Sum()
	if len(wrong) > 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, wrong[0].Reason, wrong[0].Message
	}
	out = append(append(out, wrong...), notes...)
	out = append([]metav1.Condition{ready}, out...)
	since := map[string]metav1.Time{}
	for i := range out {
		key := out[i].Type + string(out[i].Status)
		t, ok := r.since[key]
		if !ok {
			t = r.reportedSince(&out[i])
		}
		since[key], out[i].LastTransitionTime = t, t
	}
	r.since = since
	return out
}

// reportedSince is since when a condition has its status: what an earlier agent has reported of it, or now.
func (r *statusReconciler) reportedSince(c *metav1.Condition) metav1.Time {
	if own := r.link.Own(); own != nil {
		if was := apimeta.FindStatusCondition(own.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
			return was.LastTransitionTime
		}
	}
	return metav1.Time{Time: r.now().Truncate(time.Second)}
}

// idle says that this node has nothing any more. It makes no FabricNode: one that was deleted stays so. It returns
// whether the API server knows.
func (r *statusReconciler) idle(ctx context.Context, set *condition.Set, version string) bool {
	own := r.link.Own()
	if own == nil {
		return r.link.Synced()
	}
	s := &v1alpha1.FabricNodeStatus{
		ObservedGeneration: own.Generation, Agent: version, RDMAMode: own.Status.RDMAMode,
		Inventory: own.Status.Inventory, Conditions: r.conditions(set),
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := r.link.Report(ctx, s)
	r.reported.note(r.log, r.now(), err)
	return done
}
