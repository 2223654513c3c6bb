package selftest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// host is the network namespace of the caller, and the plugin's state directory.
type host struct {
	inventory.Reader
	store journal.Store
	// tested are the interfaces and RDMA devices that are tested. Of other interfaces the state has those of hardware,
	// and what sits on them: those of pods come and go, as the port states of other devices do.
	tested []string
}

func openHost(store journal.Store) (*host, error) {
	h := &host{store: store, Reader: inventory.Reader{Sys: os.DirFS("/sys")}}
	var err error
	if h.Link, err = link.Dial(); err != nil {
		return nil, err
	}
	if h.RDMA, err = rdma.Dial(); err != nil && !errors.Is(err, rdma.ErrNoRDMA) {
		h.Link.Close()
		return nil, err
	}
	return h, nil
}

func (h *host) close() {
	h.Link.Close()
	if h.RDMA != nil {
		h.RDMA.Close()
	}
}

// exclusive tells whether RDMA devices move with their interfaces.
func (h *host) exclusive() bool {
	if h.RDMA == nil {
		return false
	}
	mode, err := h.RDMA.NetnsMode()
	return err == nil && mode == device.NetnsExclusive
}

// take returns the present state.
func (h *host) take() (State, error) {
	s := State{}
	for _, f := range []func(State) error{h.links, h.rules, h.hcas, h.files} {
		if err := f(s); err != nil {
			return nil, fmt.Errorf("look at the host: %w", err)
		}
	}
	return s, nil
}

