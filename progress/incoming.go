package progress

import (
	"slices"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

// The receiver's side of flow control. A peer sends within its credit (internal/credit). That bound
// yields to a receive that waits, and to nothing else: a peer whose sends are held up (outgoing.go)
// is sent a WANT with tag and mask of each posted receive that it could satisfy, all of them when
// its HELD arrives, and each one that is posted while it is held up. The receive may be in software
// or in the device. A WANT is a permission to send one message that matches, and binds neither
// side: where its receive gets another message or is cancelled, the next receive takes its slot, or
// one message arrives beyond the bound.
//
// A probe that does not block asks likewise where it finds nothing, once: until a message that it
// matches has come of that peer, the next one with the same tag and mask asks no more. A receive
// may take its slot; then the next probe asks again.

// sentWant is a posted receive, or a probe that does not block, for which a WANT was sent, or is to
// be sent.
type sentWant struct {
	handle    matching.Handle // in Engine.posted; stale once the receive is matched or has ended
	tag, mask uint64
	order     uint64 // WANTs are sent in the order of their receives
	due       bool   // it is to be sent
	probe     bool   // it is a probe's, which is not in Engine.posted; no longer once a message has come
}

// waits tells whether w has a receive or a probe that waits.
func (w *sentWant) waits(posted *matching.Posted[*Op]) bool {
	_, ok := posted.Stamp(w.handle)
	return ok || w.probe
}

// incoming is the receiver's side of flow control with one peer.
type incoming struct {
	account credit.Account
	episode uint32     // of the peer's last HELD; odd while the peer is held up
	wants   []sentWant // the index is the slot that the WANT names; at most maxWants
	all     bool       // more receives wait than there are slots: the peer may send its whole queue
	allDue  bool       // and that is to be sent
	credit  bool       // there is a grant (account.Granted) that is to be sent
	order   uint64     // of the newest in wants
}

func (in *incoming) heldUp() bool { return in.episode&1 != 0 }

// charge adds a message's cost to the credit that p has used. Without credit for it p has broken
// the protocol: it is lost, and the message is not to be kept.
func (p *peer) charge(cost uint64) bool { return p.in.account.Charge(cost) || p.overdrawn() }

func (p *peer) overdrawn() bool {
	p.lose(protocolError("rank %d sent more than its credit of %d bytes", p.rank, p.in.account.Granted()))
	return false
}

// kept is called when a message of length n was queued as unexpected: p may need a larger window.
func (p *peer) kept(n uint64) {
	p.e.m.Unexpected++
	p.e.m.UnexpectedBySize[sizeClass(n)]++
	if p.in.account.Short() && p.in.account.Grow() {
		p.grant()
	}
}

// consumed is called when messages of p have left this rank's memory: their cost is free again.
func (p *peer) consumed(cost uint64) {
	if cost != 0 && p.in.account.Consume(cost) {
		p.grant()
		p.e.growNextLocked()
	}
}

// pass charges what never was in this rank's memory, and gives it back.
func (p *peer) pass(cost uint64) bool {
	if !p.charge(cost) {
		return false
	}
	p.consumed(cost)
	return true
}

// growNextLocked gives memory that has become free to one of the peers that are held up, round
// robin.
func (e *Engine) growNextLocked() {
	if len(e.heldUp) == 0 {
		return
	}
	e.turn++
	q := &e.peers[e.heldUp[e.turn%len(e.heldUp)]]
	if q.in.account.Grow() {
		q.grant()
	}
}

// grant raises what p may send in all, as far as its window allows, and lets p know.
func (p *peer) grant() {
	if p.lost == nil && p.in.account.Renew() {
		p.in.credit = true
		p.e.m.Grants++
		p.tell()
	}
}

// tell lets p know of its credit and of the receives that wait for its messages. A peer that is
// held up may sleep: it needs a message, which waits while the transport has no room. For others a
// store into their memory is enough, which always has room.
func (p *peer) tell() {
	switch in := &p.in; {
	case in.heldUp():
		if !p.tellWants() {
			p.markDirty()
		}
	case in.credit:
		in.credit = false
		_ = p.e.tr.Grant(p.rank, in.account.Granted()) // fails for a peer that is lost, which the transport reports
	}
}

// tellWants sends the WANTs that are due, in the order of their receives; false means that there
// was no room. While a receive is recalled none are sent: it may still take a message which was
// sent for the WANT of a later one.
func (p *peer) tellWants() bool {
	in := &p.in
	settled := p.e.off.recalled == 0
	if settled && in.allDue {
		if !p.sendWant(wantBody{slot: wantAll}) {
			return false
		}
		in.allDue = false
	}
	for settled && !in.all {
		slot := in.dueNext()
		if slot < 0 {
			break
		}
		w := &in.wants[slot]
		if w.waits(p.e.posted) && !p.sendWant(wantBody{slot: uint8(slot), tag: w.tag, mask: w.mask}) {
			return false
		}
		w.due = false
	}
	return !in.credit || p.sendWant(wantBody{slot: wantNone})
}

// dueNext is the slot of the earliest receive whose WANT is due, or -1.
func (in *incoming) dueNext() int {
	next := -1
	for i := range in.wants {
		if in.wants[i].due && (next < 0 || in.wants[i].order < in.wants[next].order) {
			next = i
		}
	}
	return next
}

// sendWant sends one WANT, which carries the newest grant; false means that there was no room.
func (p *peer) sendWant(w wantBody) bool {
	w.allowed = p.in.account.Granted()
	if !p.tryCtrl(ctrl{kind: ctrlWant, id: p.in.episode, body: w.encode()}) {
		return false
	}
	p.in.credit = false
	if w.slot != wantNone {
		p.in.account.AllowExcess()
		p.e.m.WantsSent++
	}
	return true
}

// takeHeld handles p's HELD: its sends to this rank are held up, or are no more.
func (p *peer) takeHeld(episode uint32, h heldBody) {
	e := p.e
	in := &p.in
	was := in.heldUp()
	in.episode = episode
	in.wants, in.all, in.allDue = in.wants[:0], false, false
	if !in.heldUp() {
		if was {
			e.heldUp = slices.DeleteFunc(e.heldUp, func(r int) bool { return r == p.rank })
		}
		return
	}
	if !was {
		e.heldUp = append(e.heldUp, p.rank)
	}
	a := &in.account
	a.EndExcess(h.charged)
	if a.Granted() <= h.allowed && a.Grow() && a.Renew() {
		e.m.Grants++
	}
	in.credit = a.Granted() > h.allowed
	fit := e.from[0] + e.from[1+p.rank] // spares the search among the receives from other ranks, which may be many
	for handle, op := range e.posted.All() {
		if fit == 0 || in.all {
			break
		}
		if op.peer < 0 || op.peer == p.rank {
			fit--
			if op.accepts(p.rank) {
				in.want(e.posted, sentWant{handle: handle, tag: op.tag, mask: op.mask})
			}
		}
	}
	p.tell()
}

// wantFromHeldUp sends a WANT for a receive that was just posted to each peer that is held up and
// could satisfy it.
func (op *Op) wantFromHeldUp() {
	e := op.e
	if op.peer >= 0 {
		e.peers[op.peer].want(op)
		return
	}
	for _, r := range e.heldUp {
		if op.accepts(r) {
			e.peers[r].want(op)
		}
	}
}

func (p *peer) want(op *Op) {
	if p.in.heldUp() && p.in.want(p.e.posted, sentWant{handle: op.handle, tag: op.tag, mask: op.mask}) {
		p.tell()
	}
}

// askLocked sends a WANT for a probe that does not block, and has found nothing, to each peer that
// is held up and could satisfy it.
func (e *Engine) askLocked(src int, tag, mask uint64) {
	for _, r := range e.heldUp {
		if e.accepts(src, r) {
			e.peers[r].ask(tag, mask)
		}
	}
}

func (p *peer) ask(tag, mask uint64) {
	in := &p.in
	if slices.ContainsFunc(in.wants, func(w sentWant) bool { return w.probe && w.tag == tag && w.mask == mask }) {
		return
	}
	if in.want(p.e.posted, sentWant{probe: true, tag: tag, mask: mask}) {
		p.inspected = true
		p.tell()
	}
}

// answer looks at a message of p that arrives: a probe may have asked for it, and may ask again.
func (p *peer) answer(tag uint64) {
	p.inspected = p.foreign
	for i := range p.in.wants {
		w := &p.in.wants[i]
		if w.probe && (w.tag^tag)&w.mask == 0 {
			w.probe, w.due = false, false
		}
		p.inspected = p.inspected || w.probe
	}
}

// recallAnsweredLocked is called when the device has removed, or matched, a recalled receive: WANTs
// may have waited for that.
func (e *Engine) recallAnsweredLocked() {
	if !e.off.answered() {
		return
	}
	for _, r := range e.heldUp {
		e.peers[r].tell()
	}
}

// want finds a slot for a receive or a probe: a new one, or that of a receive which does not wait
// any more, or of a probe. Where all slots have receives that wait, the peer may send its whole
// queue. It reports whether something is to be sent.
func (in *incoming) want(posted *matching.Posted[*Op], n sentWant) bool {
	if in.all {
		return false
	}
	in.order++
	n.order, n.due = in.order, true
	if len(in.wants) < maxWants {
		in.wants = append(in.wants, n)
		return true
	}
	i := slices.IndexFunc(in.wants, func(w sentWant) bool {
		_, waits := posted.Stamp(w.handle)
		return !waits
	})
	if i >= 0 {
		in.wants[i] = n
		return true
	}
	in.all, in.allDue = true, true
	return true
}

// forget ends flow control with a peer that is lost.
func (p *peer) forget() {
	e := p.e
	p.in.account.Close()
	if p.in.heldUp() {
		e.heldUp = slices.DeleteFunc(e.heldUp, func(r int) bool { return r == p.rank })
	}
	p.out.told = p.out.episode
	p.in.episode, p.in.wants, p.in.credit, p.in.all, p.in.allDue = 0, nil, false, false, false
}
