package soft

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// responder is the receiving half of a queue pair: it executes the peer's requests.
type responder struct {
	q        *queuePair // whose half it is
	rx       rxMessage  // the message under way
	expect   uint32     // PSN of the next request; numbers may be left out, see accepts
	ackPSN   uint32     // ackDue: acknowledges this request and all before it
	ackDue   bool
	refuse   bool           // a request was refused: no later one is executed
	rnr      bool           // a packet waits for a receive, until rnrUntil
	rnrUntil int64          // when it is refused instead, on Device.now
	resp     fifo[response] // in the order of the requests
}

// rxMessage is a SEND or RDMA WRITE of which not all packets have arrived.
type rxMessage struct {
	active bool        // there is one
	hasWR  bool        // a receive was taken for it and has not completed
	op     wire.Opcode // wire.OpSend or wire.OpWrite
	psn    uint32
	wrid   uint64         // of the receive, or of the tag list entry
	off    uint64         // bytes that have arrived
	total  uint64         // bytes of the message
	nsge   int            // elements of sges
	kind   uint8          // rxPlain, or how a tag-matching SRQ has classified it
	opcode verbs.WCOpcode // of its completion; not rxPlain or rxTagged
	flags  verbs.WCFlags  // of its completion; not rxPlain or rxTagged
	hnd    uint32         // rxTagged: handle of the entry
	sges   [maxSGE]sge
}

// response answers a request of the peer.
type response struct {
	op     wire.Opcode // wire.OpReadResp, wire.OpPushResp or wire.OpNak
	status uint8       // verbs.WCStatus
	alone  bool        // a refused read fails alone (verbs.QPInitAttr.ReadFaults)
	psn    uint32      // of the request
	rkey   uint32      // reads, pushes: what to read, total bytes at addr
	key    uint32      // wire.OpPushResp: grant to write
	addr   uint64
	total  uint64
	off    uint64 // bytes done
	value  uint64 // wire.OpPushResp: address to write to
}

// A pass sends at most respBurst packets of a QP's responses, and no more after respBytes, so that
// other traffic is not held up.
const (
	respBurst = 8
	respBytes = 1 << 20
)

// start begins at RTR; psn is that of the first request.
func (r *responder) start(psn uint32) {
	r.clear()
	r.expect = psn
}

// clear forgets everything, and keeps the allocated queue.
func (r *responder) clear() {
	resp := r.resp
	resp.clear()
	*r = responder{q: r.q, resp: resp}
}

// plain reports that accepts has nothing against the packet of a SEND that is the whole message.
func (r *responder) plain(h *wire.Header) bool {
	return (r.q.state == verbs.QPSRTS || r.q.state == verbs.QPSRTR) && !r.refuse && !r.rx.active && h.Total == uint64(h.Length) &&
		int32(h.PSN-r.expect) >= 0
}

// accepts checks a packet of a request. If it returns false the packet is dropped.
func (r *responder) accepts(l wire.Link, h *wire.Header) bool {
	if !r.q.connected() || r.refuse {
		if r.q.state == verbs.QPSErr && !r.refuse && r.q.d.nic.silent() {
			r.q.d.stray(l, h, nil, 0)
		}
		return false
	}
	if h.Flags&wire.FlagFirst == 0 {
		if r.rx.active && r.rx.op == h.Op && r.rx.psn == h.PSN && r.rx.total == h.Total {
			return true
		}
		r.q.d.violation(l, "a packet for QP %d in the middle of no message", r.q.num)
		return false
	}
	switch {
	case r.rx.active:
		r.q.d.violation(l, "a message for QP %d starts inside another", r.q.num)
	case h.Total > maxMsgSize:
		r.q.d.violation(l, "a message of %d bytes", h.Total)
	case (h.Op == wire.OpSend || h.Op == wire.OpWrite) && (uint64(h.Length) > h.Total || (h.Flags&wire.FlagLast != 0) != (uint64(h.Length) == h.Total)):
		r.q.d.violation(l, "the length of a message to QP %d does not fit its packet", r.q.num)
	case int32(h.PSN-r.expect) < 0:
		// Numbers that are left out are of RDMA READs from memory, without packets: of those there
		// is no bound. A NIC drops packets with a wrong number until the requester gives up: this
		// device tells the program too.
		r.nak(h.PSN, verbs.WCRetryExcErr)
		r.invalid("number %d of a request, %d was due", h.PSN, r.expect)
	default:
		return true
	}
	return false
}

