package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// The values of --allocation.
const (
	devicePlugin = "device-plugin"
	dra          = "dra"
)

// Bounds of what flags count.
const (
	maxRate    = 100_000 // Gb/s: more than any port has
	maxNodes   = 100_000 // of a cluster
	maxWorkers = 10_000
	maxGPUs    = 1024
)

// checkUse refuses flags that exclude each other.
func (g *generation) checkUse(kind string, f *pflag.FlagSet) error {
	if g.from.cluster && kind == devicePlugin && len(g.from.recordings) == 0 {
		return fmt.Errorf("%w: in a cluster with fabric-agent the controller publishes the networks of Fabrics, and "+
			"the agents offer the devices: generate fabric --cluster; for another device plugin generate %s from "+
			"recordings", errUsage, kind)
	}
	if g.VFs && g.from.cluster && kind != devicePlugin {
		return fmt.Errorf("%w: --vfs is for networks and resources of another device plugin: give recordings, and "+
			"generate nad and device-plugin", errUsage)
	}
	if kind != devicePlugin {
		if err := g.from.checkPrefix(f); err != nil {
			return err
		}
	}
	if g.Target != "" {
		if err := oneOf("target", &g.Target, generate.NetworkOperator); err != nil {
			return err
		}
	}
	switch {
	case g.VFs && g.Shared:
		return fmt.Errorf("%w: --vfs and --shared exclude each other", errUsage)
	case g.Shared && g.from.cluster && kind != devicePlugin:
		return fmt.Errorf("%w: --shared: with --cluster the Fabrics say whether pods share devices (spec.mode)",
			errUsage)
	case g.Shared && g.allocation == dra:
		return fmt.Errorf("%w: --shared and --allocation dra exclude each other: the RDMA shared device plugin knows "+
			"no claims", errUsage)
	case kind == "claim" && !g.Pod && f.Changed("image"):
		return fmt.Errorf("%w: --image %.300q: a claim has none; --with-pod writes a pod with it", errUsage, g.Image)
	case kind == "claim" && !g.Pod && f.Changed("gpus") && g.GPUClass == "":
		return fmt.Errorf("%w: --gpus %d: a claim has GPUs with --gpu-class; --with-pod writes a pod with it that "+
			"asks their device plugin", errUsage, g.GPUs)
	case kind == "claim" && !g.Pod && f.Changed("gpu-resource"):
		return fmt.Errorf("%w: --gpu-resource %.253q: a claim has none; --with-pod writes a pod with it that asks the "+
			"device plugin of the GPUs", errUsage, g.GPU)
	}
	return g.checkResources(kind, f)
}

// checkResources checks the names of resources.
func (g *generation) checkResources(kind string, f *pflag.FlagSet) error {
	if g.Shared && !f.Changed("resource-prefix") {
		g.Prefix = generate.SharedPrefix
	}
	reserved := g.Prefix == "kubernetes.io" || strings.HasSuffix(g.Prefix, ".kubernetes.io") ||
		strings.HasPrefix(g.Prefix, "requests.")
	switch {
	case reserved:
		return fmt.Errorf("%w: --resource-prefix %.253q: Kubernetes keeps it for itself: want a domain such as "+
			"nvidia.com",
			errUsage, g.Prefix)
	case g.Shared && g.Prefix == generate.AgentPrefix:
		return fmt.Errorf("%w: --resource-prefix %s: those of fabric-agent are not of the RDMA shared device plugin: "+
			"leave out --shared", errUsage, g.Prefix)
	case !g.Shared && g.Prefix == generate.SharedPrefix:
		return fmt.Errorf("%w: --resource-prefix %s is that of the RDMA shared device plugin, whose devices "+
			"belong to no network: want --shared, or the prefix of an SR-IOV network device plugin, such as "+
			"nvidia.com", errUsage, g.Prefix)
	case g.Prefix == generate.AgentPrefix && (kind == "nad" || kind == devicePlugin):
		return fmt.Errorf("%w: --resource-prefix %s: fabric-agent offers these resources, and its controller makes "+
			"their networks: generate fabric", errUsage, g.Prefix)
	case f.Changed("gpu-resource"):
		return resourceRule.check("gpu-resource", g.GPU)
	}
	return nil
}

