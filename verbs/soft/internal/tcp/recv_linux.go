package tcp

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	bufStart = 16 << 10  // bytes of a link's first buffer; it grows when reads fill it
	bufLimit = 256 << 10 // the most that it grows to, except for one larger frame
	atOnce   = 2 << 20   // bytes after which a poll turns to other links
	placeGap = 4 << 10   // bytes read behind a placed payload: the next header, and little to copy
)

// input is the receiving half of a link.
type input struct {
	buf     []byte
	r, w    int         // buf[r:w] was read from the socket, and not taken by the device
	h       wire.Header // of the frame at r, or of the frame being placed
	placed  int         // placing: bytes of the payload that were read
	placing bool        // the payload of the frame in h is being read to where the device wants it
	void    []byte      // placing: where it is read to instead, once the device wants it nowhere
	bulk    bool        // the last frame was placed, so that the next is likely to be placed
	stalled bool        // the device has refused the next frame
	enough  bool        // the device wants no more frames in this poll
	grow    bool        // the last read has filled buf
}

// receive gives frames to the device, at most budget, and reads more as long as the socket has
// them, up to atOnce bytes.
func (l *link) receive(budget int) int {
	n, bytes := l.parse(budget), 0
	for n < budget && bytes < atOnce && !l.gone && !l.in.stalled && !l.in.enough {
		want, got := l.fill()
		if got > 0 {
			l.w.idle, l.seen = 0, l.w.round // also for a part of a packet
			n += l.parse(budget - n)
		}
		if got < want {
			break // the socket is empty
		}
		bytes += got
	}
	switch {
	case l.gone:
	case n == budget || bytes >= atOnce || l.in.stalled || l.in.enough || l.lost != nil:
		l.visit()
		if l.lost != nil && l.in.stalled {
			l.fail(l.lost)
		}
	}
	return n
}

// parse gives the frames in the buffer to the device.
func (l *link) parse(budget int) (n int) {
	in := &l.in
	was := in.stalled
	in.stalled, in.enough = false, false
	for n < budget && !in.enough && l.parseOne() {
		n++
	}
	if was && !in.stalled && !l.gone {
		l.watch()
	}
	return n
}

// parseOne gives the next frame to the device if it is complete. It returns true if it was taken.
func (l *link) parseOne() bool {
	in := &l.in
	if in.placing {
		if in.placed < int(in.h.Length) || !l.deliver(l.place()) {
			return false
		}
		in.placing, in.void, in.bulk = false, nil, true
		return true
	}
	b := in.buf[in.r:in.w]
	n, err := decodeFrameHeader(b, &in.h)
	if err == nil && l.sealed != nil && in.h.Length > maxPayload {
		err = fmt.Errorf("sealed frame with a payload of %d bytes: the most is %d", in.h.Length, maxPayload)
	}
	if err != nil {
		l.refuse(err)
		return false
	}
	size := n + int(in.h.Length)
	if n == 0 || size > len(b) {
		if n > 0 {
			l.startPlacing(b[n:], n)
		}
		return false
	}
	if !l.deliver(b[n:size:size]) {
		return false
	}
	in.r += size
	invariant.PoisonStart(b[n:size])
	return true
}

// refuse ends the link because of a frame that is none, or with which the peer ends it.
func (l *link) refuse(err error) {
	if err != verbs.ErrAccused && err != verbs.ErrPeerClosed {
		l.sayWhy(opAccused)
		err = fmt.Errorf("%w: %w", verbs.ErrProtocol, err)
	}
	l.fail(err)
}

// deliver calls the receiver.
func (l *link) deliver(payload []byte) bool {
	ok, more := l.w.env.Receiver.Receive(l, &l.in.h, payload)
	if l.gone {
		return ok
	}
	l.in.stalled, l.in.enough = !ok, !more
	return ok
}

