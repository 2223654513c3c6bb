package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// HookCommand is the first argument of the program when a container runtime calls it as the OCI hook createRuntime of a
// container that uses a ResourceClaim.
const HookCommand = "claim-attached"

// Hook answers one call of the OCI hook: it attaches the devices of the pod's ResourceClaims that are not attached yet.
// With an error, one line on stderr, the container does not start. The state of the container is on stdin.
func (p Plugin) Hook(args []string, stdin io.Reader) int {
	err := p.hook(args, stdin)
	if err == nil {
		return 0
	}
	fmt.Fprintln(p.Stderr, "fabric: "+quote.Terminal(strings.ReplaceAll(err.Error(), "\n", "; ")))
	return 1
}

func (p Plugin) hook(args []string, stdin io.Reader) error {
	if len(args) >= 2 && args[0] == "--state-dir" {
		p.StateDir, args = args[1], args[2:]
	}
	if len(args) != 1 || !prepared.IsUID(args[0]) {
		const usage = "usage: fabric %s [--state-dir DIR] CLAIM-UID, with the container's state on stdin"
		return fmt.Errorf(usage, HookCommand)
	}
	c, err := containerOf(stdin)
	if err != nil {
		return err
	}
	return p.withDefaults().claimAttached(args[0], c)
}

// container is one that is about to start.
type container struct {
	netns string // path of its network namespace
	id    netns.ID
}

// containerOf is the container whose state is read.
func containerOf(state io.Reader) (c container, err error) {
	const most = 1 << 20 // the state has the container's annotations
	b, err := io.ReadAll(io.LimitReader(state, most+1))
	if err != nil {
		return c, fmt.Errorf("read the container's state: %w", err)
	}
	if len(b) > most {
		return c, fmt.Errorf("the container's state has more than %d bytes", most)
	}
	var s struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return c, fmt.Errorf("read the container's state: %w", err)
	}
	if s.Pid <= 0 {
		return c, fmt.Errorf("the container's state has the pid %d: want its process", s.Pid)
	}
	c.netns = filepath.Join("/proc", strconv.Itoa(s.Pid), "ns/net")
	if c.id, err = netns.IDOf(c.netns); err != nil {
		return c, fmt.Errorf("find the network namespace of the container's process: %w", err)
	}
	return c, nil
}

// podWait bounds the wait for another hook of the same pod, which attaches the same devices.
const podWait = 90 * time.Second

// claimAttached returns an error unless each device of a claim is attached to the pod with this network namespace. The
// journal knows. What is lacking is attached. A container on the host's network sees all devices that are at home:
// there it is enough that no pod has one of the claim's.
func (p Plugin) claimAttached(uid string, c container) error {
	at := attachments{
		store: journal.Store{Dir: p.StateDir}, claims: prepared.In(p.StateDir), here: c.id,
		used: map[journal.Key]bool{},
	}
	claim, err := at.claims.Claim(uid)
	if err != nil {
		return err
	}
	if onHost(c.id) {
		return at.home(claim)
	}
	ctx, cancel := context.WithTimeout(context.Background(), podWait)
	defer cancel()
	whole := journal.Key{ContainerID: claim.PodUID} // of no interface: no ADD or DEL has it
	lock, err := at.store.LockAttachment(ctx, whole)
	if err != nil {
		return fmt.Errorf("another container of the pod is being started: %w", err)
	}
	defer lock.Unlock()
	entries := at.entries(claim)
	if slices.Contains(entries, nil) && len(claim.Networks) > 0 {
		if err := p.attachPod(claim.PodUID, c); err != nil {
			return err
		}
		clear(at.used)
		entries = at.entries(claim)
	}
	if lacking := without(claim, entries); len(lacking) > 0 {
		return at.explain(claim, lacking)
	}
	return p.writeMetadata(claim, entries, c)
}

func onHost(id netns.ID) bool {
	return slices.ContainsFunc([]string{"/proc/self/ns/net", "/proc/1/ns/net"}, func(path string) bool {
		host, err := netns.IDOf(path)
		return err == nil && host == id
	})
}

// attachments looks in the journal for what the pod with a network namespace has.
type attachments struct {
	store  journal.Store
	claims prepared.Store
	here   netns.ID
	used   map[journal.Key]bool // each stands for one device of a claim
}

