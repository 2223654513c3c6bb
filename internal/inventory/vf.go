package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// VF returns which virtual function of which PF a device is, with the settings that the PF has for it. It returns nil
// for a device that is no VF. Where the PF has no netdev on the host, the settings are unknown: VF.VFAttrs is zero.
func (r *Reader) VF(d *Device) (*device.VF, error) {
	if d.PCI == "" {
		return nil, nil
	}
	dir := path.Join("bus/pci/devices", d.PCI)
	target, err := fs.ReadLink(r.Sys, path.Join(dir, "physfn"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the PF of %s: %w", d.PCI, err)
	}
	v := &device.VF{PF: device.OnPCI(path.Base(target)), Driver: r.Driver(d.Address)}
	if v.Index, err = r.vfIndex(v.PF, d.PCI); err != nil {
		return nil, err
	}
	pf, err := r.PF(v)
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	v.PFName, v.IB = pf.Name, pf.IsIPoIB()
	a, err := r.Link.VF(pf.Index, v.Index)
	if err != nil {
		return nil, err
	}
	v.VFAttrs = *a
	return v, nil
}

// FLR reports whether a PCI function can be reset by itself: "flr pm bus" in reset_method, or "af_flr" for one that has
// it without PCIe; since Linux 5.15 (Documentation/ABI/testing/sysfs-bus-pci).
func (r *Reader) FLR(pci string) bool {
	methods := strings.Fields(r.text(path.Join("bus/pci/devices", pci, "reset_method")))
	return slices.Contains(methods, "flr") || slices.Contains(methods, "af_flr")
}

func (r *Reader) vfIndex(pf device.Address, pci string) (int, error) {
	vfs, err := r.virtfns(pf)
	if err != nil {
		return 0, err
	}
	for i, vf := range vfs {
		if vf.Name == pci {
			return strconv.Atoi(i)
		}
	}
	return 0, fmt.Errorf("find VF %s among those of %s: %w", pci, pf.Name, fs.ErrNotExist)
}

// virtfns are the VFs of a PF by their index, as sysfs writes it.
func (r *Reader) virtfns(pf device.Address) (map[string]device.Address, error) {
	entries, err := fs.ReadDir(r.Sys, sysDevice(pf))
	if err != nil {
		return nil, fmt.Errorf("list the VFs of %s: %w", pf.Name, err)
	}
	out := map[string]device.Address{}
	for _, e := range entries {
		i, ok := strings.CutPrefix(e.Name(), "virtfn")
		if !ok {
			continue
		}
		if target, err := fs.ReadLink(r.Sys, path.Join(sysDevice(pf), e.Name())); err == nil {
			out[i] = device.OnPCI(path.Base(target))
		}
	}
	return out, nil
}

// PF returns the netdev through which a VF is configured. It returns fs.ErrNotExist when the PF has none on the host.
func (r *Reader) PF(v *device.VF) (*device.Netdev, error) {
	nets, err := r.netdevsIn(sysDevice(v.PF))
	if err != nil {
		return nil, err
	}
	if len(nets) == 0 {
		return nil, fmt.Errorf("find the netdev of PF %s: %w", v.PF.Name, fs.ErrNotExist)
	}
	return &nets[0], nil
}

// Driver is the name of the driver that a device is bound to, empty for none.
func (r *Reader) Driver(a device.Address) string {
	target, err := fs.ReadLink(r.Sys, path.Join(sysDevice(a), "driver"))
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// Chars lists the character devices of a device's RDMA face, sorted: issm3, umad3, uverbs3. sysfs shows them wherever
// the device is.
func (r *Reader) Chars(a device.Address) ([]string, error) {
	var out []string
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		entries, err := fs.ReadDir(r.Sys, path.Join(sysDevice(a), class))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list character devices of %s: %w", a, err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// GUIDHolder returns what on the host has a GUID, or will have it when its driver is next bound: an RDMA device (one
// that is not at the address except), or a VF of a PF that is not v. It returns "" when nothing has.
func (r *Reader) GUIDHolder(g device.GUID, except device.Address, v *device.VF) (string, error) {
	entries, err := fs.ReadDir(r.Sys, "class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("list RDMA devices: %w", err)
	}
	for _, e := range entries {
		dir := path.Join("class/infiniband", e.Name())
		has := r.hasGUID(dir, g)
		if !has && !r.hasVFs(path.Join(dir, "device")) { // as most
			continue
		}
		a, _ := r.addressOf(path.Join(dir, "device"))
		if a == except {
			continue
		}
		if has {
			return "RDMA device " + e.Name() + " (" + a.Name + ")", nil
		}
		if s, err := r.vfWith(g, a, v); err != nil || s != "" {
			return s, err
		}
	}
	return "", nil
}

// vfWith returns the VF of a PF, but for v, that its PF gives a GUID.
func (r *Reader) vfWith(g device.GUID, pf device.Address, v *device.VF) (string, error) {
	n, err := r.PF(&device.VF{PF: pf})
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	all, err := r.Link.VFs(n.Index)
	if err != nil {
		return "", err
	}
	for i, a := range all {
		if v != nil && v.PF == pf && v.Index == i {
			continue
		}
		if a.NodeGUID != nil && *a.NodeGUID == g || a.PortGUID != nil && *a.PortGUID == g {
			return fmt.Sprintf("VF %d of %s (%s)", i, n.Name, pf.Name), nil
		}
	}
	return "", nil
}

// hasVFs says whether the device at a directory is a PF that has VFs.
func (r *Reader) hasVFs(dir string) bool {
	n := r.text(path.Join(dir, "sriov_numvfs"))
	return n != "" && n != "0"
}

// Functions lists the VFs of a PF, none for another device.
func (r *Reader) Functions(pf device.Address) ([]device.Address, error) {
	if !r.hasVFs(sysDevice(pf)) {
		return nil, nil
	}
	vfs, err := r.virtfns(pf)
	if err != nil {
		return nil, err
	}
	var out []device.Address
	for _, i := range slices.Sorted(maps.Keys(vfs)) {
		out = append(out, vfs[i])
	}
	return out, nil
}
