package tcp

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	tcpOutLimit  = 256 << 10 // the most bytes in output, beside the rest of one direct body
	tcpWriteSoon = 32 << 10  // so many bytes are written without waiting for Flush
)

// output is the sending half of a link.
type output struct {
	buf     []byte // encoded frames
	sent    int    // bytes of buf that the kernel has taken
	blocked bool   // the socket has taken less than it was given; in Wire.blocked
	dirty   bool   // in Wire.dirty
}

func (o *output) pending() int { return len(o.buf) - o.sent }

// reserve makes room for n more bytes. It returns false if they would exceed tcpOutLimit.
func (o *output) reserve(n int) bool {
	if o.pending()+n > tcpOutLimit {
		return false
	}
	if o.sent > 0 && cap(o.buf)-len(o.buf) < n {
		o.buf = o.buf[:copy(o.buf, o.buf[o.sent:])]
		o.sent = 0
	}
	return true
}

// advance records that the kernel has taken n bytes.
func (o *output) advance(n int) {
	o.sent += n
	if o.sent == len(o.buf) {
		o.buf, o.sent = o.buf[:0], 0
		if cap(o.buf) > 2*tcpOutLimit {
			o.buf = nil // it held what was left of a body
		}
	}
}

// Send takes a packet; see link. Small packets are collected until flush, so that a burst costs one
// system call.
func (l *link) Send(h *wire.Header, head, body []byte) bool {
	if !l.hasRoom(len(head), len(body)) {
		return false
	}
	l.w.idle = 0
	if l.sealed != nil {
		return l.sendSealed(h, head, body)
	}
	o := &l.out
	before := len(o.buf)
	o.buf = append(appendFrameHeader(o.buf, h), head...)
	if len(body) >= DirectFrom {
		return l.writeDirect(h.Op, body, len(o.buf)-before)
	}
	o.buf = append(o.buf, body...)
	switch {
	case o.blocked:
	case o.pending() >= tcpWriteSoon:
		l.write()
	case !o.dirty:
		o.dirty = true
		l.w.dirty = append(l.w.dirty, l)
	}
	return true
}

// HasRoom implements wire.Link.
func (l *link) HasRoom(n int) bool { return l.hasRoom(0, n) }

// hasRoom makes room for a packet, if it can.
func (l *link) hasRoom(head, body int) bool {
	if !l.up {
		return l.sendLater()
	}
	n := maxFrameHeader + head + body
	if l.sealed != nil {
		n += l.sealed.waiting()
	} else if body >= DirectFrom {
		if n -= body; l.out.blocked {
			return false
		}
	}
	return l.out.reserve(n) || l.makeRoom(n)
}

// sendLater is Send on a link that is not up: the first call connects it.
func (l *link) sendLater() bool {
	if !l.gone && !l.asked {
		l.asked = true
		l.w.conn.Connect(l.peer)
	}
	return false
}

// makeRoom writes output until there is room for n more bytes, if it can.
func (l *link) makeRoom(n int) bool {
	if l.out.blocked {
		return false // Poll writes when it can
	}
	l.write()
	return l.up && l.out.reserve(n)
}

// write gives output to the kernel until all is sent or the socket takes no more.
func (l *link) write() {
	o := &l.out
	for o.pending() > 0 || l.sealed != nil && l.sealPlain() {
		want := o.pending()
		n, e := rawSend(l.fd, o.buf[o.sent:])
		if e == unix.EINTR {
			continue
		}
		if !l.wrote(n, e) || n < want {
			return
		}
	}
	l.unblock()
}

// writeDirect writes the output, which ends with header bytes of the packet, and then its body, and
// copies only what the socket has not taken. Where the body of a response is gone it takes the
// packet back and returns false, as if there were no room: the device looks at that memory again.
// The link ends if a part of the packet has left, or it is another packet.
func (l *link) writeDirect(op wire.Opcode, body []byte, header int) bool {
	o := &l.out
	pending := o.pending()
	n, e := l.vec.send(l.fd, o.buf[o.sent:], body)
	switch e {
	case 0, unix.EFAULT:
	case unix.EINTR, unix.EAGAIN:
		n, e = 0, 0
	default:
		l.wrote(0, e)
		return true
	}
	n = max(n, 0)
	o.advance(min(n, pending))
	rest := body[max(n-pending, 0):]
	switch {
	case len(rest) == 0:
	case e == 0 && fault.Guard(func() { o.buf = append(o.buf, rest...) }):
		l.block()
	case n > pending-header || op != wire.OpReadResp:
		l.wrote(0, unix.EFAULT)
	default:
		o.buf = o.buf[:len(o.buf)-header]
		l.w.notif.Wake() // the device looks again, and no room will wake it
		return false
	}
	return true
}

// wrote handles the result of a write. It returns false if the socket takes no more, for now or for
// ever.
func (l *link) wrote(n int, e unix.Errno) bool {
	switch e {
	case 0:
		want := l.out.pending()
		l.out.advance(n)
		if n < want {
			l.block()
		}
		return true
	case unix.EAGAIN:
		l.block()
	default:
		// The peer's last packets may still be in the socket: receive ends the link after them.
		l.lost = os.NewSyscallError("send", e)
		l.out.buf, l.out.sent = nil, 0
		l.up = false
		l.unblock()
		l.visit()
	}
	return false
}

// block puts the link on the list of those that wait for room. Each poll tries them, and Arm
// enables the event for them. If the wire is armed already, it must be enabled here.
func (l *link) block() {
	if l.out.blocked {
		return
	}
	l.out.blocked = true
	l.w.blocked = append(l.w.blocked, l)
	if l.w.armed {
		l.watch()
	}
}

// unblock takes back block.
func (l *link) unblock() {
	if l.out.blocked {
		l.out.blocked = false
		l.w.blocked = remove(l.w.blocked, l)
		l.watch()
	}
}