// startPlacing begins to place a large payload, of which have was read already, if the device names
// its destination.
func (l *link) startPlacing(have []byte, headerSize int) {
	in := &l.in
	if in.h.Length < PlaceFrom {
		return
	}
	dst := l.w.env.Receiver.Place(l, &in.h)
	if len(dst) != int(in.h.Length) {
		return
	}
	if invariant.Enabled {
		l.Places(dst)
	}
	in.placing, in.placed = true, len(have)
	in.r += headerSize + len(have)
	if !fault.Copy(dst[:len(have)], have) {
		l.placeGone()
	}
}

// placeGone has the payload that is being placed go to a buffer, since its place cannot be written.
func (l *link) placeGone() {
	l.w.env.Receiver.PlaceGone(l, &l.in.h)
	l.in.void = make([]byte, l.in.h.Length)
}

// place is where the payload that is being placed goes. It asks the device each time: if a region
// was deregistered or a queue pair has failed, its memory must not be written to, nor kept alive,
// and the payload goes to a buffer.
func (l *link) place() []byte {
	in := &l.in
	if in.void == nil {
		if dst := l.w.env.Receiver.Place(l, &in.h); len(dst) == int(in.h.Length) {
			return dst
		}
		in.void = make([]byte, in.h.Length)
	}
	return in.void
}

// Places calls wire.PlaceChecker, in a build with -tags invariants.
func (l *link) Places(dst []byte) {
	if d, ok := l.w.env.Receiver.(wire.PlaceChecker); ok {
		d.Places(dst)
	}
}

// fill reads once. It returns how many bytes it has asked for and how many it has got.
func (l *link) fill() (want, got int) {
	switch {
	case l.sealed != nil:
		return l.fillSealed()
	case l.in.placing:
		return l.fillPlacing()
	}
	in := &l.in
	l.makeSpace()
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
		in.bulk = false // there is more than a header: small frames again
	}
	return len(b), n
}

// fillPlacing reads the rest of a payload to its destination, and a little of what follows it into
// the buffer.
func (l *link) fillPlacing() (want, got int) {
	in := &l.in
	rest := l.place()[in.placed:]
	if len(rest) == 0 {
		return 1, 0
	}
	if invariant.Enabled && in.void == nil {
		l.Places(rest)
	}
	var gap []byte
	if in.r == in.w {
		in.r, in.w = 0, 0
		gap = in.buf[:min(len(in.buf), placeGap)]
	}
	n, e := l.vec.recv(l.fd, rest, gap)
	if e == unix.EFAULT && in.void == nil { // the stream stands where it did
		l.placeGone()
		return l.fillPlacing()
	}
	if !l.hasRead(n, e) {
		return 1, 0
	}
	k := min(n, len(rest))
	in.placed += k
	in.w += n - k
	return len(rest) + len(gap), n
}

// makeSpace makes room in the buffer for the rest of the frame that has begun.
func (l *link) makeSpace() {
	in := &l.in
	if in.r == in.w {
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
		b := make([]byte, size)
		in.r, in.w, in.buf, in.grow = 0, copy(b, in.buf[in.r:in.w]), b, false
	} else if in.r+frame > len(in.buf) || in.r > len(in.buf)/2 {
		in.r, in.w = 0, copy(in.buf, in.buf[in.r:in.w])
	}
}

// hasRead handles the result of a read. It returns false if nothing was read.
func (l *link) hasRead(n int, e unix.Errno) bool {
	switch {
	case (e == unix.EAGAIN || e == 0 && n == 0) && l.lost != nil:
		l.fail(l.lost) // the kernel reports a reset only once, here to a send
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

// ended returns the error for a connection that the peer has closed.
func (l *link) ended() error {
	if l.in.placing || l.in.r != l.in.w || l.sealed.partial() {
		return fmt.Errorf("%w in the middle of a packet (%w): %w", errPeerClosed, io.ErrUnexpectedEOF, verbs.ErrPeerEnded)
	}
	return fmt.Errorf("%w: %w", errPeerClosed, verbs.ErrPeerEnded)
}
