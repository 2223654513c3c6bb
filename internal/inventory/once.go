package inventory

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// lists are the kernel's lists of a namespace, each read once. Asked for each device, each of them is read as often as
// there are devices: the kernel goes through all its RDMA devices, interfaces and routes for each question.
type lists struct {
	hcas    map[string]device.HCA
	netdevs map[int]device.Netdev
	ipoib   []device.Netdev
	addrs   map[int][]device.Addr
	routes  map[int][]device.Route // wide ones, by ifindex; nil: they have to be asked for by interface
	lookups []device.Lookup
	sources []netip.Addr

	found // for the looks of a Memory
}

// Once returns a Reader for one look at all devices of the namespace. What it tells of them is as it was when Once was
// called; what has come since is looked for again. With a memory that proves that nothing has changed since its last
// look it tells what that one has found, and same is true; m may be nil.
func (r *Reader) Once(m *Memory) (once *Reader, same bool, err error) {
	quiet := m.quiet() // before anything is read
	hcas, err := r.hcas()
	if err != nil {
		return nil, false, err
	}
	once = new(*r)
	if same = quiet && m.has(hcas); same {
		once.lists = m.lists
		return once, true, nil
	}
	once.lists, err = r.list(hcas)
	m.keep(once.lists, hcas)
	return once, false, err
}

func (r *Reader) list(hcas []device.HCA) (*lists, error) {
	l := &lists{hcas: map[string]device.HCA{}, netdevs: map[int]device.Netdev{}, sources: r.sources()}
	for _, h := range hcas {
		l.hcas[h.Name] = h
	}
	all, err := r.Link.List("")
	if err != nil {
		return nil, err
	}
	for i := range all {
		l.netdevs[all[i].Index] = all[i]
		if all[i].IsIPoIB() {
			l.ipoib = append(l.ipoib, all[i])
		}
	}
	if l.addrs, err = r.Link.AllAddrs(); err != nil {
		return nil, err
	}
	if l.routes, err = r.Link.AllWideRoutes(); err != nil {
		return nil, err
	}
	if l.lookups, err = r.Link.Lookups(); err != nil {
		return nil, err
	}
	return l, nil
}

// hcas lists the RDMA devices; without RDMA there are none.
func (r *Reader) hcas() ([]device.HCA, error) {
	if r.RDMA == nil {
		return nil, nil
	}
	list, err := r.RDMA.List()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil, nil
	}
	return list, err
}

// The answers below are of the lists, where the Reader has some.

func (r *Reader) byIndex(index int) (*device.Netdev, error) {
	if r.lists != nil {
		if n, ok := r.lists.netdevs[index]; ok {
			return &n, nil
		}
	}
	return r.Link.ByIndex(index)
}

func (r *Reader) allIPoIB() ([]device.Netdev, error) {
	if r.lists != nil {
		return r.lists.ipoib, nil
	}
	return r.Link.List("ipoib")
}

// Addrs returns the addresses of a netdev.
func (r *Reader) Addrs(index int) ([]device.Addr, error) {
	if r.lists != nil {
		return slices.Clone(r.lists.addrs[index]), nil
	}
	return r.Link.Addrs(index)
}

func (r *Reader) wideRoutes(index int) ([]device.Route, error) {
	if r.lists != nil && r.lists.routes != nil {
		return slices.Clone(r.lists.routes[index]), nil
	}
	return r.Link.WideRoutes(index)
}

func (r *Reader) lookups() ([]device.Lookup, error) {
	if r.lists != nil {
		return r.lists.lookups, nil
	}
	return r.Link.Lookups()
}

// sources are the addresses that the host's packets have where only the default route fits.
func (r *Reader) sources() (out []netip.Addr) {
	if r.lists != nil {
		return slices.Clone(r.lists.sources)
	}
	for _, dst := range nowhere {
		if src, ok := r.Link.SourceFor(dst); ok {
			out = append(out, src)
		}
	}
	return out
}

// hca is an RDMA device of the lists.
func (r *Reader) hca(name string) (*device.HCA, bool) {
	if r.lists == nil {
		return nil, false
	}
	h, ok := r.lists.hcas[name]
	h.Ports = slices.Clone(h.Ports)
	return &h, ok
}
