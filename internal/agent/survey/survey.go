// Package survey is the agent's view of a node: its HCAs with their ports, device files, NUMA nodes and counters,
// those that are in pods included. It is read every few seconds, so it has only what the agent decides by, from the
// functions that internal/inventory and internal/node have for each of these facts. It changes nothing.
package survey

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Device is one HCA of the node, wherever it is now.
type Device struct {
	device.Location
	HCA      device.HCA // its name is that on the host; port states of a device in a pod are read in its namespace
	NameNow  string     // name of the RDMA device where it is now: a pod may have given it another one
	Netdev   string     // name on the host; empty without a netdev
	AltNames []string
	AdminUp  bool                // its netdev is up, wherever it is
	OthersUp []uint32            // further ports whose interfaces are up, where those are known
	NUMA     int                 // NUMA node; -1 if the firmware does not report one
	Path     []string            // the way down the PCI tree to it, from its host bridge; empty if it is on no PCI bus
	Slot     string              // PCI address of the physical function, which is the same for all functions of a port
	Files    []string            // device files of exactly this HCA
	Prefix   device.SubnetPrefix // of port 1; InfiniBand only, zero when it is unknown
	RateGb   float64             // Gb/s of port 1
	Driver   string              // of its PCI function; empty: none
	Firmware string              // its version; empty: not known
	Fabric   string              // as discovered; empty: in none
	Holder   *journal.Entry
	Away     bool           // the RDMA device is not on the host
	Stale    bool           // it is away and can't be asked: the port states are those that it left with
	Problem  health.Problem // what the agent has judged; empty: it is healthy, or not judged
	Unserved string         // why no new pod can be served with it, in a word; empty: one can, or not judged
	Users    []string       // what on the host uses its RDMA device, in words, and may not lose it; exclusive mode only
	Refused  error          // why the node policy keeps it on the host; nil when it does not
	ByRA     bool           // that is only a default route of a router advertisement
}

// InPod reports whether the RDMA device is in a pod's namespace.
func (d *Device) InPod() bool { return d.Holder != nil && d.Holder.MoveRDMA }

// Kind is PF, VF or SF; empty if the device is on no PCI bus.
func (d *Device) Kind() string {
	switch {
	case d.PCI == "":
		return ""
	case d.Address.PCI() == "":
		return "SF"
	case d.Slot != d.PCI:
		return "VF"
	}
	return "PF"
}

// Place is where the device is in its node.
func (d *Device) Place() node.Place { return node.Place{Path: d.Path, NUMA: d.NUMA} }

// Moving reports whether the device is on its way into a pod or back: then its ports say nothing of its health.
func (d *Device) Moving() bool {
	return d.Stale || d.Holder != nil && (!d.Holder.Attached || d.Holder.MoveRDMA != d.Away)
}

// Idle reports whether its netdev is down, as that of an idle VF is, and as a pod that has it can make it.
func (d *Device) Idle() bool { return (d.Netdev != "" || d.Away) && !d.AdminUp }

// Active reports whether a port carries traffic.
func (d *Device) Active() bool {
	return slices.ContainsFunc(d.HCA.Ports, func(p device.Port) bool { return p.CarriesTraffic(d.Idle()) })
}

// Degraded returns the ports that carry no traffic, if others do.
func (d *Device) Degraded() (down []device.Port) {
	if !d.Active() {
		return nil
	}
	for i, p := range d.HCA.Ports {
		idle := d.Idle()
		if i > 0 { // one whose interface is down, or is not known, is not judged
			idle = !slices.Contains(d.OthersUp, p.Number)
		}
		if !p.CarriesTraffic(idle) {
			down = append(down, p)
		}
	}
	return down
}

// State is the first port's state, for people: "Down (Polling)".
func (d *Device) State() string {
	if len(d.HCA.Ports) == 0 {
		return "no port"
	}
	p := d.HCA.Ports[0]
	if p.State == device.PortActive {
		return p.State.String()
	}
	return fmt.Sprintf("%s (%s)", p.State, p.Phys)
}

// LinkLayer is that of the first port; empty without ports.
func (d *Device) LinkLayer() device.LinkLayer {
	if len(d.HCA.Ports) == 0 {
		return ""
	}
	return d.HCA.Ports[0].LinkLayer
}

// Names are all the names a pattern of a configuration may match.
func (d *Device) Names() []string {
	out := []string{d.ID(), d.Address.String(), d.HCA.Name}
	if d.Netdev != "" {
		out = append(append(out, d.Netdev), d.AltNames...)
	}
	return out
}

// Node is where to read.
type Node struct {
	Sys    fs.FS         // the host's /sys
	Store  journal.Store // which attachment has which device
	Policy string        // path of the node policy
	Proc   string        // a /proc that shows the host's processes; empty: /proc
	Seen   *Seen         // what earlier looks have read; nil: each reads everything
}

// ErrNoRDMA is returned when the node's kernel has no RDMA at all.
var ErrNoRDMA = rdma.ErrNoRDMA

