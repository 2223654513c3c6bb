package nlmsg

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// message is one netlink message with its header, padded.
func message(typ, flags uint16, seq uint32, payload []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(binary.NativeEndian.AppendUint32(b, 0), payload...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// nlerr is struct nlmsgerr: the errno, the request it is about (only its header when capped), extended ack attributes.
func nlerr(errno unix.Errno, request []byte, attrs []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
	return append(append(b, request...), attrs...)
}

func TestDecodeError(t *testing.T) {
	header := message(unix.RTM_NEWLINK, 0, 1, nil)
	echoed := message(unix.RTM_NEWLINK, 0, 1, []byte("the request"))
	reason := Body(nil).Uint32(unix.NLMSGERR_ATTR_OFFS, 20).String(unix.NLMSGERR_ATTR_MSG, "name in use").Bytes()
	tests := map[string]struct {
		payload []byte
		flags   uint16
		want    string
		errno   unix.Errno
	}{
		"ack":              {nlerr(0, header, nil), unix.NLM_F_CAPPED, "", 0},
		"ack with warning": {nlerr(0, header, reason), unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS, "", 0},
		"plain":            {nlerr(unix.EEXIST, echoed, nil), 0, "file exists", unix.EEXIST},
		"capped":           {nlerr(unix.EEXIST, header, nil), unix.NLM_F_CAPPED, "file exists", unix.EEXIST},
		"reason, capped": {
			nlerr(unix.EEXIST, header, reason),
			unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS,
			"file exists (name in use)",
			unix.EEXIST,
		},
		"reason, echoed": {
			nlerr(unix.EEXIST, echoed, reason),
			unix.NLM_F_ACK_TLVS,
			"file exists (name in use)",
			unix.EEXIST,
		},
		"attributes, no flag": {nlerr(unix.EEXIST, header, reason), unix.NLM_F_CAPPED, "file exists", unix.EEXIST},
		"flag, no attributes": {
			nlerr(unix.EPERM, header, nil),
			unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS,
			"operation not permitted",
			unix.EPERM,
		},
		"echo beyond the end": {
			nlerr(unix.EPERM, message(1, 0, 1, make([]byte, 900))[:16], nil),
			unix.NLM_F_ACK_TLVS,
			"operation not permitted",
			unix.EPERM,
		},
		"too short for a errno": {[]byte{1, 2}, 0, "netlink error of 2 bytes: bad message", unix.EBADMSG},
		"no request":            {native32(0), 0, "netlink error of 4 bytes: bad message", unix.EBADMSG},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := decodeError(tt.payload, tt.flags)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || err.Error() != tt.want || !errors.Is(err, tt.errno) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestTake(t *testing.T) {
	one := []byte("one.")
	type state struct {
		Done, Interrupted bool
		Out               []string
	}
	tests := map[string]struct {
		dump, ack bool
		in        []byte
		want      state
		err       unix.Errno
	}{
		"answer":            {false, false, message(16, 0, 1, one), state{true, false, []string{"one."}}, 0},
		"answer before ack": {false, true, message(16, 0, 1, one), state{false, false, []string{"one."}}, 0},
		"part of a dump": {
			true, false, message(16, unix.NLM_F_MULTI, 1, one), state{false, false, []string{"one."}}, 0,
		},
		"end of a dump": {
			true,
			false,
			slices.Concat(message(16, 2, 1, one), message(unix.NLMSG_DONE, 2, 1, native32(0))),
			state{true, false, []string{"one."}},
			0,
		},
		"interrupted": {
			true,
			false,
			slices.Concat(message(16, unix.NLM_F_DUMP_INTR, 1, one), message(unix.NLMSG_DONE, 2, 1, nil)),
			state{true, true, []string{"one."}},
			0,
		},
		"interrupted, at end": {
			true,
			false,
			message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 1, native32(0)),
			state{true, true, nil},
			0,
		},
		"error ends a dump": {
			true,
			false,
			message(unix.NLMSG_DONE, 2, 1, native32(uint32(0x100000000-int64(unix.EMSGSIZE)))),
			state{true, false, nil},
			unix.EMSGSIZE,
		},
		"another's answer": {false, false, message(16, 0, 9, one), state{}, 0},
		"another's error": {
			false,
			false,
			message(unix.NLMSG_ERROR, 0, 9, nlerr(unix.EPERM, message(1, 0, 9, nil), nil)),
			state{},
			0,
		},
		"shorter than told": {false, false, message(16, 0, 1, one)[:18], state{}, unix.EBADMSG},
		"length below header": {
			false,
			false,
			append(native32(3), message(16, 0, 1, one)[4:]...),
			state{},
			unix.EBADMSG,
		},
		"nothing":            {false, false, nil, state{}, 0},
		"less than a header": {false, false, []byte{1, 2, 3}, state{}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := exchange{seq: 1, dump: tt.dump, ack: tt.ack}
			err := x.take(tt.in)
			if tt.err == 0 && err != nil || tt.err != 0 && !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			got := state{x.done, x.interrupted, nil}
			for _, o := range x.out {
				got.Out = append(got.Out, string(o))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A received buffer is used again for the next message: what was taken out of it must stay.
func TestTakeKeepsACopy(t *testing.T) {
	b := message(16, 0, 1, []byte("one."))
	x := exchange{seq: 1}
	if err := x.take(b); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if string(x.out[0]) != "one." {
		t.Errorf("got %q", x.out[0])
	}
}

// ifinfo is struct ifinfomsg for an index.
func ifinfo(index uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], index)
	return b
}

func TestKernel(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	name := func(b []byte) string {
		for a := range Attrs(b[unix.SizeofIfInfomsg:]) {
			if a.Type == unix.IFLA_IFNAME {
				return a.String()
			}
		}
		return ""
	}
	b, err := c.Get(unix.RTM_GETLINK, ifinfo(1))
	if err != nil {
		t.Fatal(err)
	}
	if name(b) != "lo" {
		t.Errorf("index 1 is %q", name(b))
	}
	all, err := c.Dump(unix.RTM_GETLINK, ifinfo(0))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(b []byte) bool { return name(b) == "lo" }) {
		t.Errorf("no lo among %d links", len(all))
	}
	// A refusal carries the errno and the kernel's words, and the next request is not disturbed by it.
	_, err = c.Get(unix.RTM_GETLINK, ifinfo(1<<30))
	var refused *Error
	if !errors.As(err, &refused) || refused.Errno != unix.ENODEV {
		t.Errorf("no such index: %v", err)
	}
	_, err = c.Do(unix.RTM_GETLINK, 0, Body(ifinfo(0)).String(unix.IFLA_IFNAME, "a name longer than 15 bytes").Bytes())
	if !errors.As(err, &refused) || refused.Reason == "" {
		t.Errorf("no reason in %v", err)
	}
	r, err := c.Do(unix.RTM_GETLINK, 0, ifinfo(1))
	if err != nil || len(r) != 1 || name(r[0]) != "lo" {
		t.Errorf("with an ack: %d answers, %v", len(r), err)
	}
}

func TestDialUnknownProtocol(t *testing.T) {
	if c, err := Dial(31); !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("connection %v, error %v", c, err)
	}
}

func TestClosed(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(c.fd))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(c.fd)); err == nil && after == before {
		t.Errorf("still open: %s", after)
	}
}
