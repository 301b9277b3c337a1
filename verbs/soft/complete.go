package soft

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// wcOpcodes is the opcode of a send request's completion.
var wcOpcodes = [...]verbs.WCOpcode{
	verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite, verbs.WRSend: verbs.WCSend,
	verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead, verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap,
	verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd, verbs.WRSendWithInv: verbs.WCSend,
}

// retire completes requests from done on, in posting order. An unsignalled SEND or WRITE is passed
// over once it was sent: the acknowledgement of a later signalled one covers it.
func (q *queuePair) retire() {
	if q.late != nil {
		return // it has failed, and is flushed later
	}
	for q.done != q.sent {
		e := &q.sq[q.done&q.mask]
		switch {
		case e.status != 0 && e.flags&entryRefused == 0:
			st := verbs.WCStatus(e.status)
			q.toErr(st, q.done, false, st)
			return
		case e.flags&entryAnswer != 0:
			if e.flags&entryGot == 0 {
				return
			}
		case e.flags&entrySignaled != 0 && int32(q.acked-q.done) <= 0:
			return
		}
		q.done++
		if invariant.Enabled {
			q.checkEnded(q.done-1, e.flags&(entrySignaled|entryRefused) != 0, verbs.WCStatus(e.status))
		}
		if e.flags&(entrySignaled|entryRefused) != 0 {
			e.flags |= entryDone
			wc := verbs.WC{WRID: e.wrid, Opcode: wcOpcodes[e.op], ByteLen: e.length, QPNum: q.num}
			if e.flags&entryRefused != 0 {
				wc.Status, wc.ByteLen = verbs.WCStatus(e.status), 0
			}
			if q.dev == nil {
				q.scq.push(&wc, frees{qp: q, upto: q.done}, false)
			}
		}
	}
	if q.dev != nil && q.reclaimed != q.done {
		old := q.reclaimed
		q.reclaimed = q.done
		if invariant.Enabled {
			q.checkReclaimed(old)
		}
		q.feed()
	}
	if invariant.Enabled {
		q.checkCursors()
	}
}

// outstanding reports whether request i has neither a completion nor, unsignalled, succeeded.
func (q *queuePair) outstanding(i uint32) bool {
	e := &q.sq[i&q.mask]
	if e.flags&entryDone != 0 {
		return false
	}
	if e.flags&entrySignaled != 0 {
		return true
	}
	if e.flags&entryAnswer != 0 {
		return e.flags&entryGot == 0
	}
	return int32(q.acked-i) <= 0
}

// flushSQ completes all outstanding requests: the first of those from index first on with status,
// and the others with WR_FLUSH_ERR. Requests before first may be outstanding behind an RDMA READ
// that has not ended when a later request fails. Errors complete unsignalled requests too (TMO
// 8.2).
func (q *queuePair) flushSQ(status verbs.WCStatus, first uint32) {
	if int32(first-q.reclaimed) < 0 {
		first = q.reclaimed
	}
	from := first
	if int32(q.done-first) < 0 {
		from = q.done
	}
	for i := from; i != q.posted; i++ {
		if !q.outstanding(i) {
			continue
		}
		st := verbs.WCWRFlushErr
		if int32(i-first) >= 0 {
			st, status = status, st
		}
		e := &q.sq[i&q.mask]
		e.flags |= entryDone
		if invariant.Enabled {
			q.checkEnded(i, true, st)
		}
		wc := verbs.WC{WRID: e.wrid, Status: st, Opcode: wcOpcodes[e.op], QPNum: q.num}
		if q.dev == nil {
			q.scq.push(&wc, frees{qp: q, upto: i + 1}, false)
		} else {
			q.deviceFailed(st)
		}
	}
	q.dropInline()
	q.sent, q.done = q.posted, q.posted
	if invariant.Enabled {
		q.checkCursors()
	}
}

// dropInline returns the buffers of inline data that was not sent to the pool.
func (q *queuePair) dropInline() {
	if q.more == nil {
		return
	}
	for i := q.sent; i != q.posted; i++ {
		if w := q.work(i); w.buf != nil {
			q.d.pool.put(w.buf)
			w.buf = nil
		}
	}
}

// ackTo records that the peer has executed all requests before index i.
func (q *queuePair) ackTo(i uint32) {
	if int32(i-q.acked) > 0 {
		q.acked = i
	}
}

// recvAck receives a cumulative acknowledgement.
func (q *queuePair) recvAck(l wire.Link, h *wire.Header) {
	i := h.PSN - q.psn
	if i-q.reclaimed >= q.sent-q.reclaimed {
		if q.state == verbs.QPSRTS && int32(i-q.reclaimed) >= 0 {
			q.d.violation(l, "acknowledges request %d of QP %d, %d were sent", h.PSN, q.num, q.sent)
		}
		return // sent before a flush or a reset
	}
	if int32(i+1-q.acked) > 0 {
		q.acked = i + 1
		q.retire()
	}
}

// recvNak receives the refusal of a request.
func (q *queuePair) recvNak(l wire.Link, h *wire.Header) {
	if q.state != verbs.QPSRTS {
		return
	}
	i, status := h.PSN-q.psn, verbs.WCStatus(h.Status)
	if status == verbs.WCSuccess || status > verbs.WCTMRndvIncomplete || i-q.reclaimed > q.sent-q.reclaimed || i == q.posted {
		q.d.violation(l, "refuses request %d of QP %d with status %d: no such request", h.PSN, q.num, h.Status)
		return
	}
	q.ackTo(i)
	q.retire()
	if q.connected() {
		q.toErr(status, i, true, 0)
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
		q.peerLost(goneError(h), event)
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
