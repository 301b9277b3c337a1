package tmsrq

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// done handles the completion of a list operation.
func (l *tagList) done(wc *verbs.WC) {
	kind, slot := wc.WRID>>kindShift, uint32(wc.WRID>>32)&genMask
	if invariant.Enabled {
		invariant.Check(uint32(wc.WRID)-l.reclaimed < l.posted-l.reclaimed, "once", "list operation %d completes, %d are posted and %d done", uint32(wc.WRID), l.posted, l.reclaimed)
	}
	l.reclaimed = uint32(wc.WRID) + 1
	if int(slot) >= len(l.entries) || wc.Status != verbs.WCSuccess && (kind != kindDel || wc.Status != verbs.WCTMErr) {
		l.t.Break(fmt.Errorf("list operation %#x: %v", wc.WRID, wc.Status))
		return
	}
	e := &l.entries[slot]
	switch kind {
	case kindSync:
		if wc.WRID == l.syncing {
			l.syncing = 0
		}
	case kindAdd:
		e.owed--
		l.settle(slot)
	case kindDel:
		l.deleted(slot, e, wc.Status == verbs.WCSuccess)
	}
}

// deleted handles the outcome of a signalled DEL (TMO 6.6): the user's, or a forced one that was
// signalled for the queue's sake.
func (l *tagList) deleted(slot uint32, e *entry, ok bool) {
	id, tell := e.id, e.deleting
	switch {
	case e.state != entryListed && ok != (e.state == entryRemoved):
		l.t.Break(fmt.Errorf("the device deletes receive %d, which is %v: %v", id, e.state, ok))
		return
	case e.state == entryListed && ok:
		l.leave(e, entryRemoved)
	}
	e.owed--
	if ok {
		e.owed--
	}
	l.settle(slot)
	if tell {
		l.t.sink.Deleted(id, ok)
	}
}

// received handles a completion of a receive in the list (TMO 4.2).
func (l *tagList) received(wc *verbs.WC) {
	slot, gen := uint32(wc.WRID), uint32(wc.WRID>>32)&genMask
	if int(slot) >= len(l.entries) || l.entries[slot].gen != gen || !l.entries[slot].open() {
		l.t.Break(fmt.Errorf("the device matches a receive, %#x, that was taken out of its list", wc.WRID))
		return
	}
	e := &l.entries[slot]
	match, last := wc.Flags&verbs.WCFlagTMMatch != 0, wc.Flags&verbs.WCFlagTMDataValid != 0
	switch wc.Status {
	case verbs.WCSuccess:
		if match == (e.state == entryMatched) || !match && !last {
			l.t.Break(fmt.Errorf("the device completes a receive with flags %#x, which is %v", uint32(wc.Flags), e.state))
			return
		}
	case verbs.WCTMRndvIncomplete:
		e.partial = true
		last = last || !match
		if !match && e.state == entryListed {
			l.matchBy(e, wc)
		}
	default:
		l.fails(e, wc)
		match, last = false, true
	}
	if match && e.state == entryListed {
		l.match(e, wc.QPNum, wc.Tag, wc.Priv)
	}
	if wc.Flags&verbs.WCFlagWithImm != 0 {
		e.marked, e.imm = true, wc.Imm
	}
	if last {
		l.end(slot, e, wc)
	}
}

// matchBy is for a device that says nothing of the match in the completion of a rendezvous that it
// leaves to software: the headers in the buffer tell.
func (l *tagList) matchBy(e *entry, wc *verbs.WC) {
	tmh := verbs.ParseTMH(e.landing)
	l.match(e, wc.QPNum, tmh.Tag, tmh.AppCtx)
}

// match tells the sink of a match, which unlinks the receive (V5). Who sent the message is its own
// word, checked against the queue pair where the completion names it.
func (l *tagList) match(e *entry, qpn uint32, tag uint64, appCtx uint32) {
	t := l.t
	e.tag, e.appCtx = tag, appCtx
	claim, rank := sourceOf(tag, appCtx), t.Rank(qpn)
	switch {
	case rank < 0 && claim >= t.cfg.Size:
		e.bad = fmt.Errorf("transport/tmsrq: a message of rank %d: the job has %d", claim, t.cfg.Size)
		claim = -1
	case rank < 0 && !t.Connected(claim):
		e.bad = fmt.Errorf("transport/tmsrq: a message of rank %d, which is not connected to this device", claim)
		claim = -1
	case rank >= 0 && claim != rank:
		t.ProtocolError(rank, fmt.Errorf("it sends as rank %d", claim))
		claim = rank
	}
	if claim >= 0 && t.Discards(claim) {
		e.bad = t.LinkErr(claim)
	}
	l.matchFrom(e, claim)
}

