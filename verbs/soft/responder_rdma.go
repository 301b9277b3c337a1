package soft

import (
	"cmp"
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// recvWrite receives a packet of an RDMA WRITE.
func (q *queuePair) recvWrite(l wire.Link, h *wire.Header, payload []byte) bool {
	if !q.accepts(l, h) {
		return true
	}
	imm := h.Flags&wire.FlagImm != 0
	if imm && h.Flags&wire.FlagLast != 0 && q.rq.head == q.rq.tail {
		return q.notReady(h)
	}
	if h.Flags&wire.FlagFirst != 0 {
		q.startMessage(h)
	}
	if !q.fits(l, h) {
		return true
	}
	dst, ok := q.d.regions.Resolve(&q.pd.Domain, h.RKey, h.Addr, uint64(len(payload)), verbs.AccessRemoteWrite)
	if !ok || len(payload) > 0 && q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		q.rx = rxMessage{}
		q.denied(h.PSN)
		return true
	}
	if invariant.Enabled {
		q.d.peerWrites(h.RKey, dst, verbs.AccessRemoteWrite)
	}
	if len(dst) > 0 && &dst[0] != &payload[0] {
		copy(dst, payload)
	}
	q.rx.off += uint64(len(payload))
	if h.Flags&wire.FlagLast == 0 {
		return true
	}
	q.rx.active = false
	if imm {
		q.takeRecv()
		q.rx.hasWR = false
		wc := verbs.WC{WRID: q.rx.wrid, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: uint32(h.Total), QPNum: q.num}
		q.complete(&wc, h)
	}
	q.executed(h)
	return true
}

// recvReadReq queues the response to an RDMA READ.
func (q *queuePair) recvReadReq(l wire.Link, h *wire.Header) {
	if q.accepts(l, h) {
		q.answerRead(h, response{op: wire.OpReadResp, psn: h.PSN, rkey: h.RKey, addr: h.Addr, total: h.Total, alone: h.Imm == 1})
	}
}

// answerRead checks a read or push and queues its response, or rejects it.
func (q *queuePair) answerRead(h *wire.Header, r response) {
	_, ok := q.d.regions.Resolve(&q.pd.Domain, h.RKey, h.Addr, h.Total, verbs.AccessRemoteRead)
	switch {
	case h.Total > 0 && q.attr.AccessFlags&verbs.AccessRemoteRead == 0, !ok && !r.alone:
		q.denied(h.PSN)
		return
	case q.resp.len() >= int(q.attr.MaxDestRdAtomic):
		q.rejectInvalid(h.PSN, "the peer has more reads outstanding than agreed")
		return
	case !ok:
		r.status = uint8(verbs.WCRemAccessErr)
	}
	q.executed(h)
	q.answer(r)
}

// answer queues a response.
func (q *queuePair) answer(r response) {
	q.resp.push(r)
	q.d.queue(q)
}

// recvAtomicReq executes an atomic. It is atomic with respect to the requests of all peers, since
// the device has one owner at a time, and, as on NICs, not with respect to the program.
func (q *queuePair) recvAtomicReq(l wire.Link, h *wire.Header, payload []byte) {
	if !q.accepts(l, h) {
		return
	}
	if len(payload) != 16 || h.Imm > 1 {
		q.d.violation(l, "a malformed atomic for QP %d", q.num)
		return
	}
	mem, ok := q.d.regions.Resolve(&q.pd.Domain, h.RKey, h.Addr, 8, verbs.AccessRemoteAtomic)
	switch {
	case h.Addr%8 == 0 && (!ok || q.attr.AccessFlags&verbs.AccessRemoteAtomic == 0):
		q.denied(h.PSN)
		return
	case h.Addr%8 != 0 || q.resp.len() >= int(q.attr.MaxDestRdAtomic):
		q.rejectInvalid(h.PSN, "an unaligned atomic of the peer, or one more than agreed")
		return
	}
	if invariant.Enabled {
		q.d.peerWrites(h.RKey, mem, verbs.AccessRemoteAtomic)
	}
	old := binary.NativeEndian.Uint64(mem)
	comp, swap := binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])
	switch {
	case h.Imm == 1:
		binary.NativeEndian.PutUint64(mem, old+comp)
	case old == comp:
		binary.NativeEndian.PutUint64(mem, swap)
	}
	q.executed(h)
	q.answer(response{op: wire.OpAtomicResp, psn: h.PSN, value: old, total: 8})
}

