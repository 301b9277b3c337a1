package soft

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Values of rxMessage.kind.
const (
	rxPlain      uint8 = iota // no tag matching
	rxTagged                  // received into an entry's buffer; MATCH was reported
	rxUnexpected              // received into an untagged buffer, and counted as unexpected
	rxNoTag                   // received into an untagged buffer
)

// recvTM receives a packet of a SEND to a tag-matching SRQ (rules 5 and 6 of TMO 5.2), whatever it
// is; recvSend knows a shorter way for eager messages of one packet.
func (q *queuePair) recvTM(l wire.Link, h *wire.Header, payload []byte) bool {
	rndv, over, ok := q.classify(l, h, payload)
	if over {
		return ok
	}
	if invariant.Enabled {
		defer q.tm.list.CheckArrival()()
		defer q.tm.checkUnexpected(q)()
	}
	return q.tm.match(q, h, payload, rndv) || q.untagged(h, payload, q.tm.reports, rxUnexpected)
}

// classify receives all that no entry can match. A message is what its first packet, which has the
// headers, says that it is. If it returns over, the packet is dealt with, and ok is that of
// wire.Receiver; else it begins a message that is to be matched.
func (q *queuePair) classify(l wire.Link, h *wire.Header, payload []byte) (rndv, over, ok bool) {
	if h.Flags&wire.FlagFirst == 0 {
		if f := q.tm.faults; f != nil && f.killsAt(q, l, h) {
			return false, true, true
		}
		return false, true, q.recvTMPart(l, h, payload)
	}
	if !q.accepts(l, h) {
		return false, true, true
	}
	f := q.tm.faults
	if f != nil {
		if over, ok := f.arrives(q, l, h); over {
			return false, true, ok
		}
	}
	if uint64(len(payload)) < min(h.Total, tmMaxRndvHdr) {
		q.d.violation(l, "the first packet of a tagged message has %d bytes only", len(payload))
		return false, true, true
	}
	op, least, most := verbs.TMHNoTag, uint64(verbs.TMHSize), uint64(maxMsgSize)
	if len(payload) > 0 {
		op = verbs.TMHOpcode(payload[0])
	}
	switch op {
	case verbs.TMHEager:
	case verbs.TMHRndv:
		rndv, least, most = true, verbs.TMHSize+verbs.RVHSize, tmMaxRndvHdr
	default:
		return false, true, q.untagged(h, payload, verbs.WCTMNoTag, rxNoTag)
	}
	switch {
	case h.Total < least || h.Total > most:
		q.rejectInvalid(h.PSN, "a tagged message of %d bytes", h.Total)
		return false, true, true
	case f != nil && f.RNRWhenEmpty && q.rq.head == q.rq.tail:
		return false, true, q.notReady(h)
	}
	return rndv, false, true
}

// match receives a message, or its first packet, if an entry matches its tag, and reports whether
// one does.
func (t *tagQueue) match(q *queuePair, h *wire.Header, payload []byte, rndv bool) (found bool) {
	tmh := verbs.ParseTMH(payload)
	e := t.list.Match(tmh.Tag)
	if e == nil {
		return false
	}
	t.checkMatched(q, e.Handle)
	if rndv {
		q.rndvMatched(h, payload, tmh, e)
	} else {
		q.eagerMatched(h, payload, tmh, e)
	}
	return true
}

// sgeOfEntry is the buffer of a tagged receive.
func sgeOfEntry(e *taglist.Entry) sge { return sge{e.Buf.Addr, e.Buf.Length, e.Buf.LKey} }

// eagerMatched receives an eager message, or its first packet, into the tagged buffer.
func (q *queuePair) eagerMatched(h *wire.Header, payload []byte, tmh verbs.TMH, e *taglist.Entry) {
	t := q.tm
	wc := verbs.WC{WRID: e.WRID, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMMatch, QPNum: q.num & t.names, Priv: tmh.AppCtx, Tag: tmh.Tag}
	body, size := payload[verbs.TMHSize:], h.Total-verbs.TMHSize
	m := &q.rx
	m.hnd, m.wrid, m.sges[0], m.nsge = e.Handle, e.WRID, sgeOfEntry(e), 1
	whole := h.Flags&wire.FlagLast != 0
	switch {
	case size > e.Buf.Length:
		q.matchFails(h.PSN, &wc, verbs.WCLocLenErr, verbs.WCRemInvReqErr) // TMO 6.8
		return
	case !q.scatter(m.sges[:1], 0, body):
		q.matchFails(h.PSN, &wc, verbs.WCLocProtErr, verbs.WCRemOpErr)
		return
	case whole && h.Total <= uint64(t.mtu(q)):
		wc.Flags |= verbs.WCFlagTMDataValid
		wc.ByteLen = uint32(size)
		withImm(&wc, h)
		t.cq.push(&wc, frees{tm: t, hnd: m.hnd}, h.Flags&wire.FlagSolicited != 0)
		q.executed(h)
		return
	}
	t.cq.push(&wc, frees{}, false)
	q.startMessage(h)
	m.kind, m.off = rxTagged, h.Total-size+uint64(len(body))
	if whole {
		q.messageDone(h)
	}
}

