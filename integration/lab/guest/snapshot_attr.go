package guest

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attrMap holds the attributes of a netlink message by type.
type attrMap map[uint16][]byte

func parseAttrs(data []byte) (attrMap, error) {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, fmt.Errorf("parse attributes: %w", err)
	}
	m := make(attrMap)
	for _, a := range list {
		m[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
	}
	return m, nil
}

func dumpRaw(get, reply int, header func() nl.NetlinkRequestData) ([][]byte, error) {
	return dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(get, unix.NLM_F_DUMP)
		req.AddData(header())
		return req.Execute(unix.NETLINK_ROUTE, uint16(reply))
	})
}

func u32(a attrMap, kind uint16) uint32 {
	if v := a[kind]; len(v) >= 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}

func text(a attrMap, kind uint16) string {
	if len(a[kind]) == 0 {
		return ""
	}
	return nl.BytesToString(a[kind])
}

// form says how to write an attribute; a nil form leaves it out.
type form func(value []byte) string

func ipForm(v []byte) string   { return net.IP(v).String() }
func nameForm(v []byte) string { return nl.BytesToString(v) }
func hexForm(v []byte) string  { return fmt.Sprintf("%x", v) }
func u32Form(v []byte) string  { return fmt.Sprint(binary.NativeEndian.Uint32(v)) }

// field is an attribute with a known name and form.
type field struct {
	name string
	form form
}

// describe writes all attributes in the order of their numbers; those without a field as hexadecimal, so that what
// this program does not know is compared as well.
func describe(a attrMap, fields map[uint16]field) string {
	kinds := make([]int, 0, len(a))
	for kind := range a {
		kinds = append(kinds, int(kind))
	}
	slices.Sort(kinds)
	var b strings.Builder
	for _, kind := range kinds {
		f, known := fields[uint16(kind)]
		if !known {
			f = field{fmt.Sprint("attr", kind), hexForm}
		}
		if f.form != nil {
			fmt.Fprintf(&b, " %s %s", f.name, f.form(a[uint16(kind)]))
		}
	}
	return b.String()
}
