package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/claim"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// Reason says why a claim could not be prepared, for metrics; empty: it could.
type Reason string

// The reasons.
const (
	BadClaim Reason = "claim"   // its parameters are wrong, or it is for several pods
	NoDevice Reason = "device"  // the node has no such device now
	InUse    Reason = "in-use"  // another pod has it
	Refused  Reason = "refused" // an ADD would be refused
	Failed   Reason = "failed"  // something could not be read or written
)

// failure is an error with its reason.
type failure struct {
	error
	reason Reason
}

func (f *failure) Unwrap() error { return f.error }

func because(r Reason, format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), r}
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	var mu sync.Mutex
	out := map[types.UID]kubeletplugin.PrepareResult{}
	var wg sync.WaitGroup
	for _, c := range claims {
		wg.Go(func() {
			begun := d.Now()
			devices, err := d.prepare(ctx, c)
			took, reason := d.Now().Sub(begun), Reason("")
			if err != nil {
				reason = Failed
				var f *failure
				if errors.As(err, &f) {
					reason = f.reason
				}
				err = fmt.Errorf("claim %s: %w", name(c), err)
				d.Log.Error("cannot prepare a claim", "error", err, "took", took.String())
			} else {
				d.Log.Debug("prepared a claim", "claim", name(c), "devices", len(devices), "took", took.String())
			}
			if d.Observe != nil {
				d.Observe(took, reason)
			}
			mu.Lock()
			defer mu.Unlock()
			out[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		})
	}
	wg.Wait()
	return out, nil
}

func name(c *resourceapi.ResourceClaim) string { return quote.Terminal(c.Namespace + "/" + c.Name) }

// prepare makes a pod's devices ready to be attached, or says why that can't be; then nothing is left. What is prepared
// already is not judged again: kubelet asks again after a restart, and the pod may have its devices by now.
func (d *Driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	defer d.claims.lock(string(c.UID))()
	if err := failpoint.Hit("dra/prepare"); err != nil {
		return nil, err
	}
	pod, given, err := claim.Of(c, d.Node)
	if err != nil {
		return nil, &failure{err, BadClaim}
	}
	if len(given) == 0 {
		return nil, because(BadClaim, "it has no device of pool %s", d.Node)
	}
	was, err := d.Prepared.Claim(string(c.UID))
	damaged := errors.Is(err, prepared.ErrDamaged)
	if err != nil && !damaged && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if was != nil && same(was, pod, given) {
		return d.again(was)
	}
	p := &prepared.Claim{
		UID: string(c.UID), Namespace: c.Namespace, Name: c.Name, PodUID: pod.UID, Pod: pod.Name, Pool: d.Node,
		PodClaimName: claim.PodClaimName(c),
	}
	devices, err := d.resolve(p, given)
	if err != nil {
		return nil, err
	}
	release, err := d.reserve(p)
	if err != nil {
		return nil, err
	}
	defer release()
	files, err := d.filesOf(ctx, p, devices)
	if err != nil {
		return nil, err
	}
	if err := d.preflight(p, devices); err != nil {
		return nil, err
	}
	if damaged {
		d.Log.Warn("prepares a claim anew: what was on file of it is damaged", "claim", name(c), "error", err)
	}
	if was != nil || damaged { // another pod had it, or it was another allocation
		if err := d.forget(p.UID); err != nil {
			return nil, err
		}
	}
	if err := d.write(p, files); err != nil {
		return nil, errors.Join(err, d.forget(p.UID))
	}
	return d.answer(p), nil
}

// same tells whether a claim is prepared for this pod with these devices.
func same(was *prepared.Claim, pod claim.Pod, given []claim.Device) bool {
	return was.PodUID == pod.UID && slices.EqualFunc(was.Devices, given, func(a prepared.Device, b claim.Device) bool {
		return a.Request == b.Request && a.Name == b.Name && a.ShareID == b.ShareID && a.Interface == b.Interface &&
			string(compact(a.Network)) == string(compact(b.Network))
	})
}

// again answers for a claim that is prepared. Its CDI spec may have gone: it is not on the same file system.
func (d *Driver) again(was *prepared.Claim) ([]kubeletplugin.Device, error) {
	if err := d.refresh(was); err != nil {
		return nil, err
	}
	return d.answer(was), nil
}

// resolve finds the devices of a claim on this node.
func (d *Driver) resolve(p *prepared.Claim, given []claim.Device) ([]Device, error) {
	var out []Device
	networks := map[string]json.RawMessage{}
	for _, g := range given {
		n, share, ok := d.device(g.Name)
		if !ok {
			has := "none"
			if names := d.names(); len(names) > 0 {
				has = strings.Join(names[:min(len(names), 32)], ", ")
			}
			return nil, because(NoDevice, "device %s: this node has no such device of a Fabric with allocation DRA "+
				"now; it has %s; delete the pod to have its claim allocated again", quote.Terminal(g.Name), has)
		}
		if n.ConfErr != nil {
			return nil, because(Refused, "device %s: fabric %s: %w", g.Name, n.Item.Fabric, n.ConfErr)
		}
		attributes, err := n.Item.AttributesJSON(n.Item.ID() + share)
		if err != nil {
			return nil, because(Failed, "device %s: %w", g.Name, err)
		}
		p.Devices = append(p.Devices, prepared.Device{
			Request: g.Request, Name: g.Name, ShareID: g.ShareID, Fabric: n.Item.Fabric, Rail: n.Item.Rail,
			ID: n.Item.ID() + share, Address: n.Item.Address, Netdev: n.Item.Netdev, Network: g.Network,
			Shared: n.Item.Shares > 0, Interface: g.Interface, Attributes: attributes,
		})
		if len(n.Conf) > 0 {
			networks[n.Item.Fabric] = compact(n.Conf)
		}
		out = append(out, n)
	}
	p.Networks = networks
	return out, nil
}

