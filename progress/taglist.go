package progress

import (
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// A receive in the tag list is in state opOffloaded. There are three ways out. The device matches
// it: it leaves the posted-receive queue (V5), and Delivered or Incomplete follows. Or an
// unexpected message matches it in software, and a forced DEL removes it. Or a signalled DEL
// removes it, because it was cancelled or its peer is lost, and Deleted ends it, unless the device
// has matched it before (TMO 6.6).

// Matched follows that the device has matched a receive.
func (s *sink) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	e := s.engine()
	op := e.off.slots.byID(id)
	if op == nil || op.state != opOffloaded && op.state != opCancelling {
		s.notOffloaded("match", id)
		return
	}
	listed := op.state == opOffloaded
	if !listed {
		s.delAnswered()
	} else {
		op.unpost()
		e.inv.received(e, tag, op)
	}
	op.tag, op.err = tag, nil
	op.read = readState{src: src, appCtx: appCtx, seq: e.unexp.NextSeq()}
	op.move(opMatched)
	e.off.gone(op)
	e.off.end(false)
	if uint(src) >= uint(len(e.peers)) {
		return
	}
	p := e.peer(src)
	if t := e.trace; t != nil {
		t.matchedBy(op, p)
	}
	if p.inspected {
		p.answer(tag)
	}
	// The loss of a rank has removed the receives that could be its own: this one came later.
	op.read.refused = listed && p.lost != nil || len(e.contexts.confined) != 0 && p.intrudes(tag)
}

// Delivered ends a matched receive whose message is in its buffer, or never will be: err says why
// not: the peer is lost, has withdrawn the message, or a buffer of it cannot be accessed.
func (s *sink) Delivered(id uint64, n uint64, err error) {
	e := s.engine()
	op := s.matched("delivery", id)
	if op == nil {
		return
	}
	if uint(op.read.src) < uint(len(e.peers)) {
		e.peers[op.read.src].forgetWithdraws()
	}
	p := op.source(err)
	if p == nil {
		return
	}
	eager, cost := op.read.appCtx&rndvName == 0, uint64(unexpected.RecordCost)
	if eager {
		cost = unexpected.EagerCost(int(n))
	}
	if eager && int64(op.read.appCtx) != int64(p.rank) {
		p.lose(protocolError("rank %d sends as rank %d", p.rank, op.read.appCtx))
	} else {
		p.pass(cost)
	}
	if p.lost != nil {
		op.complete(Status{}, peerError(p.rank, p.lost))
		return
	}
	if eager {
		e.m.EagerReceived++
		p.cameBytes.eager += n
	} else {
		p.cameRndv(n)
	}
	got := min(n, uint64(len(op.buf)))
	op.complete(Status{p.rank, op.tag, int64(n)}, e.m.truncated(int(got), n))
}

// Incomplete takes over the read of a rendezvous request that the device has matched, and leaves to
// software (TMO 6.7).
func (s *sink) Incomplete(id uint64, h *transport.RndvHdr) {
	s.engine()
	op := s.matched("rendezvous", id)
	if op == nil {
		return
	}
	p := op.source(nil)
	if p == nil {
		return
	}
	r, err := checkMatchedRndv(p.rank, h)
	if err != nil {
		p.lose(err)
		op.complete(Status{}, peerError(p.rank, p.lost))
		return
	}
	if !p.pass(unexpected.RecordCost) {
		op.complete(Status{}, peerError(p.rank, p.lost))
		return
	}
	if t := p.e.trace; t != nil {
		t.left(op, p, h)
	}
	r.seq, r.withdraw = op.read.seq, op.read.withdraw
	p.identified(&r)
	op.read = r
	op.startRead()
}

// checkMatchedRndv is checkRndv for a request that the device has matched, which need not report
// the software header.
func checkMatchedRndv(src int, h *transport.RndvHdr) (readState, error) {
	if len(h.Extra) != 0 {
		return checkRndv(src, h)
	}
	if h.Len > maxMessage || h.VA+h.Len < h.VA {
		return readState{}, protocolError("rank %d offers %d bytes at %#x", src, h.Len, h.VA)
	}
	return readState{src: src, appCtx: h.AppCtx, rkey: h.RKey, va: h.VA, total: h.Len}, nil
}

