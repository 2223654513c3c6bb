package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rail is one interface of an end, with its RDMA device if it has one.
type rail struct {
	name   string
	addr   netip.Prefix
	hca    string
	layer  string // InfiniBand, Ethernet
	rateGb float64
	gid    netip.Addr // InfiniBand: entry 0; RoCE: the v2 entry of the address
	index  int        // of that entry; -1: none
}

// notThere is what runtimes say of a program that an image lacks, and busybox of an option that it does not know.
var notThere = regexp.MustCompile(
	`executable file not found|no such file or directory|(unrecognized|invalid) option|Usage: ip`,
)

var ours = regexp.MustCompile(`^net\d+$`)

// rails finds the rails of an end: the interfaces named, or net1, net2, ..., as Multus calls them, and InfiniBand ones.
func rails(ctx context.Context, e *End, want []string) (out []rail, err error) {
	text, err := e.Run(ctx, "ip", "-j", "address", "show")
	if err != nil && notThere.MatchString(err.Error()) {
		return nil, fmt.Errorf("%w; the image needs iproute2 (busybox has another ip), ping and perftest", err)
	}
	if err != nil {
		return nil, err
	}
	var list []struct {
		IfName   string `json:"ifname"`
		LinkType string `json:"link_type"`
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
		r := rail{name: l.IfName, index: -1}
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
		return nil, fmt.Errorf(
			"%s has no rail: no interface net1, net2, ... and no InfiniBand one; name them with --interfaces, and "+
				"see fabricctl doctor pod",
			e.Name,
		)
	}
	return out, nil
}

// script prints device, link layer, rate and GID table of an interface's RDMA device. $1 is the interface.
const script = `d=$(ls "/sys/class/net/$1/device/infiniband" 2>/dev/null | head -n 1); [ -n "$d" ] || exit 0
cd "/sys/class/infiniband/$d/ports/1" || exit 0
echo "hca $d"; echo "layer $(cat link_layer)"; echo "rate $(cat rate)"
for g in gids/*; do n=${g##*/}; a=$(cat "$g" 2>/dev/null); case $a in *:0000:0000:0000:0000|'') continue;; esac
	echo "gid $n $a $(cat "gid_attrs/types/$n" 2>/dev/null)"; done`

// verbs looks for the RDMA device. A network namespace alone has no sysfs of its own: then there is none.
func (r *rail) verbs(ctx context.Context, e *End) {
	if e.netns != nil {
		return
	}
	text, err := e.Run(ctx, "sh", "-c", script, "sh", r.name)
	if err != nil {
		return // no shell in the image: what is left is the IP part
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "hca":
			r.hca = f[1]
		case "layer":
			r.layer = f[1]
		case "rate":
			r.rateGb, _ = strconv.ParseFloat(f[1], 64)
		case "gid":
			r.take(f[1:])
		}
	}
}

// take looks at one entry of the GID table: index, GID, type.
func (r *rail) take(f []string) {
	if len(f) < 2 {
		return
	}
	n, err := strconv.Atoi(f[0])
	a, aerr := netip.ParseAddr(f[1])
	if err != nil || aerr != nil {
		return
	}
	switch {
	case r.layer == "InfiniBand" && n == 0:
		r.gid, r.index = a, 0
	case r.layer == "Ethernet" && strings.HasSuffix(strings.Join(f[2:], " "), "v2") && a.Unmap() == r.addr.Addr():
		r.gid, r.index = a.Unmap(), n
	}
}

// match tells whether two GIDs can reach each other, in words.
func match(a, b *rail) (ok bool, text string) {
	switch {
	case a.layer != b.layer:
		return false, "one end is " + a.layer + ", the other " + b.layer
	case a.index < 0 || b.index < 0:
		return false, "no GID for the address: the GID table is empty or has link-local entries only"
	case a.layer == "InfiniBand" && prefix(a.gid) != prefix(b.gid):
		return false, "subnet prefixes differ: two fabrics"
	case a.layer == "InfiniBand":
		return true, "same subnet prefix"
	}
	return true, fmt.Sprintf("RoCE v2, index %d and %d", a.index, b.index)
}

func prefix(a netip.Addr) [8]byte { b := a.As16(); return [8]byte(b[:8]) }
