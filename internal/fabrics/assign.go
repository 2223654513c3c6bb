package fabrics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Candidate is a device of a node, as a match sees it.
type Candidate struct {
	device.Location
	HCA        string              // name of the RDMA device on the host
	LinkLayer  device.LinkLayer    // of the first port; empty: not known
	Prefix     device.SubnetPrefix // of port 1; zero: none, or not known
	RateGb     float64             // Gb/s of port 1; 0: not known
	Driver     string              // of the PCI function; empty: none
	Names      []string            // all that a pattern may fit
	Active     bool                // a port carries traffic
	State      string              // of the first port, for people
	InPod      bool                // the RDMA device is in a pod
	Discovered string              // fabric that it is discovered in; empty: in none
	Refused    error               // why the node keeps it on the host; nil when it does not
	ByRA       bool                // that is only a default route of a router advertisement
}

// refused is why the node keeps the device on the host if this fabric would have it.
func (d *Candidate) refused(f *Fabric) error {
	if d.ByRA && f.Host != nil && f.Host.IgnoreRADefaultRoute {
		return nil
	}
	return d.Refused
}

// Assign gives each device to the first fabric that it fits, and returns the devices by fabric name. A device that the
// node policy keeps on the host is in none. before maps a device id to the device's fabric at an earlier look: a port
// that is down reports neither its rate nor its prefix, so its device stays in its fabric, as an unhealthy one. The
// rail of a device is its place among those that fit everything else of a match, in rail order (device.Location).
func Assign(list []Fabric, devices []Candidate, before map[string]string) map[string][]Candidate {
	out := map[string][]Candidate{}
	devices = slices.SortedFunc(slices.Values(devices), func(a, b Candidate) int { return a.Compare(b.Location) })
	rails := rails(list, devices, before)
	for _, d := range devices {
		was := func(f Fabric) bool {
			return !d.Active && f.Name == before[d.ID()] && d.refused(&f) == nil && named(&f.Match, &d) &&
				rails.fits(&f, &d)
		}
		i := slices.IndexFunc(list, was)
		if i < 0 {
			i = slices.IndexFunc(list, func(f Fabric) bool {
				return d.refused(&f) == nil && fits(&f, &d) && rails.fits(&f, &d)
			})
		}
		if i >= 0 {
			out[list[i].Name] = append(out[list[i].Name], d)
		}
	}
	return out
}

// railsOf are the rails of the devices that fit a match but for its rail: fabric -> device id -> rail.
type railsOf map[string]map[string]int

// rails counts a device whose port is down as well, though its rate and prefix are unknown: otherwise a cable that is
// pulled would change the rails behind it. It belongs where it was, and if that is unknown, everywhere.
func rails(list []Fabric, devices []Candidate, before map[string]string) railsOf {
	out := railsOf{}
	for i := range list {
		f := &list[i]
		if f.Match.Rail == nil {
			continue
		}
		out[f.Name] = map[string]int{}
		for j := range devices {
			d := &devices[j]
			if d.refused(f) == nil &&
				(len(misfits(&f.Match, d)) == 0 || !d.Active && mayBe(list, f, d, before[d.ID()])) {
				out[f.Name][d.ID()] = len(out[f.Name])
			}
		}
	}
	return out
}

// mayBe reports whether a device whose port is down may be on one of the rails that a fabric is of, as it was on one of
// them, or its rail is unknown.
func mayBe(list []Fabric, f *Fabric, d *Candidate, before string) bool {
	if !named(&f.Match, d) {
		return false
	}
	i := slices.IndexFunc(list, func(o Fabric) bool { return o.Name == before })
	if i < 0 {
		return true
	}
	a, b := f.Match, list[i].Match
	a.Rail, b.Rail = nil, nil
	return reflect.DeepEqual(a, b)
}

func (r railsOf) fits(f *Fabric, d *Candidate) bool {
	if f.Match.Rail == nil {
		return true
	}
	rail, ok := r[f.Name][d.ID()]
	return ok && rail == *f.Match.Rail
}

