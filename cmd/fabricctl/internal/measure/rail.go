package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// rail is one interface of an end, with the port of an RDMA device if it has one; or such a port alone.
type rail struct {
	end     string // whose it is
	name    string
	lacking bool       // the end does not have it
	bare    bool       // without an interface: name is that of the port
	meet    netip.Addr // where perftest's two sides find each other over TCP
	addr    netip.Prefix
	hwaddr  string
	pkey    string // partition of an IPoIB interface, 0x8001
	port    port
	gid     netip.Addr // InfiniBand: entry 0; RoCE: the v2 entry of the address
	index   int        // of that entry; -1: none
}

// notThere is what runtimes say of a program that an image lacks, and busybox of an option that it does not know.
var notThere = regexp.MustCompile(
	`executable file not found|[Nn]o such file or directory|(unrecognized|invalid) option|Usage: ip`,
)

var ours = regexp.MustCompile(`^net\d+(p\d+)?$`)

// link is what ip says of an interface.
type link struct {
	IfName   string `json:"ifname"`
	LinkType string `json:"link_type"`
	Address  string `json:"address"`
	// Broadcast of an IPoIB interface has the PKey in octets 8 and 9 (RFC 4391).
	Broadcast string `json:"broadcast"`
	AddrInfo  []struct {
		Local  string `json:"local"`
		Prefix int    `json:"prefixlen"`
		Scope  string `json:"scope"`
	} `json:"addr_info"`
}

// addr is the address of an interface that others can reach, an IPv4 one if it has one.
func (l *link) addr() (out netip.Prefix) {
	for _, a := range l.AddrInfo {
		p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", a.Local, a.Prefix))
		if err == nil && a.Scope == "global" && (!out.IsValid() || p.Addr().Is4() && !out.Addr().Is4()) {
			out = p
		}
	}
	return out
}

// partition is the PKey of an IPoIB interface, 0x8001; empty for others. A child that was made by netlink has no file
// for it in sysfs (ipoib_vlan.c, IPOIB_RTNL_CHILD).
func (l *link) partition() string {
	hw, err := net.ParseMAC(l.Broadcast)
	if err != nil || len(hw) != 20 {
		return ""
	}
	return fmt.Sprintf("0x%02x%02x", hw[8], hw[9])
}

// links asks an end for its interfaces.
func links(ctx context.Context, e *End) (list []link, err error) {
	text, err := e.Run(ctx, "ip", "-j", "address", "show")
	if err != nil && notThere.MatchString(err.Error()) && !errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w; the image needs iproute2 (busybox has another ip), ping and perftest", err)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s: ip -j address show: %w", e.Name, err)
	}
	return list, nil
}

// rails finds the rails of an end: those named, interfaces or ports; or net1, net2, ..., as Multus calls them, and
// InfiniBand interfaces; or, without any of these, the InfiniBand ports that the end may open.
func rails(ctx context.Context, e *End, want []string) (out []rail, err error) {
	list, err := links(ctx, e)
	if err != nil {
		return nil, err
	}
	var others netip.Addr // the address of the pod's own network
	for _, l := range list {
		if len(want) > 0 && !slices.Contains(want, l.IfName) ||
			len(want) == 0 && !ours.MatchString(l.IfName) && l.LinkType != "infiniband" {
			if a := l.addr().Addr(); a.IsValid() && l.IfName != "lo" && !others.IsValid() {
				others = a
			}
			continue
		}
		r := rail{end: e.Name, name: l.IfName, hwaddr: l.Address, index: -1, addr: l.addr(), pkey: l.partition()}
		r.verbs(ctx, e)
		out = append(out, r)
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool {
		return slices.ContainsFunc(out, func(r rail) bool { return r.name == w })
	})
	if len(missing) > 0 || len(out) == 0 {
		bare, err := bareRails(ctx, e, missing)
		if err != nil {
			return nil, err
		}
		if len(bare) > 0 && !others.IsValid() && len(out) == 0 {
			return nil, fmt.Errorf("%s has RDMA devices (%s), and no interface with an address: the two sides of "+
				"perftest find each other over TCP; see %s", e.Name, names(bare), e.doctor())
		}
		out = append(out, bare...)
	}
	if len(out) == 0 {
		return nil, noRail(ctx, e)
	}
	if len(out) > maxRails {
		return nil, fmt.Errorf("%s has %d rails; name up to %d with --interfaces", e.Name, len(out), maxRails)
	}
	for i := range out {
		out[i].meet = others
	}
	return out, nil
}

