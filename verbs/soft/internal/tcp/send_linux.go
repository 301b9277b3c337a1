package tcp

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	tcpOutLimit  = 256 << 10 // bytes that wait for the socket, at most, besides what is left of one body
	tcpWriteSoon = 32 << 10  // so many are written without waiting for flush
	tcpDirect    = 16 << 10  // bodies from this size on are written from the caller's memory
)

// output is the output side of a link: encoded frames, of which the first sent bytes are the
// kernel's already.
type output struct {
	buf     []byte
	sent    int
	blocked bool // the socket took less than it was offered; on the wire's blocked list
	dirty   bool // on the wire's dirty list
}

func (o *output) pending() int { return len(o.buf) - o.sent }

// reserve makes room for n more bytes, or says that the limit forbids it.
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

// advance notes that the kernel took n bytes.
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
	if !l.up {
		return l.sendLater()
	}
	l.w.idle = 0
	o := &l.out
	n, direct := maxFrameHeader+len(head), len(body) >= tcpDirect
	if !direct {
		n += len(body)
	}
	if direct && o.blocked || !o.reserve(n) && !l.makeRoom(n) {
		return false
	}
	o.buf = append(appendFrameHeader(o.buf, h), head...)
	if direct {
		l.writeDirect(body)
		return true
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

// sendLater is send on a link that is not up: the first one connects it.
func (l *link) sendLater() bool {
	if !l.gone && !l.asked {
		l.asked = true
		l.w.conn.Connect(l.peer)
	}
	return false
}

// makeRoom tries to get rid of enough output for n more bytes.
func (l *link) makeRoom(n int) bool {
	if l.out.blocked {
		return false // poll retries
	}
	l.write()
	return l.up && l.out.reserve(n)
}

// write hands output to the kernel until it is gone or the socket takes no more.
func (l *link) write() {
	o := &l.out
	for o.pending() > 0 {
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

// writeDirect writes the output and then body, of which only what the socket does not take is
// copied.
func (l *link) writeDirect(body []byte) {
	o := &l.out
	pending := o.pending()
	n, e := l.vec.send(l.fd, o.buf[o.sent:], body)
	if e == unix.EINTR || e == unix.EAGAIN {
		n, e = 0, 0
	}
	if e != 0 {
		l.wrote(0, e)
		return
	}
	o.advance(min(n, pending))
	if rest := body[max(n-pending, 0):]; len(rest) > 0 {
		o.buf = append(o.buf, rest...)
		l.block()
	}
}

// wrote takes a write's result. false: the socket takes no more for now, or for ever.
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
		// What the peer sent before it went may still be here to be read: receive ends the link.
		l.lost = os.NewSyscallError("send", e)
		l.out.buf, l.out.sent = nil, 0
		l.up = false
		l.unblock()
		l.visit()
	}
	return false
}

// block puts the link on the list of those that wait for room. While nobody sleeps on the wire the
// list is looked through by each poll; who has armed it already, and polls once more, fills the
// socket after that.
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

func (l *link) unblock() {
	if l.out.blocked {
		l.out.blocked = false
		l.w.blocked = remove(l.w.blocked, l)
		l.watch()
	}
}