// Mode is the node's RDMA network namespace mode. It returns ErrNoRDMA if the kernel has no RDMA.
func Mode() (device.NetnsMode, error) {
	c, err := rdma.Dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.NetnsMode()
}

// Read returns the node's HCAs in rail order: those on the host, and those that the journal knows in pods.
// A device that can't be read is in the joined error, beside the others. Without RDMA there are none.
func (n Node) Read() ([]Device, error) {
	reader, done, err := n.dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer done()
	mode, err := reader.RDMA.NetnsMode()
	if err != nil {
		return nil, err
	}
	rules, err := policy.Load(n.Policy, n.Store.Dir)
	if err != nil {
		return nil, err
	}
	once, seen, err := n.Seen.begin(reader)
	if err != nil {
		return nil, err
	}
	defer n.Seen.end()
	entries, err := n.Store.List()
	errs := []error{err}
	var out []Device
	names, err := fs.ReadDir(n.Sys, "class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	for _, e := range names {
		d, err := n.onHost(once, seen, rules, e.Name(), mode)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just moved: the journal has it
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, *d)
		}
	}
	for _, e := range entries {
		if out, err = n.hold(out, e, reader); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return a.Compare(b.Location) })
	return out, errors.Join(errs...)
}

func (n Node) dial() (*inventory.Reader, func(), error) {
	nldev, err := rdma.Dial()
	if err != nil {
		return nil, nil, err
	}
	route, err := link.Dial()
	if err != nil {
		nldev.Close()
		return nil, nil, err
	}
	return &inventory.Reader{Sys: n.Sys, Link: route, RDMA: nldev}, func() { route.Close(); nldev.Close() }, nil
}

func (n Node) onHost(
	r *inventory.Reader, seen map[string]Device, rules *policy.Policy, name string, mode device.NetnsMode,
) (*Device, error) {
	found, err := node.OnHost(r, name, mode)
	if err != nil {
		return nil, fmt.Errorf("RDMA device %s: %w", name, err)
	}
	if err := r.RDMA.Ports(found.HCA); err != nil {
		return nil, err
	}
	d := &Device{
		Location: device.Location{Address: found.Address, PCI: found.PCI}, HCA: *found.HCA, NameNow: found.HCA.Name,
	}
	if nd := found.Netdev; nd != nil {
		d.Netdev, d.AltNames, d.AdminUp = nd.Name, nd.AltNames, nd.Up()
	}
	d.otherPorts(func(index int) bool {
		n, err := r.Link.ByIndex(index)
		return err == nil && n.Up()
	})
	d.Refused = rules.Move(found)
	if found.IgnoreRA = true; d.Refused != nil {
		d.ByRA = rules.Move(found) == nil
	}
	if !found.Shared && !rules.HostUse(found) {
		if d.Users, err = r.Users(&d.HCA, cmp.Or(n.Proc, "/proc")); err != nil {
			return nil, err
		}
	}
	if was, ok := seen[name]; ok && slices.Equal(was.HCA.Ports, d.HCA.Ports) {
		d.hardware(&was)
		return d, nil
	}
	d.place(n.Sys)
	if err := n.complete(d, r); err != nil {
		return nil, err
	}
	seen[name] = *d
	return d, nil
}

// otherPorts notes which interfaces of the ports after the first are up.
func (d *Device) otherPorts(up func(index int) bool) {
	for _, p := range d.HCA.Ports[min(1, len(d.HCA.Ports)):] {
		if p.LinkLayer == device.Ethernet && p.Netdev != 0 && up(int(p.Netdev)) {
			d.OthersUp = append(d.OthersUp, p.Number)
		}
	}
}

// complete fills in what sysfs has of the hardware, wherever its RDMA device is.
func (n Node) complete(d *Device, r *inventory.Reader) (err error) {
	at := node.PlaceOf(n.Sys, d.Address, d.PCI, n.Seen.dataDirects(n.Sys))
	d.NUMA, d.Path, d.Slot = at.NUMA, at.Path, node.Slot(n.Sys, d.PCI)
	if d.PCI != "" {
		d.Driver = r.Driver(device.OnPCI(d.PCI))
	}
	d.Files, err = n.files(r, d.Address)
	return err
}

// files lists the device files of the hardware, also while the RDMA device is in a pod. rdma_cm is one for the whole
// node, and useless for verbs without the others.
func (n Node) files(r *inventory.Reader, a device.Address) ([]string, error) {
	chars, err := r.Chars(a)
	if len(chars) == 0 {
		return nil, err
	}
	if _, err := fs.Stat(n.Sys, "class/misc/rdma_cm"); err == nil {
		chars = append(chars, "rdma_cm")
	}
	for i := range chars {
		chars[i] = "/dev/infiniband/" + chars[i]
	}
	slices.Sort(chars)
	return chars, nil
}

// place reads from the /sys of the device's namespace what says to which fabric its first port belongs, and what else
// the RDMA device says of itself.
func (d *Device) place(sys fs.FS) {
	d.Firmware = node.Firmware(sys, d.NameNow)
	d.Prefix, d.RateGb = node.PortPrefix(sys, d.NameNow, 1), node.PortRate(sys, d.NameNow, 1)
}
