package progress

import "github.com/tagmatch/tagmatch/progress/internal/flow"

// The receiver's side of flow control: what package flow decides is counted and told here. A peer
// that is held up gets a WANT for each posted receive that it could satisfy, all of them when its
// HELD arrives, and each one that is posted while it is held up. The receive may be in software or
// in the device.

// charge adds a message's cost to the credit that p has used. Without credit for it p has broken
// the protocol: it is lost, and the message is not to be kept.
func (p *peer) charge(cost uint64) bool { return p.in.Charge(cost) || p.overdrawn() }

func (p *peer) overdrawn() bool {
	p.lose(protocolError("rank %d sent more than its credit of %d bytes", p.rank, p.in.Granted()))
	return false
}

// kept follows a message of length n that was queued as unexpected: p may need a larger window.
func (p *peer) kept(n uint64) {
	p.e.m.Unexpected++
	p.e.m.UnexpectedBySize[sizeClass(n)]++
	if p.in.Short() && p.in.Grow() {
		p.grant()
	}
}

// consumed follows messages of p that have left this rank's memory: their cost is free again, for p
// and for those that are held up.
func (p *peer) consumed(cost uint64) {
	if cost != 0 && p.in.Consume(cost) {
		p.grant()
		if r := p.e.memory.Grow(); r != nil {
			p.e.peers[r.Rank].grant()
		}
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

// grant raises what p may send in all, as far as its window allows, and lets p know.
func (p *peer) grant() {
	if p.lost == nil && p.in.Renew() {
		p.e.m.Grants++
		p.tell()
	}
}

// tell lets p know of its credit and of the receives that wait for its messages. A peer that is
// held up may sleep: it needs messages, which wait while the transport has no room. For others a
// store into their memory is enough, which always has room.
func (p *peer) tell() {
	if !p.in.HeldUp() {
		if credit, due := p.in.Grant(); due {
			_ = p.e.tr.Grant(p.rank, credit) // fails for a peer that is lost, which the transport reports
		}
		return
	}
	for w, due := p.in.Due(p.e.off.settled()); due; w, due = p.in.Due(p.e.off.settled()) {
		if !p.tryCtrl(ctrl{kind: ctrlWant, id: w.Episode, body: encodeWant(w)}) {
			return
		}
		p.in.Told(w)
		p.asked++
		if w.Slot != flow.None {
			p.e.m.WantsSent++
		}
	}
}

// takeHeld handles p's HELD.
func (p *peer) takeHeld(h flow.Held) {
	e := p.e
	if p.in.Held(h) {
		e.m.Grants++
	}
	if !p.in.HeldUp() {
		return
	}
	fit := e.fromAny + p.from // spares the search among the receives from other ranks, which may be many
	for handle, op := range e.posted.All() {
		if fit == 0 || p.in.All() {
			break
		}
		if op.peer < 0 || op.peer == p.rank {
			fit--
			if op.accepts(p.rank) {
				p.in.Post(handle, op.tag, op.mask)
			}
		}
	}
	p.tell()
}

// wantFromHeldUp sends a WANT for a receive that was just posted to each peer that is held up and
// could satisfy it.
func (op *Op) wantFromHeldUp() {
	if op.peer >= 0 {
		op.e.peers[op.peer].want(op)
		return
	}
	for _, r := range op.e.memory.HeldUp() {
		if op.accepts(r.Rank) {
			op.e.peers[r.Rank].want(op)
		}
	}
}

func (p *peer) want(op *Op) {
	if p.in.Post(op.handle, op.tag, op.mask) {
		p.tell()
	}
}

// answer looks at a message of p that arrives: a probe may have asked for it, and may ask again.
func (p *peer) answer(tag uint64) { p.inspected = p.in.Arrived(tag) || p.foreign }

// delAnswered follows what the device says of a cancelling receive, which it has removed or
// matched: WANTs may have waited for that.
func (s *sink) delAnswered() {
	if !s.off.answered() {
		return
	}
	for _, r := range s.memory.HeldUp() {
		s.peers[r.Rank].tell()
	}
}