func (l *tagList) matchFrom(e *entry, src int) {
	e.src = src
	l.move(e, entryMatched)
	if src >= 0 {
		l.t.Hold(src, 1)
	}
	l.t.sink.Matched(e.id, src, e.appCtx, e.tag)
}

// fails handles an error status. It says nothing of the match: the sink is told, if it was not, so
// that it unlinks the receive.
func (l *tagList) fails(e *entry, wc *verbs.WC) {
	t := l.t
	if wc.Status == verbs.WCRemAccessErr && e.state == entryMatched && e.src >= 0 && t.LinkErr(e.src) == nil {
		e.bad = transport.ErrWithdrawn // the device's read failed alone
		return
	}
	t.RecvFailed(wc) // ends the link
	if e.state == entryListed {
		l.matchFrom(e, t.Rank(wc.QPNum))
	}
	e.bad = fmt.Errorf("transport/tmsrq: receiving a matched message: %w", &verbs.StatusError{Status: wc.Status})
	if e.src >= 0 && t.LinkErr(e.src) != nil {
		e.bad = t.LinkErr(e.src)
	}
}

// outcome is how a receive ends.
type outcome struct {
	n    uint64
	err  error
	rndv bool // software has to fetch the message that Transport.hdr describes
}

// end handles the last completion of a receive. Its slot and buffers are free when the sink hears
// of it.
func (l *tagList) end(slot uint32, e *entry, wc *verbs.WC) {
	t := l.t
	out := l.outcome(e, wc)
	id, src := e.id, e.src
	l.leave(e, entryEnded)
	e.owed--
	l.settle(slot)
	if src >= 0 {
		t.Hold(src, -1)
	}
	switch {
	case out.err != nil:
		t.sink.Delivered(id, 0, out.err)
	case out.rndv:
		t.sink.Incomplete(id, &t.hdr)
	default:
		t.sink.Delivered(id, out.n, nil)
	}
}

func (l *tagList) outcome(e *entry, wc *verbs.WC) outcome {
	t := l.t
	if e.bad != nil {
		return outcome{err: e.bad}
	}
	data := wc.Data
	if data == nil {
		data = e.landing[:min(uint64(wc.ByteLen), uint64(len(e.landing)))]
	}
	switch {
	case e.partial:
		return l.incomplete(e)
	case e.marked:
		return t.request(e, data)
	case wc.Data != nil || e.bounce >= 0:
		copy(e.buf, data)
	}
	return outcome{n: uint64(wc.ByteLen)}
}

// incomplete is a rendezvous that the device left to software, or gave up because its queue pair
// failed, which leaves no headers (TMO 4.3, 9).
func (l *tagList) incomplete(e *entry) outcome {
	if e.src >= 0 {
		if err := l.t.LinkErr(e.src); err != nil {
			return outcome{err: err}
		}
	}
	return l.t.checked(e, parseIncomplete(e.landing, e.tag, &l.t.hdr))
}

// request is a matched software rendezvous request.
func (t *Transport) request(e *entry, data []byte) outcome {
	if e.imm != rtsMark {
		return t.checked(e, fmt.Errorf("a message with immediate data %#x", e.imm))
	}
	err := parseRTS(data, e.tag, e.src, &t.hdr)
	if err == nil { // the header may lie in the very buffer that the data goes to
		t.hdr.Extra = t.extra[:copy(t.extra[:], t.hdr.Extra)]
	}
	return t.checked(e, err)
}

func (t *Transport) checked(e *entry, err error) outcome {
	if err == nil {
		return outcome{rndv: true}
	}
	if e.src < 0 {
		return outcome{err: err}
	}
	t.ProtocolError(e.src, err)
	return outcome{err: t.LinkErr(e.src)}
}
