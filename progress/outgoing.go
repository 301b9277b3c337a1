package progress

import (
	"context"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// The sender's side of flow control: what package flow lets go is posted, counted and told here. A
// send that the transport has no room for, or that credit does not cover, waits in its peer's
// queue, and later sends to that peer wait behind it. Where the transport had no room, each poll
// tries again. What is for a peer that is not connected yet waits there likewise, until
// sink.Connected, and its credit is not known.

// sendCost is what a send that waits costs this rank: its Op of 320 bytes, up to 64 of the queue,
// and its part of an index. The user's buffer stays where it is.
const sendCost = 448

// backlog is the sends that wait, to all peers together, and the calls that wait for less of them.
type backlog struct {
	limit int64 // constant, Config.SendLimit
	bytes int64 // that they take
	posts int   // FINs and control messages that wait too
	rooms []*Op
}

// full reports whether there is no room for one more.
func (b *backlog) full() bool { return b.bytes+sendCost > b.limit && b.bytes > 0 }

// busy reports whether some peer is still to get something.
func (b *backlog) busy() bool { return b.bytes != 0 || b.posts != 0 }

// leave follows a send that waits no more. Those who wait for room are woken if there is some; err
// says why there never will be.
func (b *backlog) leave(op *Op, err error) {
	b.bytes -= op.weight()
	if len(b.rooms) == 0 || b.full() {
		return
	}
	for _, op := range b.rooms {
		op.complete(Status{}, err)
	}
	b.rooms = b.rooms[:0]
}

// weight is what a send that waits counts against SendLimit.
func (op *Op) weight() int64 {
	if op.vec == nil {
		return sendCost
	}
	return sendCost + int64(len(op.vec.whole.buf))
}

// covers reports whether credit covers a message, with what the peer may have granted meanwhile.
func (p *peer) covers(cost uint64) bool {
	return p.out.Covers(cost) || p.coversNow(cost)
}

func (p *peer) coversNow(cost uint64) bool {
	p.out.Allow(p.e.tr.Granted(p.rank))
	return p.out.Covers(cost)
}

// cost is the credit that a send takes, in bytes.
func (op *Op) cost() uint64 {
	if op.sync || op.room() > op.e.cfg.EagerLimit {
		return unexpected.RecordCost
	}
	return unexpected.EagerCost(op.room())
}

// enqueue appends a send to the queue, and sends what may be sent.
func (p *peer) enqueue(op *Op) {
	op.move(opQueued)
	if t := p.e.trace; t != nil {
		t.queued(op)
	}
	p.e.backlog.bytes += op.weight()
	number, next := p.out.Push(op.tag, op)
	if op.handle = matching.Handle(number); next {
		p.pump()
	}
}

// unqueue removes a send from the queue.
func (p *peer) unqueue(op *Op) {
	p.out.Remove(uint64(op.handle))
	p.e.backlog.leave(op, p.e.broken)
}

// pump sends what waits in the queue, in order, as far as room, credit and WANTs allow, and returns
// how many were sent. Where room is missing, p is marked dirty. To one that is not met nothing can
// be sent; the transport connects to it.
func (p *peer) pump() (n int) {
	for ; !p.out.Empty(); n++ {
		op := p.out.First()
		if p.met && !p.covers(op.cost()) && !p.out.Permitted() {
			p.holdUp()
			return n
		}
		if !p.launch(op) {
			p.markDirty()
			return n
		}
	}
	p.drained()
	return n
}

// holdUp follows that the first send must not go.
func (p *peer) holdUp() {
	if p.out.Hold() {
		p.e.m.HeldUp++
		p.e.m.HeldNow++
		p.tellHeld()
	}
}

// drained follows that the queue is empty.
func (p *peer) drained() {
	if p.out.Drained() {
		p.e.m.HeldNow--
		p.tellHeld()
	}
}

// tellHeld sends p a HELD, if it does not know yet whether sends to it are held up.
func (p *peer) tellHeld() {
	if h, due := p.out.Due(); due && p.tryCtrl(ctrl{kind: ctrlHeld, id: h.Episode, body: encodeHeld(h)}) {
		p.out.Told()
	}
}

// takeWant handles a WANT of p.
func (p *peer) takeWant(w flow.Want) {
	p.heard++
	if w.Slot != flow.None {
		p.e.m.WantsReceived++
	}
	if p.out.Want(w); p.out.HeldUp() {
		p.pump()
	}
}

// cancelQueued ends a send that waits in its peer's queue; what is behind it may be sent now.
func (op *Op) cancelQueued() {
	p := op.e.peers[op.peer]
	p.unqueue(op)
	op.endSend(Status{}, ErrCanceled)
	p.pump()
}

// failQueue ends all sends that wait in the queue.
func (p *peer) failQueue(err error) {
	for !p.out.Empty() {
		op := p.out.First()
		p.unqueue(op)
		op.endSend(Status{}, err)
	}
	p.drained()
}

// Room returns when Isend would not fail with ErrFull, at once where it would not now. Other
// goroutines may be faster.
func (e *Engine) Room(ctx context.Context) error {
	return e.waitIn(ctx, opRoom, &e.backlog.rooms, func() bool { return !e.backlog.full() })
}

// slotsLeft reports whether p may have one more rendezvous send under way: each peer may always
// have one, and more as long as p has fewer than are left for all.
func (p *peer) slotsLeft() bool {
	e := p.e
	left := e.sends.limit - e.sends.used - len(e.peers)
	return p.requests == 0 || p.requests < left
}

// launch posts a send to the transport, and takes it out of the queue if it waited there; false
// means that the transport has no room.
func (p *peer) launch(op *Op) bool {
	e := p.e
	eager, size := !op.sync && op.room() <= e.cfg.EagerLimit, op.room()
	var err error
	switch {
	case !p.met:
		err = p.meet()
	case eager:
		err = e.tr.SendEager(p.rank, uint32(e.cfg.Rank), op.tag, op.buf)
	default:
		err = p.request(op)
	}
	if err == transport.ErrAgain {
		return false
	}
	if op.state == opQueued {
		p.unqueue(op)
	}
	switch {
	case err != nil:
		op.endSend(Status{}, err) // no loss, which the transport would have reported first
	case eager:
		p.sent(op.tag, unexpected.EagerCost(size))
		p.sentBytes.eager += uint64(size)
		if t := e.trace; t != nil {
			t.sent(trace.Sent, p, op.name(), op.tag, size)
		}
		e.m.EagerSent++
		op.complete(e.sentStatus(op.tag, size), nil)
	default:
		p.sent(op.tag, unexpected.RecordCost)
		if t := e.trace; t != nil {
			t.sent(trace.Requested, p, op.name(), op.tag, size)
		}
		p.requests++
		op.move(opRequested)
	}
	return true
}

// sent charges a message that was posted.
func (p *peer) sent(tag, cost uint64) {
	if p.out.Sent(tag, cost) {
		p.e.m.Released++
	}
}