// recvSend receives a packet of a SEND. This is the way of a message of one packet, plain or, where
// the SRQ matches tags, eager or untagged; it completes in place, if it can. Others have ways of
// their own.
func (r *responder) recvSend(l wire.Link, h *wire.Header, payload []byte) bool {
	t, op, flags, counted := r.q.tm, verbs.WCRecv, verbs.WCFlags(0), false
	switch {
	case t != nil:
		if !t.plain || !whole(h) || !r.plain(h) || len(payload) < verbs.TMHSize {
			return r.q.recvTM(l, h, payload)
		}
		switch verbs.TMHOpcode(payload[0]) {
		case verbs.TMHEager:
			if invariant.Enabled {
				defer t.list.CheckArrival()()
				defer t.checkUnexpected(r.q)()
			}
			if (t.list.Len() != 0 || invariant.Enabled) && t.match(r.q, h, payload, false) {
				return true
			}
			op, counted = t.reports, true
		case verbs.TMHNoTag:
			op = verbs.WCTMNoTag
		default:
			return r.q.recvTM(l, h, payload)
		}
	case !whole(h):
		return r.recvSendPart(l, h, payload)
	case !r.plain(h) && !r.accepts(l, h):
		return true
	}
	rq := r.q.rq
	if rq.head == rq.tail {
		return r.notReady(h)
	}
	e := rq.oldest()
	if e.badSG || uint64(len(payload)) > e.size {
		r.recvFails(h.PSN)
		return true
	}
	if counted {
		flags = t.list.Unexpected()
	}
	if wc := r.q.rcq.inPlace(rq); wc != nil {
		// Field by field, as in shm.decodeShort.
		wc.WRID, wc.Opcode, wc.Flags, wc.ByteLen, wc.QPNum, wc.Data = e.wrid, op, flags, h.Length, r.q.num, payload
		if h.Flags&wire.FlagImm != 0 {
			withImm(wc, h)
		}
		rq.checkDone(wc.WRID)
	} else if !r.recvCopy(h, payload, op, flags) {
		if counted {
			r.q.forgetUnexpected(rxUnexpected)
		}
		r.recvFails(h.PSN)
		return true
	}
	r.executed(h)
	return true
}

// whole reports that a packet is a whole message.
func whole(h *wire.Header) bool {
	const alone = wire.FlagFirst | wire.FlagLast
	return h.Flags&alone == alone
}

// recvCopy copies a message of one packet into the posted buffer, and queues its completion. It
// returns false if the buffer is gone.
func (r *responder) recvCopy(h *wire.Header, payload []byte, op verbs.WCOpcode, flags verbs.WCFlags) bool {
	if !r.q.scatter(r.q.rq.headSGEs(), 0, payload) {
		return false
	}
	wc := verbs.WC{WRID: r.q.rq.oldest().wrid, Opcode: op, Flags: flags, ByteLen: h.Length, QPNum: r.q.num}
	r.q.rq.pop()
	r.complete(&wc, h)
	return true
}

// complete adds a receive completion.
func (r *responder) complete(wc *verbs.WC, h *wire.Header) {
	withImm(wc, h)
	r.q.rcq.push(wc, frees{}, h.Flags&wire.FlagSolicited != 0)
}

// executed records that a request was executed, and queues its acknowledgement if it wants one.
func (r *responder) executed(h *wire.Header) {
	r.expect = h.PSN + 1
	r.rnr = false
	if h.Flags&wire.FlagAckReq != 0 {
		r.ackPSN, r.ackDue = h.PSN, true
		r.q.d.queue(r.q)
	}
}

// recvSendPart receives a packet of a SEND of several packets into the posted buffer.
func (r *responder) recvSendPart(l wire.Link, h *wire.Header, payload []byte) bool {
	if !r.accepts(l, h) {
		return true
	}
	if h.Flags&wire.FlagFirst != 0 {
		if r.q.rq.head == r.q.rq.tail {
			return r.notReady(h)
		}
		e := r.q.rq.oldest()
		if e.badSG || h.Total > e.size {
			r.recvFails(h.PSN)
			return true
		}
		r.startMessage(h)
		r.takeRecv()
	}
	m := &r.rx
	if !r.fits(l, h) {
		return true
	}
	if !r.q.scatter(m.sges[:m.nsge], m.off, payload) {
		r.fail(h.PSN, verbs.WCLocProtErr, verbs.WCRemOpErr, m.wrid)
		return true
	}
	m.off += uint64(len(payload))
	if h.Flags&wire.FlagLast != 0 {
		wc := verbs.WC{WRID: m.wrid, Opcode: verbs.WCRecv, ByteLen: uint32(m.total), QPNum: r.q.num}
		r.rx.active = false
		r.complete(&wc, h)
		r.executed(h)
	}
	return true
}

