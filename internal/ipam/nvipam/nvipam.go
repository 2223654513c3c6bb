// Package nvipam judges what nv-ipam, NVIDIA's IPAM plugin, would make of an ipam section and of its pools, before a
// pod has to: by its own rules (github.com/Mellanox/nvidia-k8s-ipam, api/v1alpha1 and pkg/cni/types). It reads nothing
// but what it is given, and is for the controller and fabricctl: the CNI binary calls the plugin and has no need of it.
package nvipam

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Type is the type of an ipam section that is nv-ipam's.
const Type = "nv-ipam"

// Group and Version are those of its pools.
const (
	Group   = "nv-ipam.nvidia.com"
	Version = "v1alpha1"
)

// Kinds of pools.
const (
	IPPool   = "IPPool"   // one subnet; each node has a block of it
	CIDRPool = "CIDRPool" // each node has a subnet of its own
)

// kinds are the kinds by the poolType of a section.
var kinds = map[string]string{"": IPPool, "ippool": IPPool, "cidrpool": CIDRPool}

// fields are what nv-ipam knows of a section.
var fields = []string{
	"type", "poolName", "poolType", "forcePoolName", "daemonSocket", "daemonCallTimeoutSeconds", "confDir", "logFile",
	"logLevel",
}

// maxPools is how many pools an interface can have an address of: one of each family.
const maxPools = 2

// poolName is what both Kubernetes takes as a name and nv-ipam as the name of a network.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// Config is an ipam section that nv-ipam can work with.
type Config struct {
	Kind  string   // of all pools
	Pools []string // one, or one of each family
}

// Parse reads an ipam section. It refuses what nv-ipam refuses when the first pod starts, and what it would ignore.
// Errors begin with "ipam".
func Parse(section []byte) (*Config, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(section, &raw); err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	for key := range raw {
		if !slices.Contains(fields, key) {
			return nil, fmt.Errorf("ipam: %q is unknown, and nv-ipam would ignore it; it knows %s", key,
				strings.Join(fields, ", "))
		}
	}
	var c struct{ PoolName, PoolType string }
	if err := json.Unmarshal(section, &c); err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	out := &Config{Kind: kinds[c.PoolType], Pools: strings.Split(c.PoolName, ",")}
	if out.Kind == "" {
		return nil, fmt.Errorf("ipam.poolType %q: want ippool or cidrpool", c.PoolType)
	}
	if len(out.Pools) > maxPools {
		return nil, fmt.Errorf("ipam.poolName %q: want one pool, or two with a comma for IPv4 and IPv6", c.PoolName)
	}
	for _, name := range out.Pools {
		if !poolName.MatchString(name) {
			return nil, fmt.Errorf("ipam.poolName %q: want the name of an %s, or two with a comma and no space",
				c.PoolName,
				out.Kind)
		}
	}
	if len(out.Pools) == maxPools && out.Pools[0] == out.Pools[1] {
		return nil, fmt.Errorf("ipam.poolName %q: names one pool twice; two pools are one of IPv4 and one of IPv6",
			c.PoolName)
	}
	return out, nil
}
