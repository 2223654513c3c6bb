package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Bounds of what a node says that it holds: with more the API server refuses all of its status.
const (
	maxHeldFabrics  = 256
	maxHeldPrefixes = 256
)

// held are the addresses that pods of this node hold of nodeRanges, whichever Fabrics there are now: the plugin keeps
// them in a directory for each network, until the DEL of the attachment. A directory without the limit that the agent
// sets before it publishes a configuration is of no Fabric. It fails if some can't be read: the caller must not take
// that for none.
func held(ipamDir string) (*v1alpha1.HeldAddresses, error) {
	networks, err := os.ReadDir(ipamDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	out := &v1alpha1.HeldAddresses{}
	for _, n := range networks {
		if !n.IsDir() || !fabrics.IsName(n.Name()) || !hostlocal.Limited(ipamDir, n.Name()) {
			continue
		}
		addresses, err := hostlocal.Given(filepath.Join(ipamDir, n.Name()))
		if err != nil {
			return nil, err
		}
		if len(addresses) == 0 {
			continue
		}
		if len(out.Fabrics) == maxHeldFabrics {
			return nil, fmt.Errorf("%s has addresses of more than %d networks", ipamDir, maxHeldFabrics)
		}
		prefixes, err := join(addresses)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", n.Name(), err)
		}
		of := v1alpha1.HeldOfFabric{Name: n.Name()}
		for _, p := range prefixes {
			of.Prefixes = append(of.Prefixes, p.String())
		}
		out.Fabrics = append(out.Fabrics, of)
	}
	slices.SortFunc(out.Fabrics, func(a, b v1alpha1.HeldOfFabric) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// join returns the fewest prefixes that hold exactly these addresses. If they are too many, each is made wider until
// they are not.
func join(addresses []netip.Addr) ([]netip.Prefix, error) {
	for wider := 0; ; wider++ {
		var b netipx.IPSetBuilder
		for _, a := range addresses {
			b.AddPrefix(netip.PrefixFrom(a, max(a.BitLen()-wider, 1)).Masked())
		}
		s, err := b.IPSet()
		if err != nil {
			return nil, err
		}
		if out := s.Prefixes(); len(out) <= maxHeldPrefixes {
			return out, nil
		}
	}
}
