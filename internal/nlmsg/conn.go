// Package nlmsg is the small I/O core under internal/link and internal/rdma: one netlink socket in one network
// namespace, requests answered by acknowledgement or dump, and the attribute encoding.
package nlmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Error is the kernel's refusal of a request.
type Error struct {
	Errno  unix.Errno
	Reason string // the kernel's own words (NLMSGERR_ATTR_MSG), often empty
}

func (e *Error) Error() string {
	if e.Reason != "" {
		return e.Errno.Error() + " (" + e.Reason + ")"
	}
	return e.Errno.Error()
}

// Unwrap gives the errno, so that errors.Is(err, unix.EEXIST) works.
func (e *Error) Unwrap() error { return e.Errno }

// Conn is a netlink socket. It stays in the network namespace of the thread that dialled it, wherever it is used later.
// It is not safe for concurrent use.
type Conn struct {
	fd  int
	seq uint32
	buf []byte
}

// Replies larger than this are cut by the kernel (MSG_TRUNC); dumps are filled up to it, 32 KiB at most
// (net/netlink/af_netlink.c, netlink_dump).
const bufSize = 64 << 10

// timeout bounds the wait for an answer. A netns move answers after its grace periods, well under a second; a device
// whose driver takes longer than this is stuck.
const timeout = 60 * time.Second

// Dial opens a socket of the given protocol (unix.NETLINK_ROUTE, unix.NETLINK_RDMA) in the calling thread's namespace.
func Dial(protocol int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket %d: %w", protocol, err)
	}
	// Both are refinements that old kernels lack: the reason in words, and dumps filtered by the kernel.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	tv := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set netlink timeout: %w", err)
	}
	return &Conn{fd: fd}, nil
}

// Close releases the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Do sends one request and returns the payloads it is answered with. An ack without payload gives none.
func (c *Conn) Do(typ uint16, flags uint16, body []byte) ([][]byte, error) {
	return c.exchange(typ, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, body)
}

// Get sends one request that is answered by exactly one payload and no ack, which saves a system call.
func (c *Conn) Get(typ uint16, body []byte) ([]byte, error) {
	r, err := c.exchange(typ, unix.NLM_F_REQUEST, body)
	if err != nil {
		return nil, err
	}
	if len(r) != 1 {
		return nil, fmt.Errorf("netlink request %d: %d answers, want 1", typ, len(r))
	}
	return r[0], nil
}

// patience is how long a dump is taken again and again. Others may change what is in it without end, but only one
// change at a time, and between two of them a dump fits in sooner or later.
const patience = 5 * time.Second

// Dump lists. The kernel reports when the list changed underneath (NLM_F_DUMP_INTR): such a dump is taken again.
func (c *Conn) Dump(typ uint16, body []byte) ([][]byte, error) {
	for end := time.Now().Add(patience); ; {
		r, err := c.exchange(typ, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, body)
		if !errors.Is(err, errInterrupted) && !errors.Is(err, unix.EINTR) {
			return r, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("netlink dump %d: list kept changing for %s: %w", typ, patience, unix.EAGAIN)
		}
	}
}

var errInterrupted = errors.New("dump interrupted")

func (c *Conn) exchange(typ, flags uint16, body []byte) ([][]byte, error) {
	c.seq++
	msg := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(msg[0:], uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], typ)
	binary.NativeEndian.PutUint16(msg[6:], flags)
	binary.NativeEndian.PutUint32(msg[8:], c.seq)
	msg = append(msg, body...)
	if err := retryEINTR(func() error {
		return unix.Sendto(c.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}); err != nil {
		return nil, fmt.Errorf("send netlink request %d: %w", typ, err)
	}
	x := exchange{seq: c.seq, dump: flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP, ack: flags&unix.NLM_F_ACK != 0}
	for !x.done {
		b, err := c.receive()
		if err != nil {
			return nil, fmt.Errorf("receive answer to netlink request %d: %w", typ, err)
		}
		if err := x.take(b); err != nil {
			return nil, err
		}
	}
	if x.interrupted {
		return nil, errInterrupted
	}
	return x.out, nil
}

func (c *Conn) receive() ([]byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, bufSize)
	}
	var n, flags int
	var from unix.Sockaddr
	err := retryEINTR(func() (err error) {
		n, _, flags, from, err = unix.Recvmsg(c.fd, c.buf, nil, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_TRUNC != 0 {
		return nil, fmt.Errorf("message longer than %d bytes: %w", bufSize, unix.EMSGSIZE)
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return nil, nil // not from the kernel: ignored
	}
	return c.buf[:n], nil
}

// exchange collects the answers to one request.
type exchange struct {
	seq                          uint32
	dump, ack, done, interrupted bool
	out                          [][]byte
}

func (x *exchange) take(b []byte) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return fmt.Errorf("netlink answer: length %d of %d bytes: %w", size, len(b), unix.EBADMSG)
		}
		typ, flags, seq := binary.NativeEndian.Uint16(
			b[4:],
		), binary.NativeEndian.Uint16(
			b[6:],
		), binary.NativeEndian.Uint32(
			b[8:],
		)
		payload := b[unix.NLMSG_HDRLEN:size]
		b = b[min(align(size), len(b)):]
		if seq != x.seq {
			continue // the rest of an exchange that failed earlier
		}
		x.interrupted = x.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		switch typ {
		case unix.NLMSG_ERROR:
			x.done = true
			return decodeError(payload, flags)
		case unix.NLMSG_DONE:
			x.done = true
			if len(payload) >= 4 {
				if e := int32(binary.NativeEndian.Uint32(payload)); e < 0 {
					return &Error{Errno: unix.Errno(-e)}
				}
			}
			return nil
		default:
			x.out = append(x.out, append([]byte(nil), payload...))
			x.done = !x.dump && !x.ack
		}
	}
	return nil
}

// decodeError reads struct nlmsgerr and its extended ack (include/uapi/linux/netlink.h). Errno 0 is a plain ack.
func decodeError(payload []byte, flags uint16) error {
	if len(payload) < 4+unix.NLMSG_HDRLEN {
		return fmt.Errorf("netlink error of %d bytes: %w", len(payload), unix.EBADMSG)
	}
	e := -int32(binary.NativeEndian.Uint32(payload))
	if e == 0 {
		return nil
	}
	err := &Error{Errno: unix.Errno(e)}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		off := 4 + unix.NLMSG_HDRLEN
		if flags&unix.NLM_F_CAPPED == 0 { // the request is echoed in full
			off = 4 + align(int(binary.NativeEndian.Uint32(payload[4:])))
		}
		if off <= len(payload) {
			for a := range Attrs(payload[off:]) {
				if a.Type == unix.NLMSGERR_ATTR_MSG {
					err.Reason = a.String()
				}
			}
		}
	}
	return err
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func align(n int) int { return (n + 3) &^ 3 }
