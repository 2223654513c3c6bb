package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/noderange"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// settings loads them, and keeps the last good ones when they make no sense, or have too few addresses for the devices
// there are.
func (l *looker) settings(ctx context.Context, devices []survey.Device, said map[string]string) {
	s, err := settings.Load(l.o.Settings)
	for i := 0; err == nil && i < len(s.Fabrics); i++ {
		err = network.Check(&s.Fabrics[i])
	}
	if err == nil && l.memory.Good != nil && reflect.DeepEqual(s.Fabrics, l.good) {
		return
	}
	if err == nil {
		err = l.judge(ctx, s.Fabrics, devices)
	}
	if err == nil {
		err = l.accept(s)
	}
	if err != nil {
		said["settings"] = "SettingsRefused\x00the last good settings stay in force: " + err.Error()
	}
}

// verdict is what was said of settings that had too few addresses.
type verdict struct {
	fabrics []settings.Fabric
	err     error
	until   time.Time
}

// judge refuses settings with too few addresses. It asks the API server for what the nodes have, so it does not look
// again with every look at the node.
func (l *looker) judge(ctx context.Context, fabrics []settings.Fabric, devices []survey.Device) error {
	if l.refused.err != nil && l.now().Before(l.refused.until) && reflect.DeepEqual(fabrics, l.refused.fabrics) {
		return l.refused.err
	}
	l.refused = verdict{}
	if small := l.enough(ctx, fabrics, network.Assign(fabrics, devices, l.memory.Devices)); len(small) > 0 {
		l.refused = verdict{fabrics, small[0], l.now().Add(rarely * l.o.Interval)}
	}
	return l.refused.err
}

// enough names the fabrics that have too few addresses: for the devices of this node, or for those of all nodes that
// kubelets have told.
func (l *looker) enough(
	ctx context.Context,
	fabrics []settings.Fabric,
	assigned map[string][]survey.Device,
) (small []error) {
	var capacity map[string]int
	if l.cluster != nil && len(fabrics) > 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		if capacity, err = l.cluster.Capacity(ctx, settings.ResourcePrefix); err != nil {
			l.log.Error("cannot compare the ranges with what the nodes have", "error", err)
		}
	}
	for i := range fabrics {
		f := &fabrics[i]
		mine := len(network.Units(f, assigned[f.Name]))
		if err := f.Enough(max(mine, capacity[f.Resource()]), mine); err != nil {
			small = append(small, err)
		}
	}
	return small
}

// part is what this node has of a fabric's range.
type part struct {
	settings settings.NodeRanges
	prefix   netip.Prefix
	asked    time.Time
	lost     bool // there is none for this node; what it may have had is another's
}

// part returns the first and last address that this node may give; false: it has none to give now.
func (l *looker) part(
	ctx context.Context,
	f *settings.Fabric,
	said map[string]string,
) (first, last netip.Addr, ok bool) {
	r := f.NodeRanges
	spec := noderange.Spec{
		Fabric:  f.Name,
		Prefix:  r.Prefix,
		Bits:    r.Bits,
		Without: r.Without,
		Reclaim: r.Reclaim.Duration,
	}
	p, known := l.parts[f.Name]
	known = known && !p.lost
	if !known || !reflect.DeepEqual(p.settings, *r) || l.now().Sub(p.asked) >= reapply {
		if l.cluster == nil {
			return first, last, false
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		prefix, err := l.cluster.Part(ctx, l.o.Namespace, spec, l.now)
		switch {
		case errors.Is(err, noderange.ErrExhausted):
			l.parts[f.Name] = part{lost: true}
			said["part "+f.Name] = "RangeExhausted\x00" + err.Error()
			return first, last, false
		case err != nil:
			l.log.Error("cannot make sure of this node's part of the addresses", "fabric", f.Name, "error", err)
			if !known || !reflect.DeepEqual(p.settings, *r) {
				return first, last, false
			}
		default:
			if p.prefix != prefix {
				l.log.Info("this node's part of the addresses", "fabric", f.Name, "range", prefix.String())
			}
			p = part{settings: *r, prefix: prefix, asked: l.now()}
			l.parts[f.Name] = p
		}
	}
	first, last = spec.Bounds(p.prefix)
	return first, last, true
}

// rarer does what costs the API server something: capacities, pools, definitions that have to go.
func (l *looker) rarer(ctx context.Context, assigned map[string][]survey.Device) {
	if l.now().Before(l.rareNext) {
		return
	}
	l.rareNext = l.now().Add(rarely * l.o.Interval)
	l.rare = map[string]string{}
	l.leave(ctx)
	for _, err := range l.enough(ctx, l.good, assigned) {
		l.rare["small "+err.Error()] = "RangeTooSmall\x00" + err.Error()
	}
	l.metrics.ResetPools()
	l.pools(ctx)
	for name, p := range l.parts {
		if p.lost {
			continue
		}
		spec := noderange.Spec{Prefix: p.settings.Prefix}
		first, last := spec.Bounds(p.prefix)
		have := 1 << min(30, p.prefix.Addr().BitLen()-p.prefix.Bits())
		if first != p.prefix.Addr() {
			have -= 2 // host-local keeps the first address of the fabric's range for a gateway
		}
		if p.prefix.Contains(last.Next()) {
			have--
		}
		l.fill(name, "of this node", p.prefix, l.given(name), have)
	}
}

// given counts the addresses that host-local has given on this node: a file each.
func (l *looker) given(fabric string) (n int) {
	entries, err := os.ReadDir(filepath.Join(l.ipamDir(), fabric))
	if err != nil {
		return 0 // none yet
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err == nil {
			n++
		}
	}
	return n
}

// pools looks at whereabouts's.
func (l *looker) pools(ctx context.Context) {
	configs := map[string]*whereabouts.Config{}
	for i := range l.good {
		if c, err := l.good[i].Whereabouts(); err == nil && c != nil {
			configs[l.good[i].Name] = c
		}
	}
	if l.cluster == nil || len(configs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list, err := l.cluster.Pools(ctx)
	if err != nil {
		l.log.Error("cannot see how full the address pools are", "error", err)
		return
	}
	for fabric, c := range configs {
		for _, r := range c.Ranges {
			for _, p := range list {
				l.pool(fabric, c, r, p)
			}
		}
	}
}

func (l *looker) pool(fabric string, c *whereabouts.Config, r whereabouts.Range, p cluster.Pool) {
	if c.Owns(r, p.Name, p.Range) {
		l.fill(fabric, p.Name, p.Range, p.Allocated, c.Capacity(r, p.Range))
	}
}

// fill shows a pool, and tells when it is nearly full: at 90 %.
func (l *looker) fill(fabric, name string, prefix netip.Prefix, given, have int) {
	l.metrics.Pool(fabric, name, prefix.String(), given, have)
	if given*10 < have*9 {
		return
	}
	amount := "over 90 % of"
	if given >= have {
		amount = "all"
	}
	l.rare["pool "+name+" "+prefix.String()] = fmt.Sprintf(
		"PoolNearlyExhausted\x00fabric %s: %s the %d addresses of %s are given (pool %s); choose a wider range "+
			"before pods have to wait",
		fabric,
		amount,
		have,
		prefix,
		name,
	)
}
