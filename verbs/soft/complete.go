package soft

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// wcOpcodes is the opcode of a send request's completion.
var wcOpcodes = [...]verbs.WCOpcode{
	verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite, verbs.WRSend: verbs.WCSend,
	verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead,
}

// retire completes requests from done on, in posting order. An unsignalled SEND or WRITE is passed
// over once it was sent: the acknowledgement of a later signalled one covers it.
func (r *requester) retire() {
	if r.q.late != nil {
		return // it has failed, and is flushed later
	}
	for r.done != r.sent {
		e := &r.sq[r.done&r.mask]
		switch {
		case e.status != 0 && e.flags&entryRefused == 0:
			st := verbs.WCStatus(e.status)
			r.q.toErr(st, r.done, false, st)
			return
		case e.flags&entryAnswer != 0:
			if e.flags&entryGot == 0 {
				return
			}
		case e.flags&entrySignaled != 0 && int32(r.acked-r.done) <= 0:
			return
		}
		r.done++
		r.checkEnded(r.done-1, e.flags&(entrySignaled|entryRefused) != 0, verbs.WCStatus(e.status))
		if e.flags&(entrySignaled|entryRefused) != 0 {
			e.flags |= entryDone
			wc := verbs.WC{WRID: e.wrid, Opcode: wcOpcodes[e.op], ByteLen: e.length, QPNum: r.q.num}
			if e.flags&entryRefused != 0 {
				wc.Status, wc.ByteLen = verbs.WCStatus(e.status), 0
			}
			if r.q.dev == nil {
				r.q.scq.push(&wc, frees{qp: r.q, upto: r.done}, false)
			}
		}
	}
	if r.q.dev != nil && r.reclaimed != r.done {
		old := r.reclaimed
		r.reclaimed = r.done
		r.checkReclaimed(old)
		r.q.feed()
	}
	r.checkCursors()
}

// outstanding reports whether request i has neither a completion nor, unsignalled, succeeded.
func (r *requester) outstanding(i uint32) bool {
	e := &r.sq[i&r.mask]
	if e.flags&entryDone != 0 {
		return false
	}
	if e.flags&entrySignaled != 0 {
		return true
	}
	if e.flags&entryAnswer != 0 {
		return e.flags&entryGot == 0
	}
	return int32(r.acked-i) <= 0
}

// flushSQ completes all outstanding requests: the first of those from index first on with status,
// and the others with WR_FLUSH_ERR. Requests before first may be outstanding behind an RDMA READ
// that has not ended when a later request fails. Errors complete unsignalled requests too (TMO
// 8.2).
func (r *requester) flushSQ(status verbs.WCStatus, first uint32) {
	if int32(first-r.reclaimed) < 0 {
		first = r.reclaimed
	}
	from := first
	if int32(r.done-first) < 0 {
		from = r.done
	}
	for i := from; i != r.posted; i++ {
		if !r.outstanding(i) {
			continue
		}
		st := verbs.WCWRFlushErr
		if int32(i-first) >= 0 {
			st, status = status, st
		}
		e := &r.sq[i&r.mask]
		e.flags |= entryDone
		r.checkEnded(i, true, st)
		wc := verbs.WC{WRID: e.wrid, Status: st, Opcode: wcOpcodes[e.op], QPNum: r.q.num}
		if r.q.dev == nil {
			r.q.scq.push(&wc, frees{qp: r.q, upto: i + 1}, false)
		} else {
			r.q.deviceFailed(st)
		}
	}
	r.dropInline()
	r.sent, r.done = r.posted, r.posted
	r.checkCursors()
}

// dropInline returns the buffers of inline data that was not sent to the pool.
func (r *requester) dropInline() {
	if r.more == nil {
		return
	}
	for i := r.sent; i != r.posted; i++ {
		if w := r.work(i); w.buf != nil {
			r.q.d.pool.put(w.buf)
			w.buf = nil
		}
	}
}

// ackTo records that the peer has executed all requests before index i.
func (r *requester) ackTo(i uint32) {
	if int32(i-r.acked) > 0 {
		r.acked = i
	}
}

// recvAck receives a cumulative acknowledgement.
func (r *requester) recvAck(l wire.Link, h *wire.Header) {
	i := h.PSN - r.psn
	if i-r.reclaimed >= r.sent-r.reclaimed {
		if r.q.state == verbs.QPSRTS && int32(i-r.reclaimed) >= 0 {
			r.q.d.violation(l, "acknowledges request %d of QP %d, %d were sent", h.PSN, r.q.num, r.sent)
		}
		return // sent before a flush or a reset
	}
	if int32(i+1-r.acked) > 0 {
		r.acked = i + 1
		r.retire()
	}
}

// recvNak receives the refusal of a request.
func (r *requester) recvNak(l wire.Link, h *wire.Header) {
	if r.q.state != verbs.QPSRTS {
		return
	}
	i, status := h.PSN-r.psn, verbs.WCStatus(h.Status)
	if status == verbs.WCSuccess || status > verbs.WCTMRndvIncomplete || i-r.reclaimed > r.sent-r.reclaimed || i == r.posted {
		r.q.d.violation(l, "refuses request %d of QP %d with status %d: no such request", h.PSN, r.q.num, h.Status)
		return
	}
	r.ackTo(i)
	r.retire()
	if r.q.connected() {
		r.q.toErr(status, i, true, 0)
	}
}

// recvDisconnected loses the QPs of which the peer says that its QP number h.Addr answers no more.
// With h.QPN 0 the peer has no such QP, which concerns all that are connected to it.
func (d *Device) recvDisconnected(l wire.Link, h *wire.Header) {
	event := verbs.EventQPFatal
	if verbs.WCStatus(h.Status) == verbs.WCRemAccessErr {
		event = verbs.EventQPAccessErr // the peer has checked the region of this device itself
	}
	for _, q := range d.qps {
		if q == nil || q.link != l || uint64(q.attr.DestQPN) != h.Addr || h.QPN != 0 && h.QPN != q.num {
			continue
		}
		if d.nic.silent() {
			d.nic.unanswered(q, h.QPN == 0)
		} else if q.peerLost() {
			d.failed(verbs.AsyncEvent{Type: event, QP: q.num, Err: goneError(h)})
		}
	}
}

// missed is an OpDisconnected that came before its queue pair was in RTR.
type missed struct {
	link wire.Link
	h    wire.Header
}

// catchUp receives what a queue pair has missed: behind the Modify to RTR, which succeeds.
func (q *queuePair) catchUp() {
	m := q.missed
	q.missed = nil
	if sameLink(m.link, q.link) {
		q.d.recvDisconnected(m.link, &m.h)
	}
}

// goneError returns the error for what an OpDisconnected says of the peer's queue pair.
func goneError(h *wire.Header) error {
	switch {
	case h.Imm == wire.Destroyed:
		return fmt.Errorf("queue pair %d: %w", h.Addr, verbs.ErrPeerClosed)
	case h.Status == uint8(verbs.WCSuccess):
		return fmt.Errorf("queue pair %d: %w", h.Addr, verbs.ErrPeerFailed)
	}
	return fmt.Errorf("queue pair %d: %w (%w)", h.Addr, verbs.ErrPeerFailed, &verbs.StatusError{Status: verbs.WCStatus(h.Status)})
}