// above are the kinds of interfaces that sit on others.
var above = []string{"bond", "team", "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "vrf"}

func (h *host) links(s State) error {
	list, err := h.Link.List("")
	if err != nil {
		return err
	}
	names := map[int]string{}
	for i := range list {
		names[list[i].Index] = list[i].Name
	}
	for i := range list {
		n := &list[i]
		if n.Address.IsZero() && !n.IsIPoIB() && !slices.Contains(above, n.Kind) &&
			!slices.ContainsFunc(h.tested, n.Named) {
			continue
		}
		if err := h.Kept(n); err != nil {
			return err
		}
		putLink(s, n, names)
		if err := h.addressing(s, n); err != nil {
			return err
		}
		vfs, err := h.Link.VFs(n.Index)
		if err != nil {
			return err
		}
		for j := range vfs {
			s.put(fmt.Sprintf("%s vf %d", n.Name, j), vfText(&vfs[j]))
		}
	}
	return nil
}

// configured are the flags that administrators set; the others follow the carrier.
const configured = device.FlagUp | device.FlagDebug | device.FlagNoTrailers | device.FlagNoARP | device.FlagPromisc |
	device.FlagAllMulti | device.FlagMulticast | device.FlagPortSel | device.FlagAutoMedia | device.FlagDynamic

func putLink(s State, n *device.Netdev, names map[int]string) {
	put := func(key string, value any) { s.put(n.Name+" "+key, value) }
	s.put(n.Name, "there")
	put("mtu", n.MTU)
	put("txqueuelen", n.TxQueue)
	put("flags", fmt.Sprintf("%#x", n.Flags&configured))
	put("alias", fingerprint(n.Alias))
	put("group", n.Group)
	put("kind", n.Kind)
	put("device", n.Address)
	put("master", names[n.Master])
	put("parent", names[n.Parent])
	put("addrgenmode", n.AddrGenMode)
	hw := n.HWAddr
	if len(hw) == 20 { // before the port's GUID is the number of the queue pair
		hw = hw[12:]
	}
	put("address", hw)
	for _, a := range slices.Sorted(slices.Values(n.AltNames)) {
		put("altname "+a, "yes")
	}
	if n.IPoIB != nil {
		put("ipoib", fmt.Sprintf("%+v", *n.IPoIB))
	}
	for i, v := range n.IPv4Conf { // IPV4_DEVCONF_* counts from 1
		put(fmt.Sprintf("ipv4 conf %d", i+1), v)
	}
	for i, v := range n.IPv6Conf {
		put(fmt.Sprintf("ipv6 conf %d", i), v)
	}
	k := &n.Kept
	for name, v := range k.Attrs {
		put(string(name), v)
	}
	for _, p := range k.Programs {
		put("bpf", p)
	}
	if k.Features != nil {
		put("features", fmt.Sprintf("%x of %x", k.Features.Wanted, k.Features.Can))
	}
	for file, v := range k.Queues {
		put(file, v)
	}
	for file, v := range k.Sysctls {
		if file == device.StableSecret {
			v = fingerprint(v)
		}
		put(file, v)
	}
	for _, q := range k.Qdiscs {
		put(fmt.Sprintf("qdisc %s %x", q.Kind, q.Handle), fmt.Sprintf("parent %x, filters %t, classes %t", q.Parent,
			q.Filters, q.Classes))
	}
	for _, e := range k.Neighbours {
		put("neighbour "+e.Dst.String(), fmt.Sprintf("%s proxy %t", e.LLAddr, e.Proxy))
	}
	for _, e := range k.Nexthops {
		put(fmt.Sprintf("nexthop %d", e.ID), e.Via)
	}
}

// fingerprint stands for a text that no report should have.
func fingerprint(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%d bytes, %x", len(text), sum[:4])
}

// passing are the flags of an address that come and go by themselves.
const passing = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC

func (h *host) addressing(s State, n *device.Netdev) error {
	addrs, err := h.Addrs(n.Index)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		for _, t := range []*uint32{&a.Valid, &a.Preferred} {
			if *t != ^uint32(0) && *t != 0 {
				*t = 1 // it runs
			}
		}
		s.put(n.Name+" ip "+a.Prefix.String(), fmt.Sprintf("peer %s broadcast %s label %q flags %#x scope %d valid %d "+
			"preferred %d metric %d", known(a.Peer), known(a.Broadcast), a.Label, a.Flags&^passing, a.Scope,
			int32(a.Valid), int32(a.Preferred), a.Metric))
	}
	routes, err := h.Link.Routes(n.Index)
	if err != nil {
		return err
	}
	for _, t := range routes {
		s.put(n.Name+" route "+t.String(), fmt.Sprintf("protocol %d scope %d type %d tos %d flags %#x mtu %d advmss %d",
			t.Protocol, t.Scope, t.Type, t.TOS, t.Flags, t.MTU, t.AdvMSS))
	}
	return nil
}

// known is an address, or a dash.
func known(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

func vfText(v *device.VFAttrs) string {
	text := fmt.Sprintf("mac %s vlan %d qos %d proto %#x rates %d %d link-state %d", v.MAC, v.VLAN, v.QoS, v.Proto,
		v.MinTxRate, v.MaxTxRate, v.LinkState)
	if v.SpoofChk != nil {
		text += fmt.Sprintf(" spoofchk %t", *v.SpoofChk)
	}
	if v.Trust != nil {
		text += fmt.Sprintf(" trust %t", *v.Trust)
	}
	if v.NodeGUID != nil {
		text += " node_guid " + v.NodeGUID.String()
	}
	if v.PortGUID != nil {
		text += " port_guid " + v.PortGUID.String()
	}
	return text
}

func (h *host) rules(s State) error {
	lookups, err := h.Link.Lookups()
	if err != nil {
		return err
	}
	for _, l := range lookups {
		s.put(fmt.Sprintf("rule %+v", l), "yes")
	}
	rules, err := h.Link.Rules()
	for _, r := range rules {
		s.put("rule "+r.String(), "yes")
	}
	return err
}

func (h *host) hcas(s State) error {
	if entries, err := os.ReadDir("/dev/infiniband"); err == nil {
		for _, e := range entries {
			s.put("/dev/infiniband/"+e.Name(), "yes")
		}
	}
	if entries, err := fs.ReadDir(h.Sys, "class/infiniband"); err == nil {
		for _, e := range entries {
			s.put("/sys/class/infiniband/"+e.Name(), "yes")
		}
	}
	if h.RDMA == nil {
		return nil
	}
	list, err := h.RDMA.List()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil
	}
	for i := range list {
		d := &list[i]
		if err := h.RDMA.Ports(d); err != nil {
			return err
		}
		h.RDMA.AutoCounters(d)
		h.TrafficClass(d)
		if err := rdma.CM(d); err != nil {
			return err
		}
		h.putHCA(s, d)
	}
	return err
}