// reserve keeps the devices of a claim from another one that is prepared at the same time, until release is called, and
// refuses what another prepared claim has. The scheduler sees to that, and this is the last line of defence.
func (d *Driver) reserve(p *prepared.Claim) (release func(), err error) {
	if err := d.begin(p); err != nil {
		return nil, err
	}
	release = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		maps.DeleteFunc(d.preparing, func(_, by string) bool { return by == p.UID })
	}
	// Only now: another claim that was prepared until a moment ago is on file before it is not being prepared any more.
	claims, _ := d.Prepared.All() // what can't be read costs its own claim only; sweep has logged it
	has := map[string]*prepared.Claim{}
	for _, c := range claims {
		for i := range c.Devices {
			has[use(&c.Devices[i])] = c
		}
	}
	for i := range p.Devices {
		if c := has[use(&p.Devices[i])]; c != nil && c.UID != p.UID {
			release()
			return nil, because(InUse, "device %s is prepared for claim %s of pod %s: it goes into one pod at a time",
				p.Devices[i].Name, quote.Terminal(c.Namespace+"/"+c.Name), quote.Terminal(c.Pod))
		}
	}
	return release, nil
}

// begin notes the devices of a claim as being prepared, unless they are for another one.
func (d *Driver) begin(p *prepared.Claim) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range p.Devices {
		if by := d.preparing[use(&p.Devices[i])]; by != "" && by != p.UID {
			return because(InUse, "device %s is being prepared for claim %s", p.Devices[i].Name, by)
		}
	}
	for i := range p.Devices {
		d.preparing[use(&p.Devices[i])] = p.UID
	}
	return nil
}

// use is what only one claim may have: a device, or a share of one.
func use(n *prepared.Device) string {
	if n.Shared {
		return n.Address.String() + " " + n.Name + " " + n.ShareID
	}
	return n.Address.String()
}

// filesOf waits until the devices are home, and returns their files: by device of the claim.
func (d *Driver) filesOf(ctx context.Context, p *prepared.Claim, devices []Device) ([][]string, error) {
	files := make([][]string, len(devices))
	errs := make([]error, len(devices))
	var wg sync.WaitGroup
	for i := range devices {
		wg.Go(func() {
			alone := devices[i].Item.Shares == 0
			files[i], errs[i] = d.Files(ctx, devices[i].Item.Address, alone, devices[i].Files)
			files[i] = survey.AllowedFiles(files[i], devices[i].Extra)
			if errs[i] != nil {
				errs[i] = because(InUse, "device %s of fabric %s: %w", p.Devices[i].Name, p.Devices[i].Fabric, errs[i])
			}
		})
	}
	wg.Wait()
	return files, errors.Join(errs...)
}

// preflight asks what ADD would say. The configuration of a network is that of its fabric, with the claim's settings.
func (d *Driver) preflight(p *prepared.Claim, devices []Device) error {
	if d.Preflight == nil || len(devices) == 0 {
		return nil
	}
	var list []fabric.PreflightRequest
	for i := range devices {
		list = append(list, fabric.PreflightRequest{Conf: devices[i].Conf, Device: p.Devices[i], PodUID: p.PodUID})
	}
	refusals, err := d.Preflight(list)
	if err != nil {
		return because(Failed, "look at the node: %w", err)
	}
	var errs []error
	for i, refusal := range refusals {
		if refusal != nil {
			n := &p.Devices[i]
			errs = append(errs, because(Refused, "device %s of fabric %s: %w", n.Name, n.Fabric, refusal))
		}
	}
	return errors.Join(errs...)
}

// write makes a claim prepared: the runtime's file first, because a claim that is prepared has one.
func (d *Driver) write(p *prepared.Claim, files [][]string) error {
	if err := d.CDI.Write(p.UID, d.requests(p, files)); err != nil {
		return err
	}
	if err := d.Prepared.InitMetadata(p); err != nil {
		return err
	}
	if err := failpoint.Hit("dra/cdi"); err != nil {
		return err
	}
	if err := d.Prepared.Save(p); err != nil {
		return err
	}
	return failpoint.Hit("dra/prepared")
}

// requests are what containers get of each request of a claim.
func (d *Driver) requests(p *prepared.Claim, files [][]string) (out []cdi.Request) {
	told := p.MetadataRequests()
	for i := range p.Devices {
		main := p.Devices[i].BaseRequest()
		at := slices.IndexFunc(out, func(r cdi.Request) bool { return r.Name == main })
		if at < 0 {
			at = len(out)
			r := cdi.Request{Name: main}
			if slices.Contains(told, main) {
				r.Metadata, r.MetadataPath = d.Prepared.MetadataFile(p, main), claim.MetadataPath(p, main)
			}
			out = append(out, r)
		}
		out[at].Files = append(out[at].Files, files[i]...)
	}
	return out
}

// answer is what kubelet is told. The first device of a request brings the CDI device of all of them.
func (d *Driver) answer(p *prepared.Claim) (out []kubeletplugin.Device) {
	told := map[string]bool{}
	for i := range p.Devices {
		n := &p.Devices[i]
		k := kubeletplugin.Device{Requests: []string{n.Request}, PoolName: d.Node, DeviceName: n.Name}
		if main := n.BaseRequest(); !told[main] {
			told[main] = true
			k.CDIDeviceIDs = []string{cdi.ID(p.UID, main)}
		}
		out = append(out, k)
	}
	return out
}
