package tcp

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	bufStart  = 16 << 10  // a link's first buffer; it grows when reads fill it
	bufLimit  = 256 << 10 // and to this at most, but for a packet that needs more, and only until that is done with
	placeFrom = 8 << 10   // payloads from this size on are read to where they belong
	atOnce    = 2 << 20   // bytes after which it is others' turn
	placeGap  = 4 << 10   // room for what follows such a payload: the next header, and not much that must be copied
)

// input is the input side of a link. buf[r:w] has been read and not been taken by the device.
type input struct {
	buf     []byte
	r, w    int
	h       wire.Header
	dst     []byte // destination of the frame whose header is in h, of which placed bytes are there
	placed  int
	placing bool
	voided  bool // the device has taken dst back: it is a buffer of ours now
	bulk    bool // the last frame was placed: the next is likely to be large too
	lent    bool // the device has payloads in buf; on the wire's lent list
	stalled bool // the device has refused the next frame
	grow    bool // the last read filled the buffer
}

// receive offers frames to the device, at most budget, and reads more while there are any, but no
// more than atOnce.
func (l *link) receive(budget int) int {
	n, bytes := l.parse(budget), 0
	for n < budget && bytes < atOnce && !l.gone && !l.in.stalled {
		want, got := l.fill()
		if got > 0 {
			l.w.idle, l.seen = 0, l.w.round // also when it is but a part of a packet
			n += l.parse(budget - n)
		}
		if got < want {
			break // that was all: another call would only say so
		}
		bytes += got
	}
	switch {
	case l.gone:
	case n == budget || bytes >= atOnce || l.in.stalled || l.lost != nil:
		l.visit()
		if l.lost != nil && l.in.stalled {
			l.fail(l.lost)
		}
	}
	return n
}

// parse offers the frames in the buffer.
func (l *link) parse(budget int) (n int) {
	in := &l.in
	was := in.stalled
	in.stalled = false
	for n < budget && l.parseOne() {
		n++
	}
	if was && !in.stalled && !l.gone {
		l.watch()
	}
	return n
}

// parseOne offers the next frame, if it is complete.
func (l *link) parseOne() bool {
	in := &l.in
	if in.placing {
		if in.placed < len(in.dst) || !l.offer(in.dst) {
			return false
		}
		in.placing, in.voided, in.dst, in.bulk = false, false, nil, true
		return true
	}
	b := in.buf[in.r:in.w]
	n, err := decodeFrameHeader(b, &in.h)
	if err != nil {
		l.fail(fmt.Errorf("protocol violation: %w", err))
		return false
	}
	size := n + int(in.h.Length)
	if n == 0 || size > len(b) {
		if n > 0 {
			l.startPlacing(b[n:], n)
		}
		return false
	}
	if !l.offer(b[n:size:size]) {
		return false
	}
	in.r += size
	if invariant.Enabled && !in.lent {
		invariant.PoisonStart(b[n:size])
	}
	in.bulk = false
	return true
}

// offer gives the device a frame.
func (l *link) offer(payload []byte) bool {
	ok, lent := l.w.env.Receiver.Receive(l, &l.in.h, payload)
	if l.gone {
		return ok
	}
	if lent && !l.in.lent {
		l.in.lent = true
		l.w.lent = append(l.w.lent, l)
	}
	l.in.stalled = !ok
	return ok
}

// startPlacing has the rest of a large payload, of which have is here, read straight to where the
// device wants it.
func (l *link) startPlacing(have []byte, headerSize int) {
	in := &l.in
	if in.h.Length < placeFrom {
		return
	}
	dst := l.w.env.Receiver.Place(l, &in.h)
	if len(dst) != int(in.h.Length) {
		return
	}
	if invariant.Enabled {
		l.Places(dst)
	}
	in.dst, in.placing, in.placed = dst, true, copy(dst, have)
	in.r += headerSize + len(have)
}

// Places tells a device that checks itself (-tags invariants) where bytes are about to be put.
func (l *link) Places(dst []byte) {
	if d, ok := l.w.env.Receiver.(wire.PlaceChecker); ok {
		d.Places(dst)
	}
}