// matched finds the matched receive that id names, and frees its slot.
func (s *sink) matched(what string, id uint64) *Op {
	op := s.off.slots.byID(id)
	if op == nil || op.state != opMatched {
		s.notOffloaded(what, id)
		return nil
	}
	s.off.release(op.slot)
	if t := s.trace; t != nil {
		t.owe(&op.read, -1)
	}
	return op
}

// source returns the sender of a matched message. If err is not nil, or the source is no rank that
// may send there, it ends the receive, or sends it back, and returns nil.
func (op *Op) source(err error) *peer {
	e := op.e
	src := op.read.src
	switch {
	case err != nil && e.broken != nil:
		op.complete(Status{}, e.broken)
	case src < 0 || src >= len(e.peers):
		op.complete(Status{}, protocolError("a message of nobody, rank %d of %d: %v", src, len(e.peers), err))
	case op.read.refused:
		op.goBack()
	case err == transport.ErrDeregistered && op.revokedInDevice():
		e.peers[src].pass(unexpected.RecordCost)
	case op.failsAlone(err):
		e.peers[src].pass(unexpected.RecordCost) // the request came, whatever has become of the message
	case err != nil:
		p := e.peers[src]
		p.lose(err)
		op.complete(Status{}, peerError(src, p.lost))
	default:
		return e.peers[src]
	}
	return nil
}

// Deleted is the outcome of a DEL. Where ok is false the device had matched the receive before,
// which ends as a matched one.
func (s *sink) Deleted(id uint64, ok bool) {
	e := s.engine()
	if !ok {
		e.off.m.DelsLost++
		return
	}
	op := e.off.slots.byID(id)
	if op == nil || op.state != opCancelling {
		s.notOffloaded("deletion", id)
		return
	}
	e.off.gone(op)
	s.delAnswered()
	e.off.release(op.slot)
	op.complete(Status{}, op.err)
}

func (s *sink) notOffloaded(what string, id uint64) {
	(*Engine)(s).breakLocked(protocolError("device reports the %s of receive %#x, which it has not got", what, id))
}

// del has the device remove a receive, which ends with cause unless the device has matched it
// before. The receive leaves the posted-receive queue when the DEL is posted. Unexpected messages
// do not find it from then on, and every operation that reports those messages comes after the DEL.
func (op *Op) del(cause error) {
	e := op.e
	op.unpost()
	op.err = cause
	op.move(opCancelling)
	e.keptInDevice(e.off.del(op))
}

// keptInDevice reports that a receive could not be removed from the device: its transport has
// failed, as the next Poll says, and may write to the buffer until it is closed.
func (e *Engine) keptInDevice(err error) {
	if err != nil {
		e.log.Warn("receive stays in the device", "rank", e.cfg.Rank, "err", err)
	}
}

// pollingEndedLocked tells a device that works by itself that nobody polls any more, and that it
// could move something large: for a receive in its list, or a rendezvous at either end.
func (e *Engine) pollingEndedLocked() {
	if e.broken != nil {
		return
	}
	e.off.pollingEnded()
	e.cfg.PollingEnded()
}

// leaveLocked is the end of a call that has posted something, or has polled, and does not wait.
func (e *Engine) leaveLocked() {
	if e.wait.Large != 0 && e.cfg.PollingEnded != nil && !e.wait.Polling() {
		e.pollingEndedLocked()
	}
}

// covered reports whether all messages that a receive could get come by the device with the list
// (TMO 6.4).
func (op *Op) covered() bool {
	e := op.e
	switch {
	case e.off.foreign == 0:
		return true
	case op.peer < AnySource:
		return !e.sources.group(op.peer).foreign
	}
	return op.peer >= 0 && !e.peers[op.peer].foreign
}

// forged looks at a message of an inspected peer that arrives, and refuses one that came by another
// device than the list's and would match a receive that was offloaded, so one whose source sends by
// the list's device: the tag names another rank than its sender, which is lost.
func (p *peer) forged(tag uint64) bool {
	p.answer(tag)
	if !p.foreign {
		return false
	}
	op, _, ok := p.e.posted.Find(tag)
	if !ok || op.state != opOffloaded {
		return false
	}
	p.lose(protocolError("rank %d sends tag %#x in the name of another rank", p.rank, tag))
	return true
}
