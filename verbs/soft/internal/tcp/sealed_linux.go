package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/seal"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// sealed is what a link with TLS has besides. The stream of frames goes through the connection in
// records (package seal), which end where a write does: link.out has records, and the frames of
// those to come wait in plain. A large body has records of its own, sealed from where it is. What
// is received goes from raw to link.in, and from there on as on a plain connection; records that
// have nothing but a payload with a place are opened to there.
type sealed struct {
	sealer *seal.Sealer
	opener *seal.Opener

	plain []byte // frames that are not sealed yet

	raw  []byte
	r, w int // raw[r:w] was read from the socket, and not opened
	need int // bytes of the record at r; 0: not known
}

const (
	rawStart = 16 << 10  // bytes of raw at first
	rawLimit = 128 << 10 // the most that it grows to: a record and more
)

// upgrade has the two ends speak TLS, from which the link's keys come. Which of them begins does
// not depend on who has dialled. That they are who they said before is proven once more, in TLS: of
// what was said in plain somebody may have passed on a part to another connection. It runs in the
// background.
func (w *Wire) upgrade(conn net.Conn, prepared any) (any, error) {
	s := prepared.(*socket)
	first, second := w.env.Self.ID, s.peer.ID
	dialler := bytes.Compare(first[:], second[:]) < 0
	if !dialler {
		first, second = second, first
	}
	session, err := w.env.TLS.Handshake(conn, secure.End{Dialler: dialler, Key: w.env.Secret, Ends: append(first[:], second[:]...)})
	if err != nil {
		return s, failed(err)
	}
	s.sealed = &sealed{}
	if s.sealed.sealer, err = seal.NewSealer(session.Send, seal.RekeyAfter); err == nil {
		s.sealed.opener, err = seal.NewOpener(session.Receive, seal.RekeyAfter)
	}
	clear(session.Send)
	clear(session.Receive)
	return s, err
}

// failed explains the error of a TLS handshake, which is the verdict of an end, or the end of the
// connection, or else comes of what the other end cannot have said.
func failed(err error) error {
	if errors.Is(err, secure.ErrRefused) {
		return fmt.Errorf("%w: %w", verbs.ErrRefused, err)
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded} {
		if errors.Is(err, e) {
			return err
		}
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return err
	}
	if !errors.Is(err, secure.ErrChanged) {
		err = fmt.Errorf("%w: %w", secure.ErrChanged, err)
	}
	return &dial.Again{Err: err}
}

// waiting is how many bytes there are that hasRoom finds not in output: those in plain, and what
// sealing adds to them and to a packet.
func (s *sealed) waiting() int {
	return len(s.plain) + (3+len(s.plain)/seal.MaxContents)*seal.Overhead
}

// partial reports whether a part of a record was received.
func (s *sealed) partial() bool { return s != nil && s.r != s.w }

// sendSealed is Send where there is room.
func (l *link) sendSealed(h *wire.Header, head, body []byte) bool {
	s, o := l.sealed, &l.out
	before := len(s.plain)
	s.plain = append(appendFrameHeader(s.plain, h), head...)
	if len(body) >= DirectFrom {
		return l.sealDirect(h.Op, body, before)
	}
	s.plain = append(s.plain, body...)
	switch {
	case o.blocked:
	case len(s.plain) >= tcpWriteSoon:
		l.write()
	case !o.dirty:
		o.dirty = true
		l.w.dirty = append(l.w.dirty, l)
	}
	return true
}

// sealDirect seals a body from where it is, behind its header, which begins at plain[header]. It
// does where the body is gone what writeDirect does.
func (l *link) sealDirect(op wire.Opcode, body []byte, header int) bool {
	s, o := l.sealed, &l.out
	if op == wire.OpReadResp && !fault.Readable(body) {
		s.plain = s.plain[:header]
		l.w.notif.Wake() // the device looks again, and no room will wake it
		return false
	}
	l.sealPlain()
	var err error
	if !fault.Guard(func() { o.buf, err = appendRecords(s.sealer, o.buf, body) }) {
		err = unix.EFAULT
	}
	switch {
	case err != nil:
		l.broken(err)
	case !o.blocked:
		l.write()
	}
	return true
}

// sealPlain moves plain to output, as records. It returns true if it has moved something.
func (l *link) sealPlain() bool {
	s := l.sealed
	if len(s.plain) == 0 {
		return false
	}
	var err error
	if l.out.buf, err = appendRecords(s.sealer, l.out.buf, s.plain); err != nil {
		l.broken(err)
		return false
	}
	if s.plain = s.plain[:0]; cap(s.plain) > tcpOutLimit {
		s.plain = nil
	}
	return true
}

// appendRecords appends the records that b takes.
func appendRecords(s *seal.Sealer, dst, b []byte) (_ []byte, err error) {
	for len(b) > 0 && err == nil {
		n := min(len(b), seal.MaxContents)
		dst = slices.Grow(dst, n+seal.Overhead)
		dst, err = s.Append(dst, b[:n])
		b = b[n:]
	}
	return dst, err
}