// fits reports whether the device has all that the match names.
func fits(f *Fabric, d *Candidate) bool {
	return len(misfits(&f.Match, d)) == 0
}

// misfits lists what the match names and the device does not have, for people. Prefix and rate of a device in a pod may
// not be visible: it is still the fabric's if everything else fits.
func misfits(m *Match, d *Candidate) (out []string) {
	if m.Discovered != "" && d.Discovered != m.Discovered {
		is := "it is discovered in no fabric"
		if d.Discovered != "" {
			is = "it is discovered in " + d.Discovered
		}
		out = append(out, is+", not in "+m.Discovered)
	}
	if l := string(d.LinkLayer); m.LinkLayer != "" && string(m.LinkLayer) != l {
		out = append(out, "it is "+cmp.Or(l, "of no known link layer")+", not "+string(m.LinkLayer))
	}
	if m.SubnetPrefix != 0 && d.Prefix != m.SubnetPrefix && (d.Prefix != 0 || !d.InPod) {
		has := "it has no subnet prefix"
		if d.Prefix != 0 {
			has = "its subnet prefix is " + d.Prefix.String()
		}
		out = append(out, has+", not "+m.SubnetPrefix.String())
	}
	if m.RateGb != 0 && d.RateGb != m.RateGb && (d.RateGb != 0 || !d.InPod) {
		out = append(out, "its rate is "+rate(d.RateGb)+" Gb/s, not "+rate(m.RateGb))
	}
	if m.Driver != "" && d.Driver != m.Driver {
		out = append(out, "its driver is "+cmp.Or(quote.Terminal(d.Driver), "not known")+", not "+m.Driver)
	}
	if !matchesName(m, d) {
		out = append(out, "none of its names "+strings.Join(d.Names, ", ")+" fits "+strings.Join(m.Devices, ", "))
	}
	return out
}

func rate(gb float64) string { return strconv.FormatFloat(gb, 'f', -1, 64) }

// named reports whether link layer and names fit, which no state of the port changes.
func named(m *Match, d *Candidate) bool {
	return (m.LinkLayer == "" || m.LinkLayer == d.LinkLayer) && matchesName(m, d)
}

func matchesName(m *Match, d *Candidate) bool {
	if len(m.Devices) == 0 {
		return true
	}
	for _, pattern := range m.Devices {
		for _, name := range d.Names {
			if ok, err := path.Match(pattern, name); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// Unmatched says that a fabric has no device on this node, which device comes nearest, and what keeps
// it out. It is empty if the fabric has devices, or if the node has none at all: then there is nothing to compare.
func Unmatched(f *Fabric, devices []Candidate, assigned map[string][]Candidate) string {
	if len(assigned[f.Name]) > 0 || len(devices) == 0 {
		return ""
	}
	d := slices.MinFunc(devices, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(len(misfits(&f.Match, &a)), len(misfits(&f.Match, &b))),
			cmp.Compare(distance(&f.Match, &a), distance(&f.Match, &b)),
		)
	})
	return fmt.Sprintf("matches no device of this node: the nearest one is %s (%s), but %s",
		quote.Terminal(d.HCA), d.ID(), strings.Join(obstacles(f, &d, assigned), ", and "))
}

// obstacles is why a device is not the fabric's.
func obstacles(f *Fabric, d *Candidate, assigned map[string][]Candidate) []string {
	out := misfits(&f.Match, d)
	if len(out) > 0 && !d.Active {
		out = append(out, "its port is "+d.State+", which hides its rate and prefix")
	}
	if err := d.refused(f); err != nil {
		out = append(out, "the node policy keeps it on the host: "+err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(assigned)) {
		if slices.ContainsFunc(assigned[name], func(a Candidate) bool { return a.Location == d.Location }) {
			out = append(out, "fabric "+name+" takes precedence")
		}
	}
	return out
}

// distance is how far the rate of a device is from the one that the match names.
func distance(m *Match, d *Candidate) float64 {
	if m.RateGb == 0 {
		return 0
	}
	return math.Abs(d.RateGb - m.RateGb)
}