// startMessage begins a message of several packets.
func (r *responder) startMessage(h *wire.Header) {
	m := &r.rx
	m.active, m.hasWR, m.op, m.psn, m.off, m.total, m.kind = true, false, h.Op, h.PSN, 0, h.Total, rxPlain
}

// takeRecv takes the oldest receive for the message under way.
func (r *responder) takeRecv() {
	m := &r.rx
	m.hasWR = true
	m.wrid = r.q.rq.oldest().wrid
	m.nsge = copy(m.sges[:], r.q.rq.headSGEs())
	r.q.rq.pop()
}

// fits checks the length of a packet of the message under way.
func (r *responder) fits(l wire.Link, h *wire.Header) bool {
	end := r.rx.off + uint64(h.Length)
	if end > r.rx.total || (h.Flags&wire.FlagLast != 0) != (end == r.rx.total) {
		r.q.d.violation(l, "the packets of a message to QP %d do not make up its length", r.q.num)
		return false
	}
	return true
}

// notReady delays or refuses a SEND that finds no receive (RNR). It returns false if the wire has
// to pass the packet again, which delays all packets behind it on the link. If no receive is posted
// for as long as a requester retries, rnr_retry times min_rnr_timer, it refuses it (TMO 8.1).
func (r *responder) notReady(h *wire.Header) bool {
	r.q.d.stalled = true
	r.q.d.rnrs++
	retry := h.Status & 7
	if retry == 7 {
		return false
	}
	now := r.q.d.now()
	if !r.rnr {
		r.rnr = true
		r.rnrUntil = now + int64(retry)*verbs.RNRTimer(r.q.attr.MinRNRTimer)
	}
	if now < r.rnrUntil {
		if r.q.d.wakeAt == 0 || r.rnrUntil < r.q.d.wakeAt {
			r.q.d.wakeAt = r.rnrUntil
		}
		return false
	}
	r.rnr = false
	r.nak(h.PSN, verbs.WCRNRRetryExcErr)
	return true
}

// nak refuses a request, behind the responses to earlier ones. No later one is executed.
func (r *responder) nak(psn uint32, status verbs.WCStatus) {
	r.refuse = true
	r.resp.push(response{op: wire.OpNak, psn: psn, status: uint8(status)})
	r.q.d.queue(r.q)
}

// reject refuses a request and moves the QP to ERR.
func (r *responder) reject(psn uint32, status verbs.WCStatus) {
	r.nak(psn, status)
	r.q.toErr(verbs.WCWRFlushErr, r.q.reclaimed, false, 0)
}

// recvFails fails the oldest receive: an SGE is invalid, or the message is longer than its buffers.
func (r *responder) recvFails(psn uint32) {
	e := r.q.rq.oldest()
	r.q.rq.pop()
	if e.badSG {
		r.fail(psn, verbs.WCLocProtErr, verbs.WCRemOpErr, e.wrid)
	} else {
		r.fail(psn, verbs.WCLocLenErr, verbs.WCRemInvReqErr, e.wrid)
	}
}

// fail completes a receive with status local, refuses the request with status remote, and moves the
// QP to ERR (TMO 8.3).
func (r *responder) fail(psn uint32, local, remote verbs.WCStatus, wrid uint64) {
	r.rx = rxMessage{}
	wc := verbs.WC{WRID: wrid, Status: local, Opcode: verbs.WCRecv, QPNum: r.q.num}
	r.q.rcq.push(&wc, frees{}, true)
	r.reject(psn, remote)
}

// denied rejects a request for memory that the peer may not access (TMO 8.3).
func (r *responder) denied(psn uint32) {
	r.reject(psn, verbs.WCRemAccessErr)
	r.q.d.failed(verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QP: r.q.num,
		Err: fail("responder", syscall.EACCES, "a request of the peer named memory, or a right, that it does not have")})
}

// rejectInvalid rejects a request that no peer makes which keeps to what was agreed.
func (r *responder) rejectInvalid(psn uint32, format string, args ...any) {
	r.reject(psn, verbs.WCRemInvReqErr)
	r.invalid(format, args...)
}

// invalid tells the program of an invalid request of the peer.
func (r *responder) invalid(format string, args ...any) {
	r.q.d.failed(verbs.AsyncEvent{Type: verbs.EventQPReqErr, QP: r.q.num, Err: fail("responder", syscall.EINVAL, fmt.Sprintf(format, args...))})
}