// bareRails are the ports of an end as rails without an interface: those named, or those of InfiniBand that are Active.
// A RoCE port has its GIDs from the addresses of an interface, so it is of no use without one.
func bareRails(ctx context.Context, e *End, want []string) (out []rail, err error) {
	text, err := e.Run(ctx, "sh", "-c", script, "sh", "")
	var ports []port
	if err == nil {
		_, ports = parse(text)
	}
	for _, p := range ports {
		named := slices.Contains(want, p.name()) || slices.Contains(want, p.hca)
		if !named && (len(want) > 0 || p.layer != infiniband || !p.verbs || p.state != "ACTIVE") {
			continue
		}
		if p.layer != infiniband {
			return nil, fmt.Errorf("%s: %s is a RoCE port without an interface here: its GIDs are the addresses of "+
				"one, so the pod needs a network (k8s.v1.cni.cncf.io/networks), or hostNetwork; see %s", e.Name,
				p.name(),
				e.doctor())
		}
		r := rail{end: e.Name, name: p.name(), bare: true, index: -1, port: p, pkey: p.firstPKey()}
		for _, g := range p.gids {
			if g.index == 0 {
				r.gid, r.index = g.addr, 0
			}
		}
		out = append(out, r)
	}
	for _, w := range want {
		if !slices.ContainsFunc(out, func(r rail) bool { return r.name == w || r.port.hca == w }) {
			return nil, fmt.Errorf("%s has no interface %s, and no port of an RDMA device of that name", e.Name, w)
		}
	}
	if len(out) == 0 && slices.ContainsFunc(ports, func(p port) bool { return p.layer == ethernet && p.verbs }) {
		return nil, fmt.Errorf("%s has RoCE devices and no interface net1, net2, ...: RoCE takes its GIDs from the "+
			"addresses of interfaces, so nothing can be measured; the pod needs a network "+
			"(k8s.v1.cni.cncf.io/networks), or hostNetwork and --interfaces; see %s", e.Name, e.doctor())
	}
	slices.SortFunc(out, func(a, b rail) int { return natural(a.name, b.name) })
	return out, nil
}

// natural compares names so that mlx5_10 comes after mlx5_9.
func natural(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func names(list []rail) string {
	var out []string
	for _, r := range list {
		out = append(out, r.name)
	}
	return strings.Join(out, ", ")
}

// doctor is the command that says why an end has no rail.
func (e *End) doctor() string {
	if e.inside != nil {
		return "fabricctl doctor pod --netns " + e.Name
	}
	return "fabricctl doctor pod " + e.Name
}

// firstPKey is the partition in entry 0, which is what RDMA programs take.
func (p *port) firstPKey() string {
	if k, ok := p.pkeys[0]; ok {
		return k
	}
	return "0xffff"
}

// noRail says what is missing: the interfaces of RDMA devices that are there, or everything.
func noRail(ctx context.Context, e *End) error {
	has := ""
	text, err := e.Run(ctx, "ls", "/sys/class/infiniband")
	if names := strings.Fields(text); err == nil && len(names) > 0 {
		has = "RDMA devices (" + strings.Join(names, ", ") + "), but "
	}
	return fmt.Errorf("%s has %sno rail: no interface net1, net2, ..., no InfiniBand one, and no Active InfiniBand "+
		"port that it may open; name them with --interfaces, and see %s", e.Name, has, e.doctor())
}

// verbs looks for the port behind the interface.
func (r *rail) verbs(ctx context.Context, e *End) {
	if r.bare {
		r.again(ctx, e)
		return
	}
	text, err := e.Run(ctx, "sh", "-c", script, "sh", r.name)
	if err != nil {
		return // no shell in the image: what is left is the IP part
	}
	r.take(parse(text))
}

// again reads the port of a rail without an interface anew.
func (r *rail) again(ctx context.Context, e *End) {
	text, err := e.Run(ctx, "sh", "-c", script, "sh", "")
	if err != nil {
		return
	}
	_, ports := parse(text)
	if i := slices.IndexFunc(ports, func(p port) bool { return p.name() == r.name }); i >= 0 {
		r.port = ports[i]
	}
}

// take takes the port that the interface is on, if it is among these, and its GID there.
func (r *rail) take(pkey string, ports []port) {
	i := slices.IndexFunc(ports, r.isOn)
	if i < 0 {
		return
	}
	r.port = ports[i]
	if pkey != "" {
		r.pkey = pkey
	}
	for _, g := range r.port.gids {
		switch {
		case r.port.layer == infiniband && g.index == 0:
			r.gid, r.index = g.addr, 0
		case r.port.layer == ethernet && g.isOf(r):
			r.gid, r.index = g.addr.Unmap(), g.index
		}
	}
}

// name of the port as perftest, NCCL and UCX write it.
func (p *port) name() string { return fmt.Sprintf("%s:%d", p.hca, p.number) }

// down says what is wrong with the state of the rail's port; empty if it is Active, or there is no port.
func (r *rail) down() string {
	state := r.port.state
	if r.port.hca == "" || state == "" || state == "ACTIVE" {
		return ""
	}
	state = state[:1] + strings.ToLower(state[1:])
	text := fmt.Sprintf("%s: port %s is %s (%s)", r.end, r.port.name(), state, r.port.phys)
	return text + meaning("Port number 1 state is "+state) // as perftest says it
}

// match tells whether two GIDs can reach each other, in words.
func match(a, b *rail) (ok bool, text string) {
	switch {
	case a.port.layer != b.port.layer:
		return false, "one end is " + a.port.layer + ", the other " + b.port.layer
	case a.index < 0 || b.index < 0:
		return false, "no GID for the address: the GID table is empty or has link-local entries only"
	case a.port.layer == infiniband && prefix(a.gid) != prefix(b.gid):
		return false, "subnet prefixes differ: two fabrics"
	case a.port.layer == infiniband && partition(a.pkey) != partition(b.pkey):
		return false, "partitions differ: PKey " + a.pkey + " and " + b.pkey
	case a.port.layer == infiniband && a.limited() && b.limited():
		return false, "both ends are limited members of partition " + a.pkey + ", which do not reach each other: one " +
			"has to be a full member"
	case a.port.layer == infiniband:
		return true, "same subnet prefix"
	}
	return true, fmt.Sprintf("RoCE v2, index %d and %d", a.index, b.index)
}

func prefix(a netip.Addr) [8]byte { b := a.As16(); return [8]byte(b[:8]) }
