package progress

import (
	"slices"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

// What a peer may send is bounded by its credit, and the bound yields to a receive that waits, and
// to nothing else: to a peer that is held up (outgoing.go) each posted receive that no message has
// matched, and that this peer could satisfy, is named by a WANT, when the peer says that it is held
// up, and when a receive is posted while it is. The receive may be in software or in the device.
// Nothing is bound or promised by a WANT: it permits the peer to send, no more. One whose receive
// gets another message, or is cancelled, is replaced by the next, or costs one message beyond the
// bound.

// named is a receive as a peer that is held up was told it.
type named struct {
	handle    matching.Handle // in Engine.posted; stale once the receive has a message or has ended
	tag, mask uint64
	order     uint64 // of those that have to be told
	due       bool   // not told yet
}

// incoming is what this rank has from one peer, and allows it.
type incoming struct {
	account credit.Account
	episode uint32  // of the peer's HELD; odd while it is held up
	wants   []named // by slot, at most maxWants
	all     bool    // everything is wanted: more receives wait than can be named
	allDue  bool    // and the peer was not told
	credit  bool    // the peer has credit that it was not told
	order   uint64
}

func (in *incoming) heldUp() bool { return in.episode&1 != 0 }

// charge charges a message to p; one that p had no credit for ends it, and is refused.
func (p *peer) charge(cost uint64) bool {
	if p.in.account.Charge(cost) {
		return true
	}
	p.lose(protocolError("rank %d sent more than its credit of %d bytes", p.rank, p.in.account.Granted()))
	return false
}

// kept follows a message of length n that stays here: its sender may need a larger window.
func (p *peer) kept(n uint64) {
	p.e.m.Unexpected++
	p.e.m.UnexpectedBySize[sizeClass(n)]++
	if p.in.account.Short() && p.in.account.Grow() {
		p.grant()
	}
}

// consumed gives back what messages of p have cost.
func (p *peer) consumed(cost uint64) {
	if cost != 0 && p.in.account.Consume(cost) {
		p.grant()
		p.e.growNextLocked()
	}
}

// growNextLocked offers memory that has become free to a peer that is held up, to each in turn.
func (e *Engine) growNextLocked() {
	if len(e.held) == 0 {
		return
	}
	e.turn++
	q := &e.peers[e.held[e.turn%len(e.held)]]
	if q.in.account.Grow() {
		q.grant()
	}
}

// grant tells p what it is allowed by now. A peer that is held up sleeps, perhaps, and needs
// a message; for others a store into their memory does.
func (p *peer) grant() {
	if p.lost == nil && p.in.account.Renew() {
		p.in.credit = true
		p.e.m.Grants++
		p.tell()
	}
}

// tell tells p what it wants to know: credit, and the receives that wait for its
// messages. To one that is held up that takes messages, as far as there is room for them; a store
// into its memory needs none.
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

// tellWants posts the WANTs that are due, in the order of their receives; false means that
// there was no room. A receive that the device is asked to give up may still take a message that
// was sent for the WANT of a later one; so nothing is named until the device has answered.
func (p *peer) tellWants() bool {
	in := &p.in
	named := p.e.off.recalled == 0
	if named && in.allDue {
		if !p.sendWant(wantBody{slot: wantAll}) {
			return false
		}
		in.allDue = false
	}
	for named && !in.all {
		slot := in.dueNext()
		if slot < 0 {
			break
		}
		w := &in.wants[slot]
		if _, ok := p.e.posted.Stamp(w.handle); ok && !p.sendWant(wantBody{slot: uint8(slot), tag: w.tag, mask: w.mask}) {
			return false
		}
		w.due = false
	}
	return !in.credit || p.sendWant(wantBody{slot: wantNone})
}

// dueNext is the slot of the earliest receive that the peer was not told, or -1.
func (in *incoming) dueNext() int {
	next := -1
	for i := range in.wants {
		if in.wants[i].due && (next < 0 || in.wants[i].order < in.wants[next].order) {
			next = i
		}
	}
	return next
}

// sendWant posts one WANT, with the credit that there is by now; false means that there was no
// room.
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

// takeHeld takes a peer's HELD.
func (p *peer) takeHeld(episode uint32, h held) {
	e := p.e
	in := &p.in
	was := in.heldUp()
	in.episode = episode
	in.wants, in.all, in.allDue = in.wants[:0], false, false
	if !in.heldUp() {
		if was {
			e.held = slices.DeleteFunc(e.held, func(r int) bool { return r == p.rank })
		}
		return
	}
	if !was {
		e.held = append(e.held, p.rank)
	}
	a := &in.account
	a.EndExcess(h.charged)
	if a.Granted() <= h.allowed && a.Grow() && a.Renew() {
		e.m.Grants++
	}
	in.credit = a.Granted() > h.allowed
	fit := e.from[0] + e.from[1+p.rank] // others may be many, and this peer held up often
	for handle, op := range e.posted.All() {
		if fit == 0 || in.all {
			break
		}
		if op.peer == p.rank || op.peer == AnySource {
			in.name(e.posted, handle, op)
			fit--
		}
	}
	p.tell()
}

// nameToHeld names a receive that was just posted to the peers that are held up and could satisfy
// it.
func (op *Op) nameToHeld() {
	e := op.e
	if op.peer != AnySource {
		e.peers[op.peer].name(op)
		return
	}
	for _, r := range e.held {
		e.peers[r].name(op)
	}
}

func (p *peer) name(op *Op) {
	if p.in.heldUp() && p.in.name(p.e.posted, op.handle, op) {
		p.tell()
	}
}

// recallAnsweredLocked follows a receive that the device was asked to give up, and has given up or
// matched.
func (e *Engine) recallAnsweredLocked() {
	if !e.off.answered() {
		return
	}
	for _, r := range e.held {
		e.peers[r].tell()
	}
}

// name gives a receive a slot: a new one, or that of a receive which does not wait any more. When
// there is none, more receives wait than can be named, and everything is wanted. It reports whether
// there is something to tell.
func (in *incoming) name(posted *matching.Posted[*Op], handle matching.Handle, op *Op) bool {
	if in.all {
		return false
	}
	in.order++
	n := named{handle: handle, tag: op.tag, mask: op.mask, order: in.order, due: true}
	if len(in.wants) < maxWants {
		in.wants = append(in.wants, n)
		return true
	}
	i := slices.IndexFunc(in.wants, func(w named) bool {
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

// forget drops what flow control knows of a peer that is lost.
func (p *peer) forget() {
	e := p.e
	p.in.account.Close()
	if p.in.heldUp() {
		e.held = slices.DeleteFunc(e.held, func(r int) bool { return r == p.rank })
	}
	p.out.told = p.out.episode
	p.in.episode, p.in.wants, p.in.credit, p.in.all, p.in.allDue = 0, nil, false, false, false
}
