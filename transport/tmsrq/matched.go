package tmsrq

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
)

// done handles the completion of a list operation.
func (l *tagList) done(wc *verbs.WC) {
	kind, slot := wc.WRID>>kindShift, uint32(wc.WRID>>32)&genMask
	l.checkDone(uint32(wc.WRID))
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

// deleted handles the completion of a signalled DEL (TMO 6.6): that of a Del, or a forced one that
// is signalled only to make room. ok means that the device has removed the entry.
func (l *tagList) deleted(slot uint32, e *entry, ok bool) {
	id, deleting := e.id, e.deleting
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
	if deleting {
		l.t.sink.Deleted(id, ok)
	}
}

// received handles a completion of a receive in the list (TMO 4.2): of two, or the only one.
func (l *tagList) received(wc *verbs.WC) {
	slot, gen := uint32(wc.WRID), uint32(wc.WRID>>32)&genMask
	if int(slot) >= len(l.entries) || l.entries[slot].gen != gen || !l.entries[slot].open() {
		l.t.Break(fmt.Errorf("the device matches a receive, %#x, that was taken out of its list", wc.WRID))
		return
	}
	e := &l.entries[slot]
	match, last := wc.Flags&verbs.WCFlagTMMatch != 0, wc.Flags&verbs.WCFlagTMDataValid != 0
	if e.state == entryMatched {
		l.named(e, wc.QPNum)
	}
	switch wc.Status {
	case verbs.WCSuccess:
		if match == (e.state == entryMatched) || !match && !last {
			l.t.Break(fmt.Errorf("the device completes a receive with flags %#x, which is %v", uint32(wc.Flags), e.state))
			return
		}
	case verbs.WCTMRndvIncomplete:
		if e.state == entryMatched && !e.partial {
			l.abandoned(e)
			match, last = false, true
			break
		}
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

// matchBy reports a match by the header in the receive's buffer: for devices whose completion of a
// rendezvous that they leave to software does not describe the match.
func (l *tagList) matchBy(e *entry, wc *verbs.WC) {
	tmh := verbs.ParseTMH(e.landing)
	l.match(e, wc.QPNum, tmh.Tag, tmh.AppCtx)
}

// match reports a match to the sink, which unlinks the receive (V5). The message itself says which
// rank it is from, which is checked against the queue pair if the completion names one: qpn is one
// of this transport then.
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

// named follows a completion behind the match, which may be the first that names a queue pair: the
// message of one that has sent in the name of another rank does not count, and is not blamed on
// that.
func (l *tagList) named(e *entry, qpn uint32) {
	t, rank := l.t, l.t.Rank(qpn)
	if rank < 0 || rank == e.src {
		return
	}
	err := e.bad
	if e.src >= 0 {
		err = fmt.Errorf("it sends as rank %d", e.src)
	}
	t.ProtocolError(rank, err)
	e.bad = t.LinkErr(rank)
}

// matchFrom reports a match with a message of rank src, -1 if unknown; e.tag and e.appCtx are set.
// The loss of src is reported only after the receive has ended.
func (l *tagList) matchFrom(e *entry, src int) {
	e.src = src
	l.move(e, entryMatched)
	if src >= 0 {
		l.t.DeferLoss(src, 1)
	}
	l.t.sink.Matched(e.id, src, e.appCtx, e.tag)
}

// fails handles the error status of a receive, which will end with e.bad. The completion does not
// describe a match; if none was reported it is reported now, so that the sink unlinks the receive.
func (l *tagList) fails(e *entry, wc *verbs.WC) {
	t := l.t
	if alone := t.OfRead(wc.Status); alone != nil && e.state == entryMatched && e.src >= 0 && e.bad == nil && t.LinkErr(e.src) == nil {
		e.bad = alone // the device's read did
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

// abandoned handles the end of a receive whose match was reported as that of any message: its
// transfer was given up, since its queue pair has failed (code 0xC of TMO 4.3).
func (l *tagList) abandoned(e *entry) {
	if e.src >= 0 && e.bad == nil {
		l.t.Flushed(e.src)
		e.bad = l.t.LinkErr(e.src)
	}
}

// outcome is how a receive ends: with err, by software that reads what Transport.hdr describes, or
// with a message of n bytes, as much as fits of them in its buffer.
type outcome struct {
	n    uint64
	err  error
	rndv bool
}

// end handles the last completion of a receive. Its buffers are released, and its slot is if
// possible, before the sink is called.
func (l *tagList) end(slot uint32, e *entry, wc *verbs.WC) {
	t := l.t
	out := l.outcome(e, wc)
	id, src := e.id, e.src
	l.leave(e, entryEnded)
	e.owed--
	l.settle(slot)
	if src >= 0 {
		t.DeferLoss(src, -1)
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

// outcome evaluates the last completion of a receive, and copies the message from where the device
// has put or lends it.
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

// incomplete evaluates a rendezvous that the device leaves to software. If its queue pair has
// failed there may be no headers in the buffer (TMO 4.3, 9).
func (l *tagList) incomplete(e *entry) outcome {
	if e.src >= 0 {
		if err := l.t.LinkErr(e.src); err != nil {
			return outcome{err: err}
		}
	}
	return l.t.checked(e, parseIncomplete(e.landing, e.tag, &l.t.hdr))
}

// request evaluates a matched message with immediate data: a software rendezvous request, or a
// breach of the protocol.
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

// checked is the outcome of a rendezvous whose headers were decoded with err: if it is not nil it
// ends the link.
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
