// Package survey reads what the agent reports of a node: its HCAs with their ports, device files, NUMA nodes and
// counters, those that are in pods included. It changes nothing.
package survey

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Device is one HCA of the node, wherever it is now.
type Device struct {
	ID       string // what kubelet and Multus know it by: the PCI address, or bus/name without one
	Address  device.Address
	HCA      device.HCA // with port states; those of a device in a pod as its namespace tells them
	Netdev   string     // name on the host; empty without a netdev
	AltNames []string
	AdminUp  bool     // its netdev on the host is up
	NUMA     int      // NUMA node; -1 where the kernel does not say
	Files    []string // device files of exactly this HCA
	Prefix   string   // subnet prefix: the upper 8 bytes of GID 0, fe80:0000:0000:0000; InfiniBand only, empty when it is unknown
	RateGb   float64  // Gb/s of port 1
	Fabric   string   // as discovered; empty: in none
	Holder   *journal.Entry
	Refused  error // why the node policy keeps it on the host; nil when it does not
}

// InPod tells that the RDMA device is in a pod's namespace.
func (d *Device) InPod() bool { return d.Holder != nil && d.Holder.MoveRDMA }

// Active tells that a port carries traffic. A RoCE port is Down as long as its netdev is down, as that of an idle VF
// is; it comes up with it in the pod.
func (d *Device) Active() bool {
	for _, p := range d.HCA.Ports {
		if p.State == device.PortActive || p.LinkLayer == device.Ethernet && d.Netdev != "" && !d.AdminUp {
			return true
		}
	}
	return false
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

// LinkLayer is what the device speaks.
func (d *Device) LinkLayer() device.LinkLayer {
	if len(d.HCA.Ports) == 0 {
		return ""
	}
	return d.HCA.Ports[0].LinkLayer
}

// Names are all the names a pattern of a configuration may match.
func (d *Device) Names() []string {
	out := []string{d.ID, d.Address.String(), d.HCA.Name}
	if d.Netdev != "" {
		out = append(append(out, d.Netdev), d.AltNames...)
	}
	return out
}

// Node is the place to read.
type Node struct {
	Sys    fs.FS         // the host's /sys
	Store  journal.Store // which attachment has which device
	Policy string        // path of the node policy
}

// ErrNoRDMA tells that the node's kernel has no RDMA at all.
var ErrNoRDMA = rdma.ErrNoRDMA

// Mode is the node's RDMA network namespace mode. It returns ErrNoRDMA where there is none.
func Mode() (device.NetnsMode, error) {
	c, err := rdma.Dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.NetnsMode()
}

// Read returns the node's HCAs in the order of their ids: those on the host, and those that the journal knows in pods.
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
	rules, err := policy.Load(n.Policy)
	if err != nil {
		return nil, err
	}
	entries, err := n.Store.List()
	errs := []error{err}
	var out []Device
	names, err := fs.ReadDir(n.Sys, "class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	for _, e := range names {
		d, err := n.onHost(reader, rules, e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just moved: the journal has it
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, *d)
		}
	}
	for _, e := range entries {
		out = n.hold(out, e, reader)
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
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

func (n Node) onHost(r *inventory.Reader, rules *policy.Policy, name string) (*Device, error) {
	target, err := fs.ReadLink(n.Sys, path.Join("class/infiniband", name, "device"))
	if err != nil {
		return nil, fmt.Errorf("find the hardware of RDMA device %s: %w", name, err)
	}
	bus, err := fs.ReadLink(n.Sys, path.Join("class/infiniband", name, "device", "subsystem"))
	if err != nil {
		return nil, fmt.Errorf("find the hardware of RDMA device %s: %w", name, err)
	}
	found, err := r.At(device.Address{Bus: path.Base(bus), Name: path.Base(target)})
	if errors.Is(
		err,
		inventory.ErrAmbiguous,
	) { // two netdevs on one HCA: one function, two ports. The plugin refuses it too.
		return nil, fmt.Errorf("RDMA device %s: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	if found.HCA == nil { // it is on the function that carries the device with the netdev, like the RDMA device of a bond
		if found.HCA, err = r.HCANamed(name); err != nil {
			return nil, err
		}
		found.HCA.Address = device.Address{Bus: path.Base(bus), Name: path.Base(target)}
	}
	if err := r.RDMA.Ports(found.HCA); err != nil {
		return nil, err
	}
	found.Address = found.HCA.Address
	d := &Device{Address: found.Address, HCA: *found.HCA}
	if nd := found.Netdev; nd != nil {
		d.Netdev, d.AltNames, d.AdminUp = nd.Name, nd.AltNames, nd.Up()
		if nd.Addrs, err = r.Link.Addrs(nd.Index); err != nil {
			return nil, err
		}
		if nd.Routes, err = r.Link.Routes(nd.Index); err != nil {
			return nil, err
		}
	}
	d.Refused = rules.Move(policy.Device{Address: found.Address, PCI: found.PCI, Netdev: found.Netdev, HCA: found.HCA})
	d.place(n.Sys)
	n.complete(d, found.PCI)
	return d, nil
}

// complete fills in what sysfs tells of the hardware, wherever its RDMA device is.
func (n Node) complete(d *Device, pci string) {
	d.ID = d.Address.String()
	if d.Address.Bus == "pci" {
		d.ID = d.Address.Name
	}
	d.NUMA = -1
	for _, dir := range []string{sysDevice(d.Address), path.Join("bus/pci/devices", pci)} {
		if v, err := strconv.Atoi(n.text(path.Join(dir, "numa_node"))); err == nil && v >= 0 {
			d.NUMA = v
			break
		}
	}
	d.Files = n.files(d.Address)
}

func sysDevice(a device.Address) string { return path.Join("bus", a.Bus, "devices", a.Name) }

// files lists the device files of the hardware. Their sysfs classes know no network namespaces: they are found also
// while the RDMA device is in a pod. rdma_cm is one for the whole node, and useless for verbs without the others.
func (n Node) files(a device.Address) []string {
	var out []string
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		entries, err := fs.ReadDir(n.Sys, path.Join("class", class))
		if err != nil {
			continue
		}
		for _, e := range entries {
			target, err := fs.ReadLink(n.Sys, path.Join("class", class, e.Name(), "device"))
			if err == nil && path.Base(target) == a.Name {
				out = append(out, "/dev/infiniband/"+e.Name())
			}
		}
	}
	if len(out) > 0 {
		if _, err := fs.Stat(n.Sys, "class/misc/rdma_cm"); err == nil {
			out = append(out, "/dev/infiniband/rdma_cm")
		}
	}
	slices.Sort(out)
	return out
}

// place reads from the /sys of the device's namespace what tells to which fabric it belongs.
func (d *Device) place(sys fs.FS) {
	port := path.Join("class/infiniband", d.HCA.Name, "ports/1")
	if gid := text(sys, path.Join(port, "gids/0")); d.LinkLayer() == device.InfiniBand && len(gid) >= 19 {
		d.Prefix = gid[:19]
	}
	word, _, _ := strings.Cut(text(sys, path.Join(port, "rate")), " ") // 200 Gb/sec (4X HDR)
	if v, err := strconv.ParseFloat(word, 64); err == nil {
		d.RateGb = v
	}
}

func (n Node) text(file string) string { return text(n.Sys, file) }

func text(sys fs.FS, file string) string {
	b, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// System is the node as the agent's own container sees it.
func System() Node {
	return Node{Sys: os.DirFS("/sys"), Store: journal.Store{Dir: journal.DefaultDir}, Policy: policy.DefaultPath}
}
