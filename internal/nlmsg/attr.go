package nlmsg

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Attr is one decoded attribute. Value aliases the message.
type Attr struct {
	Type  uint16
	Value []byte
}

// Attrs walks the attributes in b, and stops at the first that does not fit.
func Attrs(b []byte) iter.Seq[Attr] {
	return func(yield func(Attr) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(Attr{typ, b[unix.SizeofNlAttr:size]}) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// String is the value without its terminating zero.
func (a Attr) String() string {
	v := a.Value
	for len(v) > 0 && v[len(v)-1] == 0 {
		v = v[:len(v)-1]
	}
	return string(v)
}

// Uint8 is the value, or 0 when it is too short.
func (a Attr) Uint8() uint8 {
	if len(a.Value) < 1 {
		return 0
	}
	return a.Value[0]
}

// Uint16 is the value in host order, or 0 when it is too short.
func (a Attr) Uint16() uint16 {
	if len(a.Value) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(a.Value)
}

// Uint32 is the value in host order, or 0 when it is too short.
func (a Attr) Uint32() uint32 {
	if len(a.Value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.Value)
}

// Uint64 is the value in host order, or 0 when it is too short.
func (a Attr) Uint64() uint64 {
	if len(a.Value) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(a.Value)
}

// Uint32s reads an array of host-order words.
func (a Attr) Uint32s() []uint32 {
	out := make([]uint32, len(a.Value)/4)
	for i := range out {
		out[i] = binary.NativeEndian.Uint32(a.Value[4*i:])
	}
	return out
}

// Builder appends attributes to a message body.
type Builder struct{ b []byte }

// Body starts a message with its fixed header.
func Body(header []byte) *Builder { return &Builder{append([]byte(nil), header...)} }

// Bytes is the message body so far.
func (m *Builder) Bytes() []byte { return m.b }

// Put appends an attribute.
func (m *Builder) Put(typ uint16, v []byte) *Builder {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(unix.SizeofNlAttr+len(v)))
	m.b = binary.NativeEndian.AppendUint16(m.b, typ)
	m.b = append(m.b, v...)
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
	return m
}

// String appends a zero-terminated string.
func (m *Builder) String(typ uint16, s string) *Builder { return m.Put(typ, append([]byte(s), 0)) }

// Uint8 appends a byte.
func (m *Builder) Uint8(typ uint16, v uint8) *Builder { return m.Put(typ, []byte{v}) }

// Uint16 appends a half word in host order.
func (m *Builder) Uint16(typ uint16, v uint16) *Builder {
	return m.Put(typ, binary.NativeEndian.AppendUint16(nil, v))
}

// Uint32 appends a word in host order.
func (m *Builder) Uint32(typ uint16, v uint32) *Builder {
	return m.Put(typ, binary.NativeEndian.AppendUint32(nil, v))
}

// Nest appends an attribute whose value is the attributes that f appends. It is marked as nested: strict validation
// asks for it, the older kinds do not mind (lib/nlattr.c).
func (m *Builder) Nest(typ uint16, f func(*Builder)) *Builder {
	start := len(m.b)
	m.b = append(m.b, 0, 0, 0, 0)
	f(m)
	binary.NativeEndian.PutUint16(m.b[start:], uint16(len(m.b)-start))
	binary.NativeEndian.PutUint16(m.b[start+2:], typ|unix.NLA_F_NESTED)
	return m
}