// fill reads once. It returns how much it asked for and how much came.
func (l *link) fill() (want, got int) {
	if l.in.placing {
		return l.fillPlacing()
	}
	in := &l.in
	if !l.makeSpace() {
		return 1, 0
	}
	b := in.buf[in.w:]
	if in.bulk && len(b) > placeGap {
		b = b[:placeGap]
	}
	n, e := rawRecv(l.fd, b)
	if !l.hasRead(n, e) {
		return 1, 0
	}
	in.w += n
	in.grow = in.w == len(in.buf)
	if n == len(b) {
		in.bulk = false // many small ones after all
	}
	return len(b), n
}

// fillPlacing reads the rest of a payload to its destination and a little of what follows it into
// the buffer. The device is asked each time: memory that it no longer names, since a region was
// withdrawn or a queue pair has failed, must not be touched. The payload's bytes count for nothing
// then, only their number.
func (l *link) fillPlacing() (want, got int) {
	in := &l.in
	if now := l.w.env.Receiver.Place(l, &in.h); len(now) != len(in.dst) || &now[0] != &in.dst[0] {
		if !in.voided {
			in.dst, in.voided = make([]byte, len(in.dst)), true
		}
	}
	rest := in.dst[in.placed:]
	if len(rest) == 0 {
		return 1, 0
	}
	if invariant.Enabled && !in.voided {
		l.Places(rest)
	}
	var gap []byte
	if in.r == in.w && !in.lent {
		in.r, in.w = 0, 0
		gap = in.buf[:min(len(in.buf), placeGap)]
	}
	n, e := l.vec.recv(l.fd, rest, gap)
	if !l.hasRead(n, e) {
		return 1, 0
	}
	k := min(n, len(rest))
	in.placed += k
	in.w += n - k
	return len(rest) + len(gap), n
}

// makeSpace sees to it that a read has room for the rest of the frame that has begun. It is false
// when that must wait until the device has given back what it was lent.
func (l *link) makeSpace() bool {
	in := &l.in
	if in.r == in.w && !in.lent {
		in.r, in.w = 0, 0
		if len(in.buf) > bufLimit {
			in.buf = make([]byte, bufLimit)
		}
	}
	frame := maxFrameHeader
	if in.w-in.r >= frameHeader { // h was decoded from these
		frame += int(in.h.Length)
	}
	size := max(len(in.buf), bufStart, 1<<bits.Len(uint(frame-1)))
	if in.grow {
		size = max(size, min(4*len(in.buf), bufLimit))
	}
	if size > len(in.buf) {
		// What the device was lent stays in the old buffer, which lives as long as that.
		b := make([]byte, size)
		in.r, in.w, in.buf, in.grow, in.lent = 0, copy(b, in.buf[in.r:in.w]), b, false, false
		return true
	}
	if !in.lent && (in.r+frame > len(in.buf) || in.r > len(in.buf)/2) {
		in.r, in.w = 0, copy(in.buf, in.buf[in.r:in.w])
	}
	return in.w < len(in.buf)
}

// hasRead takes a read's result: false when nothing was read.
func (l *link) hasRead(n int, e unix.Errno) bool {
	switch {
	case (e == unix.EAGAIN || e == 0 && n == 0) && l.lost != nil:
		l.fail(l.lost) // the kernel tells a reset once: send was told
		return false
	case e == unix.EAGAIN || e == unix.EINTR:
		return false
	case e != 0:
		l.fail(os.NewSyscallError("recv", e))
		return false
	case n == 0:
		l.fail(l.ended())
		return false
	}
	return true
}

var errPeerClosed = errors.New("the peer closed the connection")

// ended says how a connection ended that has no more bytes.
func (l *link) ended() error {
	if l.in.placing || l.in.r != l.in.w {
		return fmt.Errorf("%w in the middle of a packet (%w): %w", errPeerClosed, io.ErrUnexpectedEOF, verbs.ErrPeerEnded)
	}
	return fmt.Errorf("%w: %w", errPeerClosed, verbs.ErrPeerEnded)
}
