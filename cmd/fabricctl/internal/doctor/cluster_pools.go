package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// Pools are whereabouts' IPPools.
type Pools struct {
	Items []Pool `json:"items"`
}

// Pool is one of them.
type Pool struct {
	Spec struct {
		Range       string                     `json:"range"`
		Allocations map[string]json.RawMessage `json:"allocations"`
	} `json:"spec"`
}

// clusterPools finds pools of whereabouts that are nearly full, as the agent does (internal/ipam/pool).
func clusterPools(c *Cluster) (out []Finding) {
	for _, p := range c.Pools.Items {
		r, err := netip.ParsePrefix(p.Spec.Range)
		if err != nil {
			continue
		}
		have, used := pool.Usable(r), len(p.Spec.Allocations)
		text := fmt.Sprintf("%s: %d of %d addresses are given", p.Spec.Range, used, have)
		switch pool.LevelOf(used, have) {
		case pool.Room:
		case pool.NearlyFull:
			out = append(out, finding("cluster-pools", Warn, text))
		case pool.Full:
			out = append(out, finding("cluster-pools", Fail, text))
		}
	}
	if len(c.Pools.Items) == 0 {
		return nil
	}
	return pass(out, "cluster-pools", fmt.Sprintf("%d pools with room", len(c.Pools.Items)))
}
