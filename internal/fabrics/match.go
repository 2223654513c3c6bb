package fabrics

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Match picks a node's HCAs. What is empty does not count; all that is not must fit.
type Match struct {
	Discovered   string // the fabric that discovery finds it in
	LinkLayer    device.LinkLayer
	SubnetPrefix device.SubnetPrefix // of port 1
	RateGb       float64             // Gb/s of port 1
	Rail         *int                // its place among its node's devices that fit everything else, from 0
	Driver       string              // of the PCI function
	Devices      []string            // patterns: PCI address, RDMA device, netdev or altname
}

// IsZero reports whether the match has no field, and would fit every device.
func (m *Match) IsZero() bool {
	return m.Discovered == "" && m.LinkLayer == "" && m.SubnetPrefix == 0 && m.RateGb == 0 && m.Rail == nil &&
		m.Driver == "" && len(m.Devices) == 0
}

// check refuses what no port of any node could match, and names the nearest thing that one could.
func (m *Match) check() error {
	if m.IsZero() {
		return errors.New("match: must have a field: discovered: NAME takes the devices that `fabricctl discover` " +
			"shows as fabric NAME")
	}
	if m.Discovered != "" && !isLabel(m.Discovered) {
		return fmt.Errorf("match.discovered %q: must be 1 to 50 of a-z, 0-9 and -, as in ib-200g", m.Discovered)
	}
	if l := m.LinkLayer; l != "" && l != device.InfiniBand && l != device.Ethernet {
		return fmt.Errorf("match.linkLayer %q: %s", l, nearestLayer(string(l)))
	}
	if m.SubnetPrefix != 0 && m.LinkLayer == device.Ethernet {
		return fmt.Errorf("match.subnetPrefix %s: Ethernet ports have none; remove it, or write linkLayer: InfiniBand",
			m.SubnetPrefix)
	}
	if m.RateGb != 0 {
		if near := NearestRate(m.RateGb); near != m.RateGb {
			return fmt.Errorf("match.rateGb %v: no link has this rate; the nearest one is %v", m.RateGb, near)
		}
	}
	if strings.Trim(m.Driver, driverLetters) != "" || len(m.Driver) > 63 {
		return fmt.Errorf("match.driver %q: must be the name of a driver, as in mlx5_core", m.Driver)
	}
	for _, p := range m.Devices {
		if err := checkPattern(p); err != nil {
			return fmt.Errorf("match.devices: pattern %q: %w", p, err)
		}
	}
	return nil
}

// driverLetters are those of which the kernel's drivers have their names.
const driverLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// nearestLayer is the link layer that a misspelt one probably means; both, if there is no telling.
func nearestLayer(text string) string {
	switch l := strings.ToLower(text); {
	case strings.HasPrefix(l, "ib"), strings.HasPrefix(l, "inf"):
		return "want InfiniBand or Ethernet; the nearest one is InfiniBand"
	case strings.HasPrefix(l, "eth"), strings.HasPrefix(l, "roce"):
		return "want InfiniBand or Ethernet; the nearest one is Ethernet"
	}
	return "want InfiniBand or Ethernet"
}

// Rates of one lane in Gb/s, SDR to XDR, and the numbers of lanes: the kernel reports the rate of every port, Ethernet
// included, as a product of these (drivers/infiniband/core/sysfs.c, rate_show).
var (
	laneRates = []float64{2.5, 5, 10, 14, 25, 50, 100, 200}
	lanes     = []float64{1, 2, 4, 8, 12}
)

// NearestRate returns the rate in Gb/s nearest to gb that a port can have. It is gb itself if a port can have it.
func NearestRate(gb float64) float64 {
	best := laneRates[0]
	for _, r := range laneRates {
		for _, n := range lanes {
			if math.Abs(r*n-gb) < math.Abs(best-gb) {
				best = r * n
			}
		}
	}
	return best
}

// checkPattern refuses patterns that no name of a device fits. PCI addresses are in lower case and with their domain;
// no name is empty or has white space.
func checkPattern(p string) error {
	if _, err := path.Match(p, ""); err != nil {
		return err
	}
	if p == "" || strings.ContainsAny(p, " \t\n") {
		near := strings.Join(strings.Fields(p), "")
		if near == "" {
			near = "*"
		}
		return fmt.Errorf("no device has such a name; the nearest pattern is %q", near)
	}
	a, err := device.ParseAddress(p)
	if err == nil && a.PCI() != "" && a.ID() != p && a.String() != p {
		return fmt.Errorf("no device has such an address; the nearest one is %q", a.ID())
	}
	domain, rest, ok := strings.Cut(p, ":")
	if !ok || strings.Trim(domain, "0123456789abcdefABCDEF") != "" {
		return nil // a name, or its first wildcard is in the domain
	}
	near := strings.ToLower(p)
	if len(domain) == 2 && !strings.Contains(rest, ":") {
		near = "0000:" + near
	}
	if near != p {
		return fmt.Errorf("no device has such an address; the nearest pattern is %q", near)
	}
	return nil
}