// withImm adds immediate data to a completion.
func withImm(wc *verbs.WC, h *wire.Header) {
	if h.Flags&wire.FlagImm != 0 {
		wc.Flags |= verbs.WCFlagWithImm
		wc.Imm = h.Imm
	}
}

// untagged receives a message, or its first packet, with its headers into the oldest untagged
// buffer.
func (q *queuePair) untagged(h *wire.Header, payload []byte, op verbs.WCOpcode, kind uint8) bool {
	rq := q.rq
	if rq.head == rq.tail {
		return q.notReady(h)
	}
	e := rq.oldest()
	if e.badSG || h.Total > e.size {
		q.recvFails(h.PSN)
		return true
	}
	var flags verbs.WCFlags
	if kind == rxUnexpected {
		flags = q.tm.list.Unexpected()
	}
	if h.Flags&wire.FlagLast == 0 {
		q.startMessage(h)
		q.takeRecv()
		q.rx.kind, q.rx.opcode, q.rx.flags = kind, op, flags
		return q.recvTMPart(nil, h, payload)
	}
	if wc := q.rcq.inPlace(rq); wc != nil {
		rq.checkDone(e.wrid)
		wc.WRID, wc.Opcode, wc.Flags, wc.ByteLen, wc.QPNum, wc.Data = e.wrid, op, flags, h.Length, q.num, payload
		withImm(wc, h)
	} else if !q.recvCopy(h, payload, op, flags) {
		q.forgetUnexpected(kind)
		q.recvFails(h.PSN)
		return true
	}
	q.executed(h)
	return true
}

// forgetUnexpected takes back the count of a message that will not be reported. Software could
// never handle it, and entries would stay dormant for ever.
func (q *queuePair) forgetUnexpected(kind uint8) {
	if kind == rxUnexpected {
		q.tm.list.Forget()
	}
}

// recvTMPart receives a packet of a message of several. l is nil for the first, which was checked.
func (q *queuePair) recvTMPart(l wire.Link, h *wire.Header, payload []byte) bool {
	if l != nil && (!q.accepts(l, h) || !q.fits(l, h)) {
		return true
	}
	m := &q.rx
	off := m.off
	if m.kind == rxTagged {
		off -= verbs.TMHSize
	}
	if !q.scatter(m.sges[:m.nsge], off, payload) {
		q.tmFails(h.PSN, verbs.WCLocProtErr, verbs.WCRemOpErr)
		return true
	}
	m.off += uint64(len(payload))
	if h.Flags&wire.FlagLast != 0 {
		q.messageDone(h)
	}
	return true
}

// messageDone completes a message of several packets: with DATA_VALID after MATCH, or as untagged.
func (q *queuePair) messageDone(h *wire.Header) {
	m := &q.rx
	wc := verbs.WC{WRID: m.wrid, Opcode: m.opcode, Flags: m.flags, ByteLen: uint32(m.total), QPNum: q.num}
	m.active, m.hasWR = false, false
	if m.kind == rxTagged {
		wc.Opcode, wc.Flags, wc.ByteLen = verbs.WCTMRecv, verbs.WCFlagTMDataValid, uint32(m.total-verbs.TMHSize)
		withImm(&wc, h)
		q.tm.dataValid(&wc, m.hnd, h.Flags&wire.FlagSolicited != 0)
	} else {
		withImm(&wc, h)
		q.rcq.push(&wc, frees{}, h.Flags&wire.FlagSolicited != 0)
	}
	q.executed(h)
}

// tmFails completes the receive of the message under way with status local, refuses the request
// with status remote, and moves the QP to ERR.
func (q *queuePair) tmFails(psn uint32, local, remote verbs.WCStatus) {
	m := &q.rx
	kind, tm := m.kind, m.kind == rxTagged || !m.active
	wc := verbs.WC{WRID: m.wrid, Status: local, Opcode: verbs.WCTMRecv, QPNum: q.num}
	switch {
	case tm && q.d.nic.misnames(q, &wc):
		q.reject(psn, remote)
		return
	case tm:
		q.tm.cq.push(&wc, frees{tm: q.tm, hnd: m.hnd}, true)
	default:
		q.forgetUnexpected(kind)
		q.rcq.push(&wc, frees{}, true)
	}
	*m = rxMessage{}
	q.reject(psn, remote)
}

// abandonRx ends the message under way when its QP fails or is reset: after MATCH its receive gets
// a terminal completion (TMO 9), and an untagged buffer is flushed.
func (q *queuePair) abandonRx() {
	m := &q.rx
	if !m.active || m.kind == rxPlain {
		return
	}
	wc := verbs.WC{WRID: m.wrid, Opcode: verbs.WCTMRecv, QPNum: q.num}
	if m.kind == rxTagged {
		q.d.cuts++
		wc.Status, wc.Flags = verbs.WCTMRndvIncomplete, verbs.WCFlagTMDataValid
		q.abandon(&wc, m.hnd)
	} else {
		q.forgetUnexpected(m.kind)
		wc.Status = verbs.WCWRFlushErr
		q.rcq.push(&wc, frees{}, true)
	}
	*m = rxMessage{}
}