// checkClaim checks the flags of ResourceClaims.
func (g *generation) checkClaim(kind string, f *pflag.FlagSet) error {
	if err := oneOf("allocation", &g.allocation, devicePlugin, dra); err != nil {
		return err
	}
	g.DRA = g.allocation == dra || kind == "claim"
	switch {
	case f.Changed("allocation") && g.from.cluster && generate.IsWorkload(kind):
		return fmt.Errorf("%w: --allocation %s: with --cluster the Fabrics say it (spec.allocation)", errUsage,
			g.allocation)
	case g.DRA && f.Changed("resource-prefix"):
		return fmt.Errorf("%w: --resource-prefix %.253q: pods with ResourceClaims ask for no resource", errUsage,
			g.Prefix)
	case g.DRA && g.VFs:
		return fmt.Errorf("%w: --vfs and --allocation dra exclude each other: claims are for whole ports", errUsage)
	case f.Changed("gpu-class"):
		return domainRule.check("gpu-class", g.GPUClass)
	}
	return nil
}

// checkCounts checks the numbers.
func (g *generation) checkCounts(kind string) error {
	for _, c := range []struct {
		flag        string
		value       int
		least, most int
		want        string
	}{
		{"nodes", g.Nodes, 0, maxNodes, "0 is those that are looked at"},
		{"workers", g.Workers, map[bool]int{true: 2, false: 1}[slices.Contains([]string{"pytorchjob",
			"perftest-pods"}, kind)],
			maxWorkers, "for perftest-pods and a pytorchjob 2 at least, a master and a worker"},
		{"gpus", g.GPUs, -1, maxGPUs, "-1 is those of a node, in proportion to --rails"},
		{"rails", g.Rails, 0, generate.MaxDevices, "0 for all"},
		{"first-rail", g.First, 0, generate.MaxDevices - 1, "0 is the first"},
		{"min-rate", g.MinRate, 0, maxRate, "in Gb/s; 0 for any"},
	} {
		if c.value < c.least || c.value > c.most {
			return fmt.Errorf("%w: --%s %d: want %d to %d (%s)", errUsage, c.flag, c.value, c.least, c.most, c.want)
		}
	}
	return nil
}

// check checks the flags for a kind of output, and parses the addresses.
func (g *generation) check(kind string, f *pflag.FlagSet) error {
	return firstOf(
		func() error {
			return errors.Join(labelRule.check("namespace", g.Namespace), workloadRule.check("name", g.Name),
				imageRule.check("image", g.Image), domainRule.check("resource-prefix", g.Prefix))
		},
		func() error { return g.checkClaim(kind, f) },
		func() error { return g.checkUse(kind, f) },
		func() error { return g.checkCounts(kind) },
		func() error { return g.addresses(kind) },
	)
}

// firstOf is the error of the first check that fails.
func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// addresses reads the range and what is excluded from it.
func (g *generation) addresses(kind string) (err error) {
	for _, e := range g.excluded {
		p, err := addressesOf("exclude", e)
		if err != nil {
			return err
		}
		g.Exclude = append(g.Exclude, p)
	}
	switch {
	case g.pool != "":
	case len(g.Exclude) > 0:
		return fmt.Errorf("%w: --exclude %s: want a part of --range, which is missing", errUsage, g.Exclude[0])
	case kind == "nad" || kind == "fabric" && !g.from.cluster:
		return fmt.Errorf("%w: generate %s: %w", errUsage, kind, generate.ErrNoRange)
	default:
		return nil
	}
	if g.Range, err = addressesOf("range", g.pool); err != nil {
		return err
	}
	a := g.Range.Addr()
	if a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
		return fmt.Errorf("%w: --range %s: want unicast addresses that pods can have, such as 198.18.0.0/16",
			errUsage, g.Range)
	}
	for _, p := range g.Exclude {
		if !p.Overlaps(g.Range) {
			return fmt.Errorf("%w: --exclude %s: want a part of --range %s", errUsage, p, g.Range)
		}
	}
	return nil
}

// addressesOf is a flag with an address and a length that cuts none of its bits off.
func addressesOf(flag, value string) (netip.Prefix, error) {
	p, err := prefixOf(flag, value)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%w: --%s %s: has bits behind its length: want %s", errUsage, flag, p,
			p.Masked())
	}
	return p, nil
}
