package sim

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/tagmatch/tagmatch/progress"
)

// op is an operation of a rank.
type op struct {
	pattern
	index     int // in rank.ops
	send      bool
	sync      bool
	seq       int    // sends: number of the message among those to this peer
	mem       []byte // the buffer between two guards
	buf       []byte
	content   []byte           // sends: content of the message
	req       progress.Request // unset for a call
	call      bool             // it blocks, see call
	parts     bool             // it has several buffers
	flush     bool
	flushed   bool // sends: a Flush has returned since the post
	expired   int  // contexts that ended: the call's own, and those its receiver had to answer in
	slept     bool // calls: it had to wait
	ended     <-chan struct{}
	order     int              // receives: number of receives posted before
	ending    bool             // receives: it was asked to end (cancelled, or its context ended)
	from      int              // least number of receives posted then
	until     int              // receives: number of those posted when it ended
	acked     []int            // losses that its rank had acknowledged before the post
	unmatched bool             // receives: when the world had settled
	look      bool             // a probe that blocks; it has no buffer
	takes     bool             // receives: by a matched probe
	probed    *progress.Status // receives: what a probe had found just before
	over      int              // sends: operations that its rank had posted when that was known
	done      bool
	st        progress.Status
	err       error
	sum       uint64 // of mem when the operation ended
}

// guard is the number of bytes before and after a buffer that must not change.
const guard = 16

// blank is the value of unwritten bytes.
const blank = 0xa5

var blanks = bytes.Repeat([]byte{blank}, 64<<10)

// newBuffer allocates a buffer of n bytes with guards. Its capacity includes the guard behind, so
// that a write beyond its length is detected.
func (o *op) newBuffer(n int) {
	o.mem = make([]byte, n+2*guard)
	for rest := o.mem; len(rest) > 0; {
		rest = rest[copy(rest, blanks):]
	}
	o.buf = o.mem[guard : guard+n]
}

// write makes the content of a send, and its buffer.
func (o *op) write(src, size int) {
	o.content = make([]byte, size)
	fill(o.content, src, o.peer, o.seq)
	o.newBuffer(size)
	copy(o.buf, o.content)
}

// fill writes the content of message seq from src to dst: no two messages with a few bytes are
// equal.
func fill(b []byte, src, dst, seq int) {
	x := uint64(src)<<48 | uint64(dst)<<32 | uint64(seq)
	var word [8]byte
	for len(b) > 0 {
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		binary.LittleEndian.PutUint64(word[:], z^z>>27)
		b = b[copy(b, word[:]):]
	}
}

// end takes the outcome and the checksum of the buffer. A send's buffer then belongs to the
// program, which overwrites it: a later read by the library would show.
func (o *op) end() {
	if o.done = true; !o.call {
		o.st, o.done, o.err = o.req.Test()
	}
	for rest := o.buf; o.send && len(rest) > 0; {
		rest = rest[subtle.XORBytes(rest, rest, blanks):]
	}
	o.sum = xxhash.Sum64(o.mem)
}

// received reports whether the operation is a receive that got a message.
func (o *op) received() bool {
	return o.isRecv() && o.done && (o.err == nil || errors.Is(o.err, progress.ErrTruncated))
}

// got is the part of the message that is in the buffer.
func (o *op) got() []byte { return o.buf[:min(int64(len(o.buf)), o.st.Len)] }

func (o *op) lost() bool { return errors.Is(o.err, progress.ErrPeerLost) }

// canceled reports whether a request was cancelled, or a call's context has ended, and nothing was
// sent or received.
func (o *op) canceled() bool {
	return errors.Is(o.err, progress.ErrCanceled) || errors.Is(o.err, context.DeadlineExceeded) && !o.revoked()
}

// revoked reports whether the operation is a send that ended without its receiver's answer: it may
// have been received.
func (o *op) revoked() bool {
	return o.send && errors.Is(o.err, context.DeadlineExceeded) && errors.Is(o.err, progress.ErrMaybeDelivered)
}

// withdrawn reports whether the operation is the receive of a Message whose sender took it back.
func (o *op) withdrawn() bool { return o.takes && errors.Is(o.err, progress.ErrInactive) }

func (o *op) aborted() bool { return errors.Is(o.err, progress.ErrAborted) }

// refused reports whether the operation is a send that was refused because too many bytes were
// queued.
func (o *op) refused() bool { return o.send && errors.Is(o.err, progress.ErrFull) }

// leave records that an operation was asked to end.
func (r *rank) leave(o *op) {
	if !o.ending {
		o.ending, o.from = true, r.posts
	}
}

func (r *rank) cancel(o *op) {
	r.leave(o)
	o.req.Cancel()
}

func (o *op) isRecv() bool { return !o.send && !o.flush && !o.look }

func (o *op) String() string {
	what := fmt.Sprintf("send of %d bytes to %d", len(o.buf), o.peer)
	if o.flush {
		what = "flush"
	} else if o.look {
		what = fmt.Sprintf("probe from %d, mask %#x", o.peer, o.mask)
	} else if !o.send {
		what = fmt.Sprintf("receive of %d bytes from %d, mask %#x", len(o.buf), o.peer, o.mask)
	}
	switch {
	case !o.done:
		return fmt.Sprintf("operation %d, %s, tag %#x: under way", o.index, what, o.tag)
	case o.received():
		return fmt.Sprintf("operation %d, %s, tag %#x: %d bytes of %d, tag %#x, error %v", o.index, what, o.tag, o.st.Len, o.st.Source, o.st.Tag, o.err)
	}
	return fmt.Sprintf("operation %d, %s, tag %#x: error %v", o.index, what, o.tag, o.err)
}

// checkBuffer detects illegal writes: after the end (V4), before and behind the buffer, behind the
// message, and to receives that were cancelled. A lost peer may leave anything in a buffer, and so
// may a message that was withdrawn, where the receive may have gone back.
func (o *op) checkBuffer(wentBack bool) error {
	if xxhash.Sum64(o.mem) != o.sum {
		return fail("late write", "V4: the buffer was written to after its end: %s", o)
	}
	n := guard + len(o.buf)
	if !untouched(o.mem[:guard]) || !untouched(o.mem[n:]) {
		return fail("overrun", "bytes around the buffer were written to: %s", o)
	}
	switch {
	case wentBack:
	case o.received() && !untouched(o.buf[len(o.got()):]):
		return fail("overrun", "bytes behind the message were written to: %s", o)
	// A call may have begun to read a message.
	case !o.send && !o.call && o.canceled() && !untouched(o.buf):
		return fail("overrun", "the buffer of a cancelled receive was written to: %s", o)
	}
	return nil
}

func untouched(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(blanks))
		if !bytes.Equal(b[:n], blanks[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
