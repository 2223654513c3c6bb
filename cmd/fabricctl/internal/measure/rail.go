package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// rail is one interface of an end, with the port of an RDMA device if it has one.
type rail struct {
	end    string // whose it is
	name   string
	addr   netip.Prefix
	hwaddr string
	pkey   string // partition of an IPoIB interface, 0x8001
	port   port
	gid    netip.Addr // InfiniBand: entry 0; RoCE: the v2 entry of the address
	index  int        // of that entry; -1: none
}

// notThere is what runtimes say of a program that an image lacks, and busybox of an option that it does not know.
var notThere = regexp.MustCompile(
	`executable file not found|[Nn]o such file or directory|(unrecognized|invalid) option|Usage: ip`,
)

var ours = regexp.MustCompile(`^net\d+$`)

// rails finds the rails of an end: the interfaces named, or net1, net2, ..., as Multus calls them, and InfiniBand ones.
func rails(ctx context.Context, e *End, want []string) (out []rail, err error) {
	text, err := e.Run(ctx, "ip", "-j", "address", "show")
	if err != nil && notThere.MatchString(err.Error()) && !errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w; the image needs iproute2 (busybox has another ip), ping and perftest", err)
	}
	if err != nil {
		return nil, err
	}
	var list []struct {
		IfName   string `json:"ifname"`
		LinkType string `json:"link_type"`
		Address  string `json:"address"`
		AddrInfo []struct {
			Local  string `json:"local"`
			Prefix int    `json:"prefixlen"`
			Scope  string `json:"scope"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s: ip -j address show: %w", e.Name, err)
	}
	for _, l := range list {
		if len(want) > 0 && !slices.Contains(want, l.IfName) ||
			len(want) == 0 && !ours.MatchString(l.IfName) && l.LinkType != "infiniband" {
			continue
		}
		r := rail{end: e.Name, name: l.IfName, hwaddr: l.Address, index: -1}
		for _, a := range l.AddrInfo {
			p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", a.Local, a.Prefix))
			if err == nil && a.Scope == "global" && (!r.addr.IsValid() || p.Addr().Is4() && !r.addr.Addr().Is4()) {
				r.addr = p
			}
		}
		r.verbs(ctx, e)
		out = append(out, r)
	}
	for _, w := range want {
		if !slices.ContainsFunc(out, func(r rail) bool { return r.name == w }) {
			return nil, fmt.Errorf("%s has no interface %s", e.Name, w)
		}
	}
	if len(out) == 0 {
		return nil, noRail(ctx, e)
	}
	return out, nil
}

// noRail says what is missing: the interfaces of RDMA devices that are there, or everything.
func noRail(ctx context.Context, e *End) error {
	has := ""
	text, err := e.Run(ctx, "ls", "/sys/class/infiniband")
	if names := strings.Fields(text); err == nil && len(names) > 0 {
		has = "RDMA devices (" + strings.Join(names, ", ") + "), but "
	}
	doctor := "fabricctl doctor pod --pod"
	if e.inside != nil {
		doctor = "fabricctl doctor pod --netns " + e.Name
	}
	return fmt.Errorf("%s has %sno rail: no interface net1, net2, ... and no InfiniBand one; name them with "+
		"--interfaces, and see %s", e.Name, has, doctor)
}

// verbs looks for the port behind the interface.
func (r *rail) verbs(ctx context.Context, e *End) {
	text, err := e.Run(ctx, "sh", "-c", script, "sh", r.name)
	if err != nil {
		return // no shell in the image: what is left is the IP part
	}
	r.take(parse(text))
}

// take takes the port that the interface is on, if it is among these, and its GID there.
func (r *rail) take(pkey string, ports []port) {
	i := slices.IndexFunc(ports, r.isOn)
	if i < 0 {
		return
	}
	r.pkey, r.port = pkey, ports[i]
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

// down says what is wrong with the state of the rail's port; empty if it is Active, or there is none.
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
