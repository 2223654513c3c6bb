package nlmsg

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func collect(b []byte) []Attr {
	var out []Attr
	for a := range Attrs(b) {
		out = append(out, a)
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	tests := map[string]struct {
		build func(*Builder) *Builder
		size  int // with padding
		want  []Attr
	}{
		"empty":       {func(m *Builder) *Builder { return m }, 0, nil},
		"no value":    {func(m *Builder) *Builder { return m.Put(7, nil) }, 4, []Attr{{7, []byte{}}}},
		"byte padded": {func(m *Builder) *Builder { return m.Uint8(1, 9) }, 8, []Attr{{1, []byte{9}}}},
		"half word":   {func(m *Builder) *Builder { return m.Uint16(2, 0x102) }, 8, []Attr{{2, native16(0x102)}}},
		"word": {
			func(m *Builder) *Builder { return m.Uint32(3, 0x1020304) },
			8,
			[]Attr{{3, native32(0x1020304)}},
		},
		"string": {func(m *Builder) *Builder { return m.String(4, "ib0") }, 8, []Attr{{4, []byte("ib0\x00")}}},
		"longer string": {
			func(m *Builder) *Builder { return m.String(4, "ibs108") },
			12,
			[]Attr{{4, []byte("ibs108\x00")}},
		},
		"two": {
			func(m *Builder) *Builder { return m.Uint8(1, 9).Uint8(2, 8) },
			16,
			[]Attr{{1, []byte{9}}, {2, []byte{8}}},
		},
		"nested": {
			func(m *Builder) *Builder { return m.Nest(18, func(m *Builder) { m.Uint8(1, 9) }) }, 12,
			[]Attr{{18, append(append(native16(5), native16(1)...), 9, 0, 0, 0)}},
		},
		"empty nest": {func(m *Builder) *Builder { return m.Nest(18, func(*Builder) {}) }, 4, []Attr{{18, []byte{}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := tt.build(Body(nil)).Bytes()
			if len(b) != tt.size {
				t.Errorf("%d bytes, want %d", len(b), tt.size)
			}
			if diff := cmp.Diff(tt.want, collect(b)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func native16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
func native32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func TestNestIsFlagged(t *testing.T) {
	b := Body([]byte("head")).Nest(18, func(m *Builder) { m.Nest(2, func(m *Builder) { m.Uint16(1, 5) }) }).Bytes()
	if got := binary.NativeEndian.Uint16(b[6:]); got != 18|unix.NLA_F_NESTED {
		t.Errorf("type %#x without NLA_F_NESTED", got)
	}
	outer := collect(b[4:])
	if len(outer) != 1 || outer[0].Type != 18 {
		t.Fatalf("outer: %v", outer)
	}
	middle := collect(outer[0].Value)
	if len(middle) != 1 || middle[0].Type != 2 {
		t.Fatalf("middle: %v", middle)
	}
	if inner := collect(middle[0].Value); len(inner) != 1 || inner[0].Uint16() != 5 {
		t.Errorf("inner: %v", inner)
	}
}

// Body must not write into the header's spare capacity: two messages are built from one.
func TestBodyCopiesItsHeader(t *testing.T) {
	header := append(make([]byte, 0, 64), 1, 2, 3, 4)
	a := Body(header).Uint32(1, 1).Bytes()
	b := Body(header).Uint32(2, 2).Bytes()
	if bytes.Equal(a, b) {
		t.Errorf("both are %x", a)
	}
}

func TestValues(t *testing.T) {
	short := Attr{Value: nil}
	if short.Uint8() != 0 || short.Uint16() != 0 || short.Uint32() != 0 || short.Uint64() != 0 ||
		short.String() != "" ||
		len(short.Uint32s()) != 0 {
		t.Error("a missing value is not zero")
	}
	cut := Attr{Value: []byte{1}}
	if cut.Uint16() != 0 || cut.Uint32() != 0 || cut.Uint64() != 0 {
		t.Error("a value cut short is not zero")
	}
	long := Attr{Value: binary.NativeEndian.AppendUint64(nil, 1<<40|7)}
	if long.Uint64() != 1<<40|7 {
		t.Errorf("Uint64: %d", long.Uint64())
	}
	words := Attr{Value: append(append(native32(5), native32(6)...), 1, 2)}
	if diff := cmp.Diff([]uint32{5, 6}, words.Uint32s()); diff != "" {
		t.Error(diff)
	}
	if s := (Attr{Value: []byte("ab\x00\x00")}).String(); s != "ab" {
		t.Errorf("String: %q", s)
	}
}

func TestTruncated(t *testing.T) {
	whole := Body(nil).Uint32(1, 1).String(2, "name").Bytes()
	const unpadded = 8 + 4 + len("name\x00")
	for n := range unpadded {
		if got := collect(whole[:n]); len(got) > 1 || n < 8 && len(got) > 0 {
			t.Errorf("%d of %d bytes: %v", n, unpadded, got)
		}
	}
	for name, b := range map[string][]byte{
		"length 0":        append(native16(0), native16(1)...),
		"length 3":        append(native16(3), native16(1)...),
		"beyond the end":  append(append(native16(9), native16(1)...), 0, 0, 0, 0),
		"only a length":   native16(4),
		"one byte":        {1},
		"largest length":  append(append(native16(0xffff), native16(1)...), make([]byte, 64)...),
		"length of bytes": {0xff},
	} {
		if got := collect(b); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	// The last attribute may lack its padding, as the kernel's own parser has it.
	if got := collect(whole[:unpadded]); len(got) != 2 || got[1].String() != "name" {
		t.Errorf("without padding: %v", got)
	}
}

// Nothing that arrives may panic, whatever it is taken for.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(Body(nil).Nest(1, func(m *Builder) { m.String(2, "x") }).Bytes(), uint16(unix.NLM_F_ACK_TLVS))
	f.Add(message(unix.NLMSG_ERROR, 0, 1, append(native32(0xffffffef), make([]byte, 16)...)), uint16(unix.NLM_F_CAPPED))
	f.Add(message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 1, native32(0)), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, flags uint16) {
		total := 0
		for a := range Attrs(b) {
			total += unix.SizeofNlAttr + len(a.Value)
			_, _, _, _, _, _ = a.Uint8(), a.Uint16(), a.Uint32(), a.Uint64(), a.String(), a.Uint32s()
			for range Attrs(a.Value) {
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes out of %d", total, len(b))
		}
		_ = decodeError(b, flags)
		x := exchange{seq: 1, dump: flags&1 != 0, ack: flags&2 != 0}
		_ = x.take(b)
	})
}
