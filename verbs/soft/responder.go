package soft

import (
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// responder is the receiving half of a queue pair.
type responder struct {
	rx       rxMessage // a message of several packets under way
	expect   uint32    // psn of the next request
	ackPSN   uint32
	ackDue   bool
	refuse   bool // a request failed: nothing after it is executed
	rnr      bool // a packet waits for a receive, until rnrUntil
	rnrUntil int64
	resp     fifo[response]
}

// rxMessage is a message of which not all packets have come.
type rxMessage struct {
	active bool
	hasWR  bool // sges are of a receive that was taken
	op     wire.Opcode
	psn    uint32
	wrid   uint64
	off    uint64
	total  uint64
	nsge   int
	kind   uint8 // tag matching: rxTagged, ...
	opcode verbs.WCOpcode
	flags  verbs.WCFlags
	hnd    uint32 // rxTagged
	sges   [maxSGE]verbs.SGE
}

// response is something to answer, in the order of the requests.
type response struct {
	op     wire.Opcode // wire.OpReadResp, wire.OpAtomicResp, wire.OpPushResp, wire.OpNak
	status uint8
	alone  bool // a refusal fails this read alone
	psn    uint32
	rkey   uint32
	key    uint32 // wire.OpPushResp: of the destination
	addr   uint64
	total  uint64
	off    uint64
	value  uint64 // wire.OpPushResp: address of the destination
}

// respBurst is how many packets of a read one pass sends, and respBytes after how many bytes it
// ends, so that other traffic gets between them.
const (
	respBurst = 8
	respBytes = 1 << 20
)

func (r *responder) start(psn uint32) {
	r.clear()
	r.expect = psn
}

func (r *responder) clear() {
	resp := r.resp
	resp.clear()
	*r = responder{resp: resp}
}

// accepts says whether a request is to be executed now; if not, drop says that it is to be
// forgotten.
func (q *queuePair) accepts(l wire.Link, h *wire.Header) bool {
	if !q.connected() || q.refuse {
		return false
	}
	if h.Flags&wire.FlagFirst == 0 {
		if q.rx.active && q.rx.op == h.Op && q.rx.psn == h.PSN && q.rx.total == h.Total {
			return true
		}
		q.d.violation(l, "a packet for QP %d in the middle of no message", q.num)
		return false
	}
	switch {
	case q.rx.active:
		q.d.violation(l, "a message for QP %d starts inside another", q.num)
	case h.Total > maxMsgSize:
		q.d.violation(l, "a message of %d bytes", h.Total)
	case (h.Op == wire.OpSend || h.Op == wire.OpWrite) && (uint64(h.Length) > h.Total || (h.Flags&wire.FlagLast != 0) != (uint64(h.Length) == h.Total)):
		q.d.violation(l, "the length of a message to QP %d does not fit its packet", q.num)
	case h.PSN-q.expect > maxQPWR:
		// Requests may be missing in between: those that were done without packets. Real devices
		// drop a wrong number until the requester gives up.
		q.nak(h.PSN, verbs.WCRetryExcErr)
	default:
		return true
	}
	return false
}

// recvSend takes a packet of a SEND. The common case, a message of one packet, is lent to the
// caller of PollCQ.
func (q *queuePair) recvSend(l wire.Link, h *wire.Header, payload []byte) (ok, lent bool) {
	if h.Flags&(wire.FlagFirst|wire.FlagLast|wire.FlagInv) != wire.FlagFirst|wire.FlagLast {
		return q.recvSendPart(l, h, payload), false
	}
	if !q.accepts(l, h) {
		return true, false
	}
	rq := q.rq
	if rq.head == rq.tail {
		return q.notReady(h), false
	}
	e := &rq.ring[rq.head&uint32(len(rq.ring)-1)]
	if e.badSG || uint64(len(payload)) > e.size {
		q.recvFails(h.PSN)
		return true, false
	}
	wc := q.rcq.slot()
	if wc != nil {
		*wc = verbs.WC{WRID: e.wrid, Opcode: verbs.WCRecv, ByteLen: h.Length, QPNum: q.num, Data: payload}
		if h.Flags&wire.FlagImm != 0 {
			wc.Flags, wc.Imm = verbs.WCFlagWithImm, h.Imm
		}
		rq.head++
		if invariant.Enabled {
			rq.checkDone(wc.WRID)
			q.d.inv.lends(payload)
		}
	} else if !q.recvCopy(h, payload) {
		return true, false
	}
	if rq.limit != 0 {
		rq.took()
	}
	q.executed(h)
	return true, wc != nil
}

// recvCopy delivers a message of one packet into the posted buffer and the completion queue's ring.
func (q *queuePair) recvCopy(h *wire.Header, payload []byte) bool {
	if !q.scatter(q.rq.headSGEs(), 0, payload) {
		q.recvFails(h.PSN)
		return false
	}
	wc := verbs.WC{WRID: q.rq.ring[q.rq.head&uint32(len(q.rq.ring)-1)].wrid, Opcode: verbs.WCRecv, ByteLen: h.Length, QPNum: q.num}
	q.rq.head++
	q.complete(&wc, h)
	return true
}

// complete adds a receive completion.
func (q *queuePair) complete(wc *verbs.WC, h *wire.Header) {
	withImm(wc, h)
	q.rcq.push(wc, nil, 0, h.Flags&wire.FlagSolicited != 0)
}

// executed notes that a request is done.
func (q *queuePair) executed(h *wire.Header) {
	q.expect = h.PSN + 1
	q.rnr = false
	if h.Flags&wire.FlagAckReq != 0 {
		q.ackPSN, q.ackDue = h.PSN, true
		q.d.queue(q)
	}
}

// recvSendPart takes one packet of a message of several, and puts it into the posted buffer.
func (q *queuePair) recvSendPart(l wire.Link, h *wire.Header, payload []byte) bool {
	if !q.accepts(l, h) {
		return true
	}
	if h.Flags&wire.FlagFirst != 0 {
		if q.rq.head == q.rq.tail {
			return q.notReady(h)
		}
		e := &q.rq.ring[q.rq.head&uint32(len(q.rq.ring)-1)]
		if e.badSG || h.Total > e.size {
			q.recvFails(h.PSN)
			return true
		}
		q.startMessage(h)
		q.takeRecv()
	}
	m := &q.rx
	if !q.fits(l, h) || !q.invalidates(h) {
		return true
	}
	if !q.scatter(m.sges[:m.nsge], m.off, payload) {
		q.fail(h.PSN, verbs.WCLocProtErr, verbs.WCRemOpErr, m.wrid)
		return true
	}
	m.off += uint64(len(payload))
	if h.Flags&wire.FlagLast != 0 {
		wc := verbs.WC{WRID: m.wrid, Opcode: verbs.WCRecv, ByteLen: uint32(m.total), QPNum: q.num}
		q.rx.active = false
		q.complete(&wc, h)
		q.executed(h)
	}
	return true
}

func (q *queuePair) startMessage(h *wire.Header) {
	m := &q.rx
	m.active, m.hasWR, m.op, m.psn, m.off, m.total, m.kind = true, false, h.Op, h.PSN, 0, h.Total, rxPlain
}

// takeRecv takes the oldest receive for the message under way.
func (q *queuePair) takeRecv() {
	m := &q.rx
	m.hasWR = true
	m.wrid = q.rq.ring[q.rq.head&uint32(len(q.rq.ring)-1)].wrid
	m.nsge = copy(m.sges[:], q.rq.headSGEs())
	q.rq.head++
	if q.rq.limit != 0 {
		q.rq.took()
	}
}

// fits checks a packet of the message under way against its length.
func (q *queuePair) fits(l wire.Link, h *wire.Header) bool {
	end := q.rx.off + uint64(h.Length)
	if end > q.rx.total || (h.Flags&wire.FlagLast != 0) != (end == q.rx.total) {
		q.d.violation(l, "the packets of a message to QP %d do not make up its length", q.num)
		return false
	}
	return true
}

// notReady is called for a SEND that finds no receive (RNR). The packet stays with the wire, and
// whatever is behind it on the link, until a receive is posted or the requester's budget, rnr_retry
// times our min_rnr_timer, is used up (TMO 8.1).
func (q *queuePair) notReady(h *wire.Header) bool {
	q.d.stalled = true
	q.d.rnrs++
	retry := h.Status & 7
	if retry == 7 {
		return false
	}
	now := q.d.now()
	if !q.rnr {
		q.rnr = true
		q.rnrUntil = now + int64(retry)*verbs.RNRTimer(q.attr.MinRNRTimer)
	}
	if now < q.rnrUntil {
		if q.d.wakeAt == 0 || q.rnrUntil < q.d.wakeAt {
			q.d.wakeAt = q.rnrUntil
		}
		return false
	}
	q.rnr = false
	q.nak(h.PSN, verbs.WCRNRRetryExcErr)
	return true
}

// nak refuses a request after the answers to those before it. Nothing of the peer's is executed
// from then on.
func (q *queuePair) nak(psn uint32, status verbs.WCStatus) {
	q.refuse = true
	q.resp.push(response{op: wire.OpNak, psn: psn, status: uint8(status)})
	q.d.queue(q)
}

// recvFails fails the oldest receive: its list is bad or too short for the message.
func (q *queuePair) recvFails(psn uint32) {
	e := &q.rq.ring[q.rq.head&uint32(len(q.rq.ring)-1)]
	q.rq.head++
	if q.rq.limit != 0 {
		q.rq.took()
	}
	if e.badSG {
		q.fail(psn, verbs.WCLocProtErr, verbs.WCRemOpErr, e.wrid)
	} else {
		q.fail(psn, verbs.WCLocLenErr, verbs.WCRemInvReqErr, e.wrid)
	}
}

// fail completes a receive with local, tells the requester remote, and moves the QP to ERR (TMO
// 8.3).
func (q *queuePair) fail(psn uint32, local, remote verbs.WCStatus, wrid uint64) {
	q.rx = rxMessage{}
	wc := verbs.WC{WRID: wrid, Status: local, Opcode: verbs.WCRecv, QPNum: q.num}
	q.rcq.push(&wc, nil, 0, true)
	q.nak(psn, remote)
	q.toErr(verbs.WCWRFlushErr, q.reclaimed, false, 0)
}

// denied refuses a request for memory that the peer may not touch (TMO 8.3).
func (q *queuePair) denied(psn uint32) {
	q.nak(psn, verbs.WCRemAccessErr)
	q.toErr(verbs.WCWRFlushErr, q.reclaimed, false, 0)
	q.d.event(verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QP: q.num,
		Err: fail("responder", syscall.EACCES, "a request of the peer named memory, or a right, that it does not have")})
}