// broken ends sending, as wrote does for an error of the socket.
func (l *link) broken(err error) {
	l.lost = fmt.Errorf("sealing: %w", err)
	l.out.buf, l.out.sent, l.sealed.plain = nil, 0, nil
	l.up = false
	l.unblock()
	l.visit()
}

// fillSealed is fill: it opens what is there, or else reads once and opens that.
func (l *link) fillSealed() (want, got int) {
	s := l.sealed
	if n := l.openRecords(); n > 0 && !l.gone {
		return n, n
	}
	if l.gone {
		return 1, 0
	}
	if s.whole() {
		l.visit() // there is no room for it until the device takes what is there
		return 1, 0
	}
	b := s.space()
	n, e := rawRecv(l.fd, b)
	if !l.hasRead(n, e) {
		return 1, 0
	}
	s.w += n
	l.openRecords()
	if l.gone {
		return 1, 0
	}
	if s.whole() {
		return n, n // the socket may be empty, but there is more
	}
	return len(b), n
}

// space returns where to read to. Of a record that has begun not much more than that is read, as
// the beginning of the next one is copied.
func (s *sealed) space() []byte {
	if s.r == s.w {
		s.r, s.w = 0, 0
	}
	if s.w == len(s.raw) && s.r == 0 || s.need > len(s.raw) {
		size := max(rawStart, 4*len(s.raw), 1<<bits.Len(uint(s.need)))
		raw := make([]byte, min(size, rawLimit))
		s.r, s.w, s.raw = 0, copy(raw, s.raw[s.r:s.w]), raw
	}
	if s.r+s.need > len(s.raw) || s.w == len(s.raw) {
		s.r, s.w = 0, copy(s.raw, s.raw[s.r:s.w])
	}
	b := s.raw[s.w:]
	if s.need > placeGap {
		b = b[:min(len(b), s.need-(s.w-s.r)+placeGap)]
	}
	return b
}

// openRecords opens the records that are whole, as far as there is room for their contents, and
// returns how many bytes they have taken. It stops where a packet may name the place that a record
// belongs to, until that was parsed. A record that fails its check ends the link.
func (l *link) openRecords() (bytes int) {
	s, parsed := l.sealed, true
	for !l.gone && l.measure() && (parsed || s.need < PlaceFrom) {
		record := s.raw[s.r : s.r+s.need]
		contents := s.need - seal.Overhead
		var err error
		switch {
		case l.in.placing && contents <= int(l.in.h.Length)-l.in.placed:
			err = l.openToPlace(record, contents)
		case l.makeRoomFor(contents):
			parsed = false
			err = l.openToBuffer(record)
		default:
			return bytes
		}
		if err != nil {
			l.fail(err)
			return bytes
		}
		bytes += s.need
		s.r += s.need
		s.need = 0
	}
	return bytes
}

// measure finds out how long the next record is. It returns true if all of it is there.
func (l *link) measure() bool {
	s := l.sealed
	if s.need == 0 {
		n, err := s.opener.Size(s.raw[s.r:s.w])
		if err != nil {
			l.fail(err)
			return false
		}
		s.need = n
	}
	return s.whole()
}

// whole reports whether the next record is there.
func (s *sealed) whole() bool { return s.need > 0 && s.w-s.r >= s.need }

// openToPlace opens a record whose contents belong to the payload that is being placed.
func (l *link) openToPlace(record []byte, contents int) (err error) {
	in := &l.in
	dst := l.place()[in.placed:][:contents:contents]
	if invariant.Enabled && in.void == nil {
		l.Places(dst)
	}
	if !fault.Guard(func() { _, err = l.sealed.opener.Open(dst[:0], record) }) {
		l.placeGone()
		return l.openToPlace(record, contents)
	}
	in.placed += contents
	return err
}

// openToBuffer opens a record behind what is in the input buffer. Where a payload is being placed
// the rest of it comes first.
func (l *link) openToBuffer(record []byte) error {
	in := &l.in
	out, err := l.sealed.opener.Open(in.buf[:in.w], record)
	if err != nil {
		return err
	}
	in.w = len(out)
	if !in.placing {
		return nil
	}
	rest := l.place()[in.placed:]
	if !fault.Copy(rest, in.buf[in.r:in.r+len(rest)]) {
		l.placeGone()
	}
	in.r += len(rest)
	in.placed += len(rest)
	return nil
}

// A frame that is not all there leaves room for the next record, or the link would wait for ever.
const _ = uint(bufLimit - (maxFrameHeader + maxPayload) - seal.MaxContents)

// makeRoomFor makes room for n more bytes in the input buffer. It returns false if there is none
// until the device takes what is there.
func (l *link) makeRoomFor(n int) bool {
	in := &l.in
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
	rest := in.w - in.r
	switch {
	case len(in.buf)-in.w >= n:
	case len(in.buf) >= rest+n:
		in.r, in.w = 0, copy(in.buf, in.buf[in.r:in.w])
	case rest+n <= bufLimit:
		b := make([]byte, max(bufStart, 1<<bits.Len(uint(rest+n-1))))
		in.r, in.w, in.buf = 0, copy(b, in.buf[in.r:in.w]), b
	default:
		return false
	}
	return true
}