func (h *host) putHCA(s State, d *device.HCA) {
	dir := "class/infiniband/" + d.Name
	if _, err := fs.Stat(h.Sys, dir+"/device/physfn"); err != nil { // of a VF it is new whenever its driver is bound
		s.put("rdma "+d.Name+" index", d.Index)
	}
	s.put("rdma "+d.Name, "there")
	s.put("rdma "+d.Name+" node_guid", d.NodeGUID)
	if d.DIM != nil {
		s.put("rdma "+d.Name+" adaptive-moderation", *d.DIM)
	}
	a, err := h.HCAAddress(d.Name)
	if err == nil {
		chars, _ := h.Chars(a) // what is in /dev has been listed
		s.put("rdma "+d.Name+" device", a)
		s.put("rdma "+d.Name+" files", strings.Join(chars, " "))
	}
	for _, p := range d.Ports {
		port := fmt.Sprintf("rdma %s port %d", d.Name, p.Number)
		if slices.Contains(h.tested, d.Name) {
			s.put(port+" state", p.State)
		}
		if p.AutoCounters != nil {
			s.put(port+" counters", *p.AutoCounters)
		}
		if p.CM != nil {
			s.put(port+" connections", fmt.Sprintf("%+v", *p.CM))
		}
		if p.TrafficClass != nil {
			s.put(port+" traffic class", *p.TrafficClass)
		}
		gid, err := fs.ReadFile(h.Sys, fmt.Sprintf("%s/ports/%d/gids/0", dir, p.Number))
		if text := strings.TrimSpace(string(gid)); err == nil && p.LinkLayer == device.InfiniBand {
			s.put(port+" gid", text)
		}
	}
}

// kept are the directories in the plugin's state directory with what an attachment has.
var kept = []string{"attachments", "claims", "names", "netdevs", "ipam"}

func (h *host) files(s State) error {
	for _, dir := range kept {
		err := filepath.WalkDir(filepath.Join(h.store.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case !d.IsDir() && d.Name() != "lock" && !strings.HasSuffix(d.Name(), ".lock"):
				s.put(path, "yes")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// poll is how long to wait between two looks.
const poll = 100 * time.Millisecond

// settled returns the state once two looks in a row agree.
func (h *host) settled(ctx context.Context, patience time.Duration) (State, error) {
	var last State
	var diff []string
	err := until(ctx, patience, func() (bool, error) {
		s, err := h.take()
		if err != nil {
			return false, err
		}
		diff = last.Diff(s)
		first := last == nil
		last = s
		return !first && len(diff) == 0, nil
	})
	if err == nil && len(diff) > 0 {
		err = fmt.Errorf("the host changes by itself: %s", strings.Join(few(diff), "; "))
	}
	return last, err
}

// differs waits until the host is what it was: carriers, link-local addresses and port states come some time after a
// device has. It returns how it differs when patience is over.
func (h *host) differs(ctx context.Context, was State, patience time.Duration) (diff []string, err error) {
	err = until(ctx, patience, func() (bool, error) {
		now, err := h.take()
		diff = was.Diff(now)
		return err == nil && len(diff) == 0, err
	})
	return few(diff), err
}

// until asks until the answer is yes, or patience is over. It returns the error of the last answer, if it was one.
func until(ctx context.Context, patience time.Duration, ask func() (bool, error)) error {
	end := time.Now().Add(patience)
	for {
		yes, err := ask()
		if yes && err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}