// invalidates invalidates the region that a SEND_WITH_INV names, if h is its last packet. A wrong
// key fails the QP, and it returns false. It may see a packet again after RNR, which does not hurt,
// since an invalidated region stays registered.
func (q *queuePair) invalidates(h *wire.Header) bool {
	if h.Flags&(wire.FlagInv|wire.FlagLast) != wire.FlagInv|wire.FlagLast || q.d.regions.Invalidate(&q.pd.Domain, h.Imm) {
		return true
	}
	q.denied(h.PSN)
	return false
}

// sendAck sends the acknowledgement that is due, if any. It returns false if there is no room.
func (q *queuePair) sendAck() bool {
	if !q.ackDue {
		return true
	}
	q.d.scratch = wire.Header{Op: wire.OpAck, Flags: wire.FlagFirst | wire.FlagLast, QPN: q.attr.DestQPN, PSN: q.ackPSN}
	if !q.link.Send(&q.d.scratch, nil, nil) {
		return false
	}
	q.d.dirty = true
	q.ackDue = false
	return true
}

// respond sends responses as far as there is room, within respBurst and respBytes. It returns true
// if none is left.
func (q *queuePair) respond() bool {
	for n, sent := 0, 0; n < respBurst && sent < respBytes; n++ {
		if q.resp.len() == 0 {
			return true
		}
		r := q.resp.front()
		if r.op == wire.OpPushResp && r.off == 0 && q.resp.len() > 1 {
			q.pushMany()
		}
		if r.op == wire.OpPushResp && !q.push(r) {
			break
		}
		h := &q.d.scratch
		*h = wire.Header{Op: r.op, Flags: wire.FlagFirst | wire.FlagLast, Status: r.status, QPN: q.attr.DestQPN, PSN: r.psn, Total: r.total}
		var body []byte
		switch r.op {
		case wire.OpReadResp:
			if r.status == 0 && !q.link.HasRoom(int(q.piece(r))) {
				return false
			}
			if body = q.nextPiece(r, h); r.status != 0 && !r.alone {
				psn := r.psn
				q.resp.clear()
				q.denied(psn) // deregistered, or gone, while it was being read
				continue
			}
		case wire.OpPushResp:
			sent += int(min(r.total, wire.MaxChunk))
		case wire.OpAtomicResp:
			body = binary.NativeEndian.AppendUint64(q.d.operands[:0], r.value)
		}
		h.Length = uint32(len(body))
		if !q.link.Send(h, nil, body) {
			return false
		}
		q.d.dirty = true
		r.off += uint64(len(body))
		sent += len(body)
		if r.op != wire.OpReadResp || r.off == r.total || r.status != 0 {
			q.resp.pop()
		}
	}
	if q.resp.len() == 0 {
		return true
	}
	q.d.more = true
	return false
}

// piece is how many bytes of a read go in the next packet.
func (q *queuePair) piece(r *response) uint64 {
	return min(r.total-r.off, uint64(q.link.MaxReadPayload()))
}

// nextPiece returns the next bytes of a read and completes their header. It checks the region again
// each time, and refuses the read if it was deregistered meanwhile, or its memory has gone: a wire
// that read there would crash the process, or break off in the middle of the packet.
func (q *queuePair) nextPiece(r *response, h *wire.Header) []byte {
	n := q.piece(r)
	b, ok := q.d.regions.Resolve(&q.pd.Domain, r.rkey, r.addr+r.off, n, verbs.AccessRemoteRead)
	if !ok || r.status != 0 {
		r.status = cmp.Or(r.status, uint8(verbs.WCRemAccessErr))
	} else if !fault.Readable(b) {
		r.status = uint8(verbs.WCRemOpErr)
	}
	if h.Status = r.status; r.status != 0 {
		return nil
	}
	h.Addr = r.off
	h.Flags = 0
	if r.off == 0 {
		h.Flags = wire.FlagFirst
	}
	if r.off+n == r.total {
		h.Flags |= wire.FlagLast
	}
	return b
}
