package progress

import (
	"context"
	"slices"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// A send that cannot go waits in its peer's queue, and those to the same peer behind it. While the
// transport has no room, each poll tries again. Without credit the queue is held up: the peer is
// told so once (HELD), and answers with credit, or with a WANT for each receive that waits there
// and that this rank could satisfy. A WANT permits the queue to go, in order and beyond its credit,
// up to and including one message that it matches, now or when one is queued.
//
// An episode begins when the queue is held up and ends when it is empty; then all WANTs are
// forgotten, and the peer is told. models/held.pml is this protocol as a model that is searched
// through.

// maxWants is how many receives a peer can name at the same time; beyond that it asks for the whole
// queue.
const maxWants = 16

// sendCost is what a send that waits costs this rank: its Op of 288 bytes, 88 of the queue's entry,
// an index. The user's buffer stays where it is.
const sendCost = 416

// want is a receive of the peer's that no message has matched.
type want struct {
	slot      uint8 // the peer names it anew once that receive is gone
	tag, mask uint64
}

// outgoing is what this rank knows of its sends to one peer. Credit is in bytes since the start,
// see internal/credit.
type outgoing struct {
	charged uint64 // by messages that have gone
	allowed uint64 // as last read or told

	queue    *matching.Unexpected[*Op] // sends in order that have not gone; made with the first
	requests int                       // rendezvous sends that the peer has not answered
	episode  uint32                    // odd while the queue is held up
	told     uint32                    // the episode that the peer knows
	wants    []want                    // in the order that they came in
	all      bool                      // the peer wants the whole queue
}

func (o *outgoing) empty() bool { return o.queue == nil || o.queue.Len() == 0 }

func (o *outgoing) heldUp() bool { return o.episode&1 != 0 }

// covers tells whether credit covers a message, as far as is known.
func (o *outgoing) covers(cost uint64) bool { return o.charged+cost <= o.allowed }

// covers is covers, with a look at what the peer has granted meanwhile.
func (p *peer) covers(cost uint64) bool {
	o := &p.out
	if o.covers(cost) {
		return true
	}
	o.allowed = max(o.allowed, p.e.tr.Granted(p.rank))
	return o.covers(cost)
}

// cost is what a send costs its peer.
func (op *Op) cost() uint64 {
	if op.sync || len(op.buf) > op.e.cfg.EagerLimit {
		return unexpected.RecordCost
	}
	return unexpected.EagerCost(len(op.buf))
}

// permitted tells whether the head of the queue may go beyond its credit.
func (o *outgoing) permitted() bool {
	return o.all || slices.ContainsFunc(o.wants, func(w want) bool {
		_, _, ok := o.queue.Find(w.tag, w.mask)
		return ok
	})
}

// use takes the permission that a message with this tag uses up.
func (o *outgoing) use(tag uint64) {
	if i := slices.IndexFunc(o.wants, func(w want) bool { return (w.tag^tag)&w.mask == 0 }); i >= 0 {
		o.wants = slices.Delete(o.wants, i, i+1)
	}
}

// enqueue lets a send wait, and posts what may go.
func (p *peer) enqueue(op *Op) {
	o := &p.out
	if o.queue == nil {
		o.queue = matching.NewUnexpected[*Op](p.e.cfg.Seed)
	}
	op.move(opQueued)
	op.handle = o.queue.Add(op.tag, op)
	p.e.queued += sendCost
	if !o.heldUp() && o.queue.Len() > 1 {
		return // something in front of it waits for room
	}
	if o.heldUp() && !o.all && !slices.ContainsFunc(o.wants, func(w want) bool { return (w.tag^op.tag)&w.mask == 0 }) {
		return
	}
	p.pump()
}

// unqueue takes a send out of its peer's queue.
func (p *peer) unqueue(op *Op) {
	p.out.queue.Remove(op.handle)
	p.e.queued -= sendCost
	p.e.roomLocked()
}

// pump sends what waits for p, in order, as far as room, credit and WANTs go, and returns how
// much went. With what waits for room the peer is dirty.
func (p *peer) pump() (n int) {
	e := p.e
	o := &p.out
	for !o.empty() {
		op, _, _ := o.queue.Find(0, 0)
		covered := p.covers(op.cost())
		if !covered && !(o.heldUp() && o.permitted()) {
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

// endEpisode follows a queue that has become empty.
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

// tellHeld tells p whether sends to it are held up. Only the newest episode counts: one that
// p never heard of and that is over need not be told.
func (p *peer) tellHeld() {
	o := &p.out
	if o.told == o.episode {
		return
	}
	if !o.heldUp() && o.told&1 == 0 {
		o.told = o.episode
		return
	}
	h := held{allowed: o.allowed, charged: o.charged}
	if p.tryCtrl(ctrl{kind: ctrlHeld, id: o.episode, body: h.encode()}) {
		o.told = o.episode
	}
}

// takeWant takes a peer's WANT.
func (p *peer) takeWant(episode uint32, w wantBody) {
	o := &p.out
	if w.slot != wantNone {
		p.e.m.WantsReceived++
	}
	o.allowed = max(o.allowed, w.allowed)
	if !o.heldUp() || episode != o.episode {
		return // what was held up then has gone
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

// cancelQueued ends a send that has not gone; what was behind it may go.
func (op *Op) cancelQueued() {
	p := &op.e.peers[op.peer]
	p.unqueue(op)
	op.endSend(Status{}, ErrCanceled)
	p.pump()
}

// failQueue ends all sends to p that have not gone.
func (p *peer) failQueue(err error) {
	o := &p.out
	for !o.empty() {
		op, _, _ := o.queue.Find(0, 0)
		p.unqueue(op)
		op.endSend(Status{}, err)
	}
	p.endEpisode()
}

// fullLocked tells whether there is no room for one more send that waits.
func (e *Engine) fullLocked() bool { return e.queued+sendCost > e.cfg.SendLimit && e.queued > 0 }

// Room returns when Isend would not fail with ErrFull, at once where it would not now. Other
// goroutines may be faster.
func (e *Engine) Room(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return e.broken
	}
	if !e.fullLocked() {
		return nil
	}
	return e.waitInLocked(ctx, opRoom, &e.rooms)
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

// slotsLeft tells whether p may have one more rendezvous send under way: at most as many as
// are left for the others, each of which can always have one.
func (p *peer) slotsLeft() bool {
	e := p.e
	left := e.sends.limit - e.sends.used - len(e.peers)
	return p.out.requests == 0 || p.out.requests < left
}

// launch gives a send to the transport; false means that it has no room. A send that was
// queued leaves the queue.
func (p *peer) launch(op *Op) bool {
	e := p.e
	eager := !op.sync && len(op.buf) <= e.cfg.EagerLimit
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
		op.endSend(Status{}, p.sendError(err))
	case eager:
		p.out.charged += unexpected.EagerCost(len(op.buf))
		e.m.EagerSent++
		op.complete(e.sentStatus(op.tag, len(op.buf)), nil)
	default:
		p.out.charged += unexpected.RecordCost
		p.out.requests++
		op.move(opRequested)
	}
	return true
}
