package agent

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// capacityChecker compares the addresses of fabrics with the devices of this node and of all nodes.
type capacityChecker struct {
	cluster *cluster.Client // nil: only the devices of this node count
	log     *slog.Logger
	now     func() time.Time
	every   time.Duration // how long settings that were refused are not checked again

	refused refusedSettings
}

// refusedSettings are the last settings that had too few addresses.
type refusedSettings struct {
	fabrics []settings.Fabric
	err     error
	until   time.Time
}

// tooSmall is a fabric with too few addresses.
type tooSmall struct {
	fabric string
	err    error
}

// checkSettings returns an error for settings with too few addresses. The check asks the API server for all Nodes, so
// the same settings are checked again only after a while.
func (c *capacityChecker) checkSettings(
	ctx context.Context, fabrics []settings.Fabric, assigned map[string][]survey.Device,
) error {
	last := &c.refused
	if last.err != nil && c.now().Before(last.until) && reflect.DeepEqual(fabrics, last.fabrics) {
		return last.err
	}
	c.refused = refusedSettings{}
	if small := c.checkCapacity(ctx, fabrics, assigned); len(small) > 0 {
		c.refused = refusedSettings{fabrics, small[0].err, c.now().Add(c.every)}
	}
	return c.refused.err
}

// reconcile adds a condition for each fabric in force that has become too small.
func (c *capacityChecker) reconcile(ctx context.Context, v *view) {
	for _, s := range c.checkCapacity(ctx, v.fabrics, v.assigned) {
		v.conditions.Fail(condition.AddressesSufficient, condition.Fabric(s.fabric), "%v", s.err)
	}
}

// checkCapacity returns the fabrics that have too few addresses for the devices of this node, or for those that the
// kubelets of all nodes have reported.
func (c *capacityChecker) checkCapacity(
	ctx context.Context, fabrics []settings.Fabric, assigned map[string][]survey.Device,
) (small []tooSmall) {
	var capacity map[string]int
	if c.cluster != nil && len(fabrics) > 0 {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		var err error
		if capacity, err = c.cluster.Capacity(ctx, settings.ResourcePrefix); err != nil {
			c.log.Error("cannot compare the ranges with the devices of all nodes", "error", err)
		}
	}
	for i := range fabrics {
		f := &fabrics[i]
		onNode := len(network.Units(f, assigned[f.Name]))
		if err := f.CheckCapacity(max(onNode, capacity[f.Resource()]), onNode); err != nil {
			small = append(small, tooSmall{f.Name, err})
		}
	}
	return small
}