// of are the attachments that have a device, or a child on it. Those that can't be read are none.
func (a *attachments) of(device string) []*journal.Entry {
	keys, _ := a.store.Children(device)
	if k, ok, err := a.store.Owner(device); err == nil && ok {
		keys = append(keys, k)
	}
	var out []*journal.Entry
	for _, k := range keys {
		if e, err := a.store.Load(k); err == nil {
			out = append(out, e)
		}
	}
	return out
}

// entries are the attachments of the devices of a claim to the pod, in their order; nil for one that is not attached
// completely. A namespace is recognized by its identity: one that the container's process is in is alive.
func (a *attachments) entries(c *prepared.Claim) []*journal.Entry {
	out := make([]*journal.Entry, len(c.Devices))
	for i := range c.Devices {
		d := &c.Devices[i]
		want := claimDeviceOf(c, d)
		for _, e := range a.of(d.Address.String()) {
			if e.Attached && e.Netns == a.here && !a.used[e.Key] && has(e, want, d.Address.String()) {
				a.used[e.Key] = true
				out[i] = e
				break
			}
		}
	}
	return out
}

// lacking are the devices of a claim that are not attached.
func (a *attachments) lacking(c *prepared.Claim) []*prepared.Device { return without(c, a.entries(c)) }

// without are the devices of a claim whose entry is nil.
func without(c *prepared.Claim, entries []*journal.Entry) (out []*prepared.Device) {
	for i, e := range entries {
		if e == nil {
			out = append(out, &c.Devices[i])
		}
	}
	return out
}

// home returns an error if a pod has a whole device of a claim whose container is on the host's network.
func (a *attachments) home(c *prepared.Claim) error {
	for i := range c.Devices {
		d := &c.Devices[i]
		for _, e := range a.of(d.Address.String()) {
			if e.Kind != journal.KindIPoIB {
				const problem = "%s, and %s: the container is on the host's network, where the device is not"
				return fmt.Errorf(problem, gives(c, d), holds(e))
			}
		}
	}
	return nil
}

// explain says what is wrong with the first device that is lacking, and what to do.
func (a *attachments) explain(c *prepared.Claim, lacking []*prepared.Device) error {
	d := lacking[0]
	for _, e := range a.of(d.Address.String()) {
		switch {
		case a.used[e.Key] || e.Kind == journal.KindIPoIB && e.Netns != a.here:
		case e.Netns != a.here:
			return fmt.Errorf("%s, and %s: it is free when that one is gone", gives(c, d), holds(e))
		case !e.Attached:
			return fmt.Errorf("%s, and its interface %s has not been attached completely: delete the pod", gives(c, d),
				e.IfName)
		}
	}
	want, have := a.count(c, d.Fabric)
	times := "once"
	if want > 1 {
		times = fmt.Sprintf("%d times", want)
	}
	return fmt.Errorf("%s, and no interface of it is in the pod: name the network %s %s in the annotation "+
		"k8s.v1.cni.cncf.io/networks (%d of %d are attached), and look whether Multus is installed on the node; then "+
		"delete the pod: what it was started with stays as it is",
		gives(c, d), d.Fabric, times, have, want)
}

// holds names who has a device.
func holds(e *journal.Entry) string {
	return e.Who() + " has it as " + e.IfName
}

// count says how many devices of a fabric the pod of a claim has been given, by all of its claims, and how many of them
// are attached.
func (a *attachments) count(c *prepared.Claim, fabric string) (want, have int) {
	claims, err := a.claims.Of(c.PodUID)
	if err != nil {
		claims = []*prepared.Claim{c}
	}
	clear(a.used)
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Fabric == fabric {
				want, have = want+1, have+1
			}
		}
		for _, d := range a.lacking(c) {
			if d.Fabric == fabric {
				have--
			}
		}
	}
	return want, have
}

// gives names a device as people know it.
func gives(c *prepared.Claim, d *prepared.Device) string {
	s := d.Address.Name
	if name := rdmaNameAt(d); name != "" {
		s = fmt.Sprintf("%s (%s)", name, s)
	}
	return fmt.Sprintf("ResourceClaim %s gives this pod %s of fabric %s", c.Whose(), s, d.Fabric)
}

// rdmaNameAt is the RDMA device on the host, else the netdev that it had; empty: none.
func rdmaNameAt(d *prepared.Device) string {
	entries, err := os.ReadDir(filepath.Join("/sys/bus", d.Address.Bus, "devices", d.Address.Name, "infiniband"))
	if err == nil && len(entries) > 0 {
		return entries[0].Name()
	}
	if d.Netdev != d.Address.Name {
		return d.Netdev
	}
	return ""
}
