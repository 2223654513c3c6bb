package dra

import (
	"context"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	acmetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	acresource "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// fieldManager owns our entries in the status of a claim.
const fieldManager = "fabric-agent"

// Conditions of a device in the status of a claim.
const (
	ready    = "Ready"
	attached = "Attached"
)

// claimStatus is what a claim's status is to say of our devices.
type claimStatus struct {
	uid, namespace, name string
	devices              []deviceStatus
}

// deviceStatus is what became of a device of a claim.
type deviceStatus struct {
	pool, device, shareID string
	entry                 *journal.Entry // of its attachment; nil: it is in no pod
}

// key changes with everything that the status says.
func (s *claimStatus) key() string {
	var k []byte
	for _, n := range s.devices {
		nonce := ""
		if n.entry != nil {
			nonce = n.entry.Nonce + n.entry.ContainerID + n.entry.IfName
		}
		k = append(k, n.device+" "+n.shareID+" "+nonce+"\n"...)
	}
	return string(k)
}

// attached tells whether any device is in the pod.
func (s *claimStatus) attached() bool {
	return slices.ContainsFunc(s.devices, func(n deviceStatus) bool { return n.entry != nil })
}

// statuses are what claims' status is to say.
func statuses(pool string, claims []*prepared.Claim, entries []*journal.Entry) map[string]*claimStatus {
	out := map[string]*claimStatus{}
	for _, c := range claims {
		s := &claimStatus{uid: c.UID, namespace: c.Namespace, name: c.Name}
		for i := range c.Devices {
			n := &c.Devices[i]
			s.devices = append(s.devices, deviceStatus{
				pool: pool, device: n.Name, shareID: n.ShareID, entry: entryOf(c, n, entries),
			})
		}
		out[c.UID] = s
	}
	return out
}

// reports writes the status of claims. It never holds up anything else: while the API server is away, it tries again.
type reports struct {
	d    *Driver
	poke chan struct{}

	mu   sync.Mutex
	want map[string]*claimStatus

	sent   map[string]string    // claim -> key of what was last written
	next   map[string]time.Time // claim -> when to try again
	failed map[string]int
}

func newReports(d *Driver) *reports {
	return &reports{
		d: d, poke: make(chan struct{}, 1), sent: map[string]string{}, next: map[string]time.Time{},
		failed: map[string]int{},
	}
}

// set replaces what is to be written.
func (r *reports) set(want map[string]*claimStatus) {
	r.mu.Lock()
	r.want = want
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *reports) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
		}
		r.mu.Lock()
		want := r.want
		r.mu.Unlock()
		r.once(ctx, want)
	}
}

// Retries of a status that could not be written.
const (
	retryFirst = time.Second
	retrySlow  = 2 * time.Minute
)

func (r *reports) once(ctx context.Context, want map[string]*claimStatus) {
	for uid := range r.sent {
		if want[uid] == nil {
			delete(r.sent, uid)
		}
	}
	for uid := range r.next {
		if want[uid] == nil {
			delete(r.next, uid)
			delete(r.failed, uid)
		}
	}
	for uid, s := range want {
		key := s.key()
		was, known := r.sent[uid]
		if was == key && known || !known && !s.attached() || r.d.Now().Before(r.next[uid]) {
			continue
		}
		err := r.d.report(ctx, s)
		if err != nil {
			r.next[uid] = r.d.Now().Add(min(retryFirst<<min(r.failed[uid], 10), retrySlow))
			r.failed[uid]++
			r.d.Log.Warn("cannot write the status of a claim", "claim", quote.Terminal(s.namespace+"/"+s.name),
				"error", err)
			continue
		}
		r.sent[uid] = key
		delete(r.next, uid)
		delete(r.failed, uid)
	}
}

// report writes what became of a claim's devices into its status. A claim that is gone needs none.
func (d *Driver) report(ctx context.Context, s *claimStatus) error {
	if err := failpoint.Hit("dra/network-data"); err != nil {
		return err
	}
	status := acresource.ResourceClaimStatus()
	for i := range s.devices {
		status.WithDevices(d.deviceStatus(&s.devices[i]))
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c := acresource.ResourceClaim(s.name, s.namespace).WithUID(types.UID(s.uid)).WithStatus(status)
	_, err := d.Kube.ResourceV1().ResourceClaims(s.namespace).ApplyStatus(ctx, c,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another claim has its name
		return nil
	}
	return err
}

func (d *Driver) deviceStatus(n *deviceStatus) *acresource.AllocatedDeviceStatusApplyConfiguration {
	out := acresource.AllocatedDeviceStatus().WithDriver(fabrics.Driver).WithPool(n.pool).WithDevice(n.device)
	if n.shareID != "" {
		out.WithShareID(n.shareID)
	}
	if n.entry == nil {
		at := metav1.Time{Time: d.Now().Truncate(time.Second)}
		return out.WithConditions(
			condition(ready, metav1.ConditionFalse, "NotAttached", "the device is not in the pod", at),
			condition(attached, metav1.ConditionFalse, "NotAttached", "the device is not in the pod", at))
	}
	at := metav1.Time{Time: n.entry.Created.Truncate(time.Second)}
	out.WithConditions(condition(ready, metav1.ConditionTrue, "Attached", "", at),
		condition(attached, metav1.ConditionTrue, "Attached", "", at))
	i, err := d.Interface(n.entry)
	if err != nil {
		d.Log.Debug("cannot read the interface of a pod", "attachment", n.entry.String(), "error", err)
		i = &survey.Interface{HWAddr: n.entry.MAC, Addresses: n.entry.Addresses}
	}
	return out.WithNetworkData(networkData(n.entry.IfName, i))
}

func condition(kind string, status metav1.ConditionStatus, reason, message string, at metav1.Time,
) *acmetav1.ConditionApplyConfiguration {
	return acmetav1.Condition().WithType(kind).WithStatus(status).WithReason(reason).WithMessage(message).
		WithLastTransitionTime(at)
}

func networkData(ifName string, i *survey.Interface) *acresource.NetworkDeviceDataApplyConfiguration {
	of := prepared.NetworkDataOf(quote.Terminal(ifName), i.HWAddr, i.Addresses)
	out := acresource.NetworkDeviceData().WithIPs(of.IPs...)
	if of.InterfaceName != "" && len(of.InterfaceName) <= resourceapi.NetworkDeviceDataInterfaceNameMaxLength {
		out.WithInterfaceName(of.InterfaceName)
	}
	if of.HardwareAddress != "" {
		out.WithHardwareAddress(of.HardwareAddress)
	}
	return out
}
