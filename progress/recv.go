package progress

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// AnySource as a receive's source: any rank may satisfy it. Matching goes by tag and mask alone;
// the source says whose loss ends the receive, and by which device its message comes. So a receive
// from one source, or from a Group, must have a tag and a mask that only messages of that source,
// or of the group's ranks, match.
const AnySource = -1

// Recv takes the oldest message that matches into buf. When ctx ends first the receive is
// cancelled; the call returns once the buffer is free, with ctx's error if no message was faster.
func (e *Engine) Recv(ctx context.Context, src int, tag, mask uint64, buf []byte) (Status, error) {
	return e.recv(ctx, src, tag, mask, buf, false)
}

// Sendrecv is Send and Recv under one hold of the lock. It reports false, and has done nothing,
// where the send does not end at once.
func (e *Engine) Sendrecv(ctx context.Context, dst int, stag uint64, sbuf []byte, src int, tag, mask uint64, buf []byte) (st Status, ok bool, err error) {
	e.mu.Lock()
	if !e.sendNowLocked(dst, stag, sbuf) {
		e.mu.Unlock()
		return st, false, nil
	}
	st, err = e.recv(ctx, src, tag, mask, buf, true)
	return st, true, err
}

// recv is Recv, by a caller that holds the lock or does not. It lets go of it either way.
func (e *Engine) recv(ctx context.Context, src int, tag, mask uint64, buf []byte, held bool) (Status, error) {
	if !held {
		if err := ctx.Err(); err != nil {
			return Status{}, err
		}
		e.mu.Lock()
	}
	if m, ok := e.unexp.Match(tag, mask); ok {
		if !m.Rndv {
			st, err := e.peers[m.Src].take(m, buf)
			e.mu.Unlock()
			return st, err
		}
		op := e.newOpLocked(noteRecvCall, src, tag, mask, buf)
		op.pull(m)
		if t := e.trace; t != nil && !op.Ended() {
			t.call(trace.Call, op)
		}
		st, err := e.callLocked(ctx, op)
		e.mu.Unlock()
		return st, err
	}
	if err := e.checkRecvLocked(src, tag, mask); err != nil {
		e.mu.Unlock()
		return Status{}, err
	}
	op := e.newOpLocked(noteRecvCall, src, tag, mask, buf)
	op.post()
	if t := e.trace; t != nil {
		t.posted(op, true)
	}
	st, err := e.callLocked(ctx, op)
	e.mu.Unlock()
	return st, err
}

// Irecv starts a receive. It never blocks.
func (e *Engine) Irecv(src int, tag, mask uint64, buf []byte) Request {
	e.mu.Lock()
	op := e.newOpLocked(noteRecv, src, tag, mask, buf)
	r := op.request()
	op.receive()
	e.leaveLocked()
	e.mu.Unlock()
	return r
}

// receive gives a receive the oldest message that matches, or posts it.
func (op *Op) receive() {
	if m, ok := op.e.unexp.Match(op.tag, op.mask); ok {
		op.give(m)
	} else {
		op.await()
	}
}

// await posts a receive that no message here matches.
func (op *Op) await() {
	if err := op.e.checkRecvLocked(op.peer, op.tag, op.mask); err != nil {
		op.complete(Status{}, err)
	} else {
		op.post()
		if t := op.e.trace; t != nil {
			t.posted(op, false)
		}
	}
}

// give completes a receive with an unexpected message, or starts to read it.
func (op *Op) give(m *unexpected.Message) {
	if m.Rndv {
		op.pull(m)
		return
	}
	op.complete(op.e.peers[m.Src].took(m, op.fill(m.Data)))
}

// checkRecvLocked is the error of a receive that cannot be posted. The unexpected messages, also
// those of a lost rank, were searched before. It is small enough to be inlined.
func (e *Engine) checkRecvLocked(src int, tag, mask uint64) error {
	if !e.unusual && uint(src-e.sources.lowest) < uint(len(e.peers)-e.sources.lowest) {
		return nil // AnySource, a group, or a rank
	}
	return e.unusualRecvLocked(src, tag, mask)
}

func (e *Engine) unusualRecvLocked(src int, tag, mask uint64) error {
	var err error
	switch closed := e.contexts.closed(tag, mask); {
	case e.broken != nil:
		err = e.broken
	case closed != nil:
		err = closed
	case src <= AnySource:
		err = e.sources.check(src)
	case src >= len(e.peers):
		err = unknownSource(src, len(e.peers))
	case e.peers.loss(src) != nil:
		err = peerError(src, e.peers.loss(src))
	}
	if err == nil && e.reaches {
		e.reachLocked(src)
	}
	return err
}

func unknownSource(src, size int) error {
	return fmt.Errorf("%w: rank %d of %d", ErrInvalid, src, size)
}

// post appends a receive to the posted-receive queue, or puts one that goes back into its place
// there. The unexpected messages were searched under the same hold of the lock (V7).
func (op *Op) post() {
	e := op.e
	back := op.state != opNew && op.keepsPlace()
	op.back = back
	op.move(opPosted)
	if back {
		op.handle = e.posted.Return(e.posted.Place(op.handle), op.tag, op.mask, op)
		e.off.returned(op)
	} else {
		op.handle = e.posted.Post(op.tag, op.mask, op)
	}
	if op.peer < 0 {
		e.fromAny++
	} else {
		e.peer(op.peer).from++
	}
	if !back && len(op.buf) >= e.off.least {
		e.off.place(op)
	}
	if len(e.memory.HeldUp()) != 0 {
		op.wantFromHeldUp()
	}
}

// unpost removes a receive that the device has from the posted-receive queue.
func (op *Op) unpost() {
	op.e.posted.Remove(op.handle)
	op.unlisted()
}

// endPosted ends a receive, or a probe, that only software has.
func (op *Op) endPosted(err error) {
	op.e.posted.Remove(op.handle)
	op.unposted()
	op.message = nil
	op.complete(Status{}, err)
}

// unposted follows that software has removed a receive from the posted-receive queue.
func (op *Op) unposted() {
	e := op.e
	op.unlisted()
	if op.state != opPosted || op.kept != 0 {
		e.off.unposted(op)
	}
}

// deliver ends a receive, which has left the posted-receive queue, with an eager message.
func (op *Op) deliver(src int, tag uint64, payload []byte) {
	n := op.fill(payload)
	op.e.m.EagerReceived++
	op.complete(Status{src, tag, int64(len(payload))}, op.e.m.truncated(n, uint64(len(payload))))
}

// take copies an unexpected eager message of p, which is unlinked already, into buf.
func (p *peer) take(m *unexpected.Message, buf []byte) (Status, error) {
	return p.took(m, copy(buf, m.Data))
}

// took drops an unexpected eager message of p of which n bytes were copied.
func (p *peer) took(m *unexpected.Message, n int) (Status, error) {
	st := Status{p.rank, m.Tag, int64(len(m.Data))}
	p.tookEager(m)
	err := p.e.m.truncated(n, uint64(len(m.Data)))
	p.drop(m)
	return st, err
}

// tookEager follows an unexpected eager message of p that was received.
func (p *peer) tookEager(m *unexpected.Message) {
	e := p.e
	e.m.EagerReceived++
	p.cameBytes.eager += uint64(len(m.Data))
	if t := e.trace; t != nil {
		t.taken(m.Seq)
	}
}

// drop frees an unexpected message of p that a receive has matched, and gives back its credit.
func (p *peer) drop(m *unexpected.Message) { p.consumed(p.e.unexp.Drop(m)) }
