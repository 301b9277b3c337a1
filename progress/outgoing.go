package progress

import (
	"context"
	"slices"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// The sender's side of flow control. A send that the transport has no room for, or that credit does
// not cover, waits in its peer's queue, and later sends to that peer wait behind it. Where the
// transport had no room, each poll tries again. Without credit the queue is held up: the peer gets
// one HELD, and answers with credit, or with a WANT for each receive that waits there and that this
// rank could satisfy. A WANT permits the queue to be sent, in order and beyond its credit, up to
// and including the first message that matches it, which may be queued later.
//
// An episode is the time from when the queue is held up until it is empty. At its end the WANTs
// become void, and the peer gets another HELD that says so. models/held.pml is a model of this
// protocol, all of whose states are searched.

// maxWants is for how many receives a peer can have WANTs at the same time; for more it gets one
// for the whole queue.
const maxWants = 16

// sendCost is what a send that waits costs this rank: its Op of 320 bytes, up to 32 of the queue,
// and its part of an index. The user's buffer stays where it is.
const sendCost = 416

// weight is what a send that waits counts against SendLimit.
func (op *Op) weight() int64 {
	if op.vec == nil {
		return sendCost
	}
	return sendCost + int64(len(op.vec.whole.buf))
}

// want is a WANT of the peer that no message has used up.
type want struct {
	slot      uint8 // of the peer, which uses it again once its receive is matched or has ended
	tag, mask uint64
}

// outgoing is the sender's side of flow control with one peer. Credit is in bytes since the start,
// see internal/credit.
type outgoing struct {
	charged uint64 // credit used by the messages that were sent
	allowed uint64 // credit in all, as far as this rank knows

	queue    sendQueue // sends that wait
	requests int       // rendezvous sends that have a slot in Engine.sends
	episode  uint32    // odd while the queue is held up
	told     uint32    // episode of the last HELD that was sent
	wants    []want    // of this episode, in order of arrival; at most maxWants
	all      bool      // the peer wants the whole queue
}

func (o *outgoing) empty() bool { return o.queue.n == 0 }

func (o *outgoing) heldUp() bool { return o.episode&1 != 0 }

// covers tells whether credit covers a message, as far as this rank knows.
func (o *outgoing) covers(cost uint64) bool { return o.charged+cost <= o.allowed }

// covers tells whether credit covers a message, with what the peer may have granted meanwhile.
func (p *peer) covers(cost uint64) bool {
	return p.out.covers(cost) || p.coversNow(cost)
}

func (p *peer) coversNow(cost uint64) bool {
	p.out.allowed = max(p.out.allowed, p.e.tr.Granted(p.rank))
	return p.out.covers(cost)
}

// cost is the credit that a send takes, in bytes.
func (op *Op) cost() uint64 {
	if op.sync || op.room() > op.e.cfg.EagerLimit {
		return unexpected.RecordCost
	}
	return unexpected.EagerCost(op.room())
}

// permitted tells whether a WANT lets the head of the queue be sent without credit.
func (p *peer) permitted() bool {
	o := &p.out
	return o.all || slices.ContainsFunc(o.wants, func(w want) bool { return o.queue.has(w.tag, w.mask, p.e.cfg.seed) })
}

// use removes the WANT that a message with this tag uses up.
func (o *outgoing) use(tag uint64) {
	if i := slices.IndexFunc(o.wants, func(w want) bool { return (w.tag^tag)&w.mask == 0 }); i >= 0 {
		o.wants = slices.Delete(o.wants, i, i+1)
	}
}

// enqueue appends a send to the queue, and sends what may be sent.
func (p *peer) enqueue(op *Op) {
	o := &p.out
	op.move(opQueued)
	o.queue.push(op)
	p.e.queued += op.weight()
	if !o.heldUp() && o.queue.len() > 1 {
		return // a send in front of it waits for room in the transport
	}
	if o.heldUp() && !o.all && !slices.ContainsFunc(o.wants, func(w want) bool { return (w.tag^op.tag)&w.mask == 0 }) {
		return
	}
	p.pump()
}

// unqueue removes a send from the queue.
func (p *peer) unqueue(op *Op) {
	p.out.queue.remove(op)
	p.e.queued -= op.weight()
	p.e.roomLocked()
}

// pump sends what waits in the queue, in order, as far as room, credit and WANTs allow, and returns
// how many were sent. Where room is missing, p is marked dirty.
func (p *peer) pump() (n int) {
	e := p.e
	o := &p.out
	for !o.empty() {
		op := o.queue.first()
		covered := p.covers(op.cost())
		if !covered && !(o.heldUp() && p.permitted()) {
			if !o.heldUp() {
				o.episode++
				e.m.HeldUp++
				e.m.HeldNow++
				p.tellHeld()
			}
			return n
		}
		tag := op.tag
		if !p.launch(op) {
			p.markDirty()
			return n
		}
		if o.heldUp() {
			o.use(tag)
			if !covered {
				e.m.Released++
			}
		}
		n++
	}
	p.endEpisode()
	return n
}

// endEpisode is called when the queue has become empty.
func (p *peer) endEpisode() {
	o := &p.out
	if !o.heldUp() {
		return
	}
	o.episode++
	o.wants, o.all = o.wants[:0], false
	p.e.m.HeldNow--
	p.tellHeld()
}

// tellHeld sends p a HELD, if it does not know yet whether sends to it are held up. Only the newest
// episode counts: of one that is over before its HELD was sent p need not know.
func (p *peer) tellHeld() {
	o := &p.out
	if o.told == o.episode {
		return
	}
	if !o.heldUp() && o.told&1 == 0 {
		o.told = o.episode
		return
	}
	h := heldBody{allowed: o.allowed, charged: o.charged}
	if p.tryCtrl(ctrl{kind: ctrlHeld, id: o.episode, body: h.encode()}) {
		o.told = o.episode
	}
}

// takeWant handles a WANT of p.
func (p *peer) takeWant(episode uint32, w wantBody) {
	o := &p.out
	if w.slot != wantNone {
		p.e.m.WantsReceived++
	}
	o.allowed = max(o.allowed, w.allowed)
	if !o.heldUp() || episode != o.episode {
		return // it is of an episode that is over
	}
	switch {
	case w.slot == wantAll:
		o.all = true
	case w.slot < maxWants:
		o.wants = slices.DeleteFunc(o.wants, func(v want) bool { return v.slot == w.slot })
		o.wants = append(o.wants, want{w.slot, w.tag, w.mask})
	}
	p.pump()
}

// cancelQueued ends a send that waits in its peer's queue; what is behind it may be sent now.
func (op *Op) cancelQueued() {
	p := &op.e.peers[op.peer]
	p.unqueue(op)
	op.endSend(Status{}, ErrCanceled)
	p.pump()
}

// failQueue ends all sends that wait in the queue.
func (p *peer) failQueue(err error) {
	o := &p.out
	for !o.empty() {
		op := o.queue.first()
		p.unqueue(op)
		op.endSend(Status{}, err)
	}
	p.endEpisode()
}

// fullLocked tells whether SendLimit leaves no room for one more send that waits.
func (e *Engine) fullLocked() bool { return e.queued+sendCost > e.cfg.SendLimit && e.queued > 0 }

// Room returns when Isend would not fail with ErrFull, at once where it would not now. Other
// goroutines may be faster.
func (e *Engine) Room(ctx context.Context) error {
	return e.waitIn(ctx, opRoom, &e.rooms, func() bool { return !e.fullLocked() })
}

// roomLocked wakes those who wait for room, if there is some, or never will be.
func (e *Engine) roomLocked() {
	if len(e.rooms) == 0 || e.fullLocked() {
		return
	}
	for _, op := range e.rooms {
		op.complete(Status{}, e.broken)
	}
	e.rooms = e.rooms[:0]
}

// slotsLeft tells whether p may have one more rendezvous send under way: each peer may always have
// one, and more as long as p has fewer than are left for all.
func (p *peer) slotsLeft() bool {
	e := p.e
	left := e.sends.limit - e.sends.used - len(e.peers)
	return p.out.requests == 0 || p.out.requests < left
}

// launch posts a send to the transport, and takes it out of the queue if it waited there; false
// means that the transport has no room.
func (p *peer) launch(op *Op) bool {
	e := p.e
	eager, size := !op.sync && op.room() <= e.cfg.EagerLimit, op.room()
	var err error
	if eager {
		err = e.tr.SendEager(p.rank, uint32(e.cfg.Rank), op.tag, op.buf)
	} else {
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
		p.out.charged += unexpected.EagerCost(size)
		e.m.EagerSent++
		op.complete(e.sentStatus(op.tag, size), nil)
	default:
		p.out.charged += unexpected.RecordCost
		p.out.requests++
		op.move(opRequested)
	}
	return true
}
