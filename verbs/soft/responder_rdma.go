package soft

import (
	"cmp"
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// recvWrite receives a packet of an RDMA WRITE.
func (r *responder) recvWrite(l wire.Link, h *wire.Header, payload []byte) bool {
	if !r.accepts(l, h) {
		return true
	}
	imm := h.Flags&wire.FlagImm != 0
	if imm && h.Flags&wire.FlagLast != 0 && r.q.rq.head == r.q.rq.tail {
		return r.notReady(h)
	}
	if h.Flags&wire.FlagFirst != 0 {
		r.startMessage(h)
	}
	if !r.fits(l, h) {
		return true
	}
	dst, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, h.RKey, h.Addr, uint64(len(payload)), verbs.AccessRemoteWrite)
	if !ok || len(payload) > 0 && r.q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		r.rx = rxMessage{}
		r.denied(h.PSN)
		return true
	}
	r.q.d.peerWrites(h.RKey, dst, verbs.AccessRemoteWrite)
	if len(dst) > 0 && &dst[0] != &payload[0] {
		copy(dst, payload)
	}
	r.rx.off += uint64(len(payload))
	if h.Flags&wire.FlagLast == 0 {
		return true
	}
	r.rx.active = false
	if imm {
		r.takeRecv()
		r.rx.hasWR = false
		wc := verbs.WC{WRID: r.rx.wrid, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: uint32(h.Total), QPNum: r.q.num}
		r.complete(&wc, h)
	}
	r.executed(h)
	return true
}

// recvReadReq queues the response to an RDMA READ.
func (r *responder) recvReadReq(l wire.Link, h *wire.Header) {
	if r.accepts(l, h) {
		r.answerRead(h, response{op: wire.OpReadResp, psn: h.PSN, rkey: h.RKey, addr: h.Addr, total: h.Total, alone: h.Imm == 1})
	}
}

// answerRead checks a read or push and queues its response, or rejects it.
func (r *responder) answerRead(h *wire.Header, a response) {
	_, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, h.RKey, h.Addr, h.Total, verbs.AccessRemoteRead)
	switch {
	case h.Total > 0 && r.q.attr.AccessFlags&verbs.AccessRemoteRead == 0, !ok && !a.alone:
		r.denied(h.PSN)
		return
	case r.resp.len() >= int(r.q.attr.MaxDestRdAtomic):
		r.rejectInvalid(h.PSN, "the peer has more reads outstanding than agreed")
		return
	case !ok:
		a.status = uint8(verbs.WCRemAccessErr)
	}
	r.executed(h)
	r.answer(a)
}

// recvPushReq receives a request to push.
func (r *responder) recvPushReq(l wire.Link, h *wire.Header, payload []byte) {
	if !r.accepts(l, h) {
		return
	}
	if len(payload) != pushBytes {
		r.q.d.violation(l, "a malformed request to push for QP %d", r.q.num)
		return
	}
	// A refused push fails alone: the requester then reads, and that request may fail more.
	r.answerRead(h, response{op: wire.OpPushResp, psn: h.PSN, rkey: h.RKey, addr: h.Addr, total: h.Total, alone: true,
		value: binary.LittleEndian.Uint64(payload), key: binary.LittleEndian.Uint32(payload[8:])})
}

// answer queues a response.
func (r *responder) answer(a response) {
	r.resp.push(a)
	r.q.d.queue(r.q)
}

// sendAck sends the acknowledgement that is due, if any. It returns false if there is no room.
func (r *responder) sendAck() bool {
	if !r.ackDue {
		return true
	}
	r.q.d.scratch = wire.Header{Op: wire.OpAck, Flags: wire.FlagFirst | wire.FlagLast, QPN: r.q.attr.DestQPN, PSN: r.ackPSN}
	if !r.q.link.Send(&r.q.d.scratch, nil, nil) {
		return false
	}
	r.q.d.dirty = true
	r.ackDue = false
	return true
}

// respond sends responses as far as there is room, within respBurst and respBytes. It returns true
// if none is left.
func (r *responder) respond() bool {
	for n, sent := 0, 0; n < respBurst && sent < respBytes; n++ {
		if r.resp.len() == 0 {
			return true
		}
		a := r.resp.front()
		if a.op == wire.OpPushResp && a.off == 0 && r.resp.len() > 1 {
			r.pushMany()
		}
		if a.op == wire.OpPushResp && !r.push(a) {
			break
		}
		h := &r.q.d.scratch
		*h = wire.Header{Op: a.op, Flags: wire.FlagFirst | wire.FlagLast, Status: a.status, QPN: r.q.attr.DestQPN, PSN: a.psn, Total: a.total}
		var body []byte
		switch a.op {
		case wire.OpReadResp:
			if a.status == 0 && !r.q.link.HasRoom(int(r.piece(a))) {
				return false
			}
			if body = r.nextPiece(a, h); a.status != 0 && !a.alone {
				psn := a.psn
				r.resp.clear()
				r.denied(psn) // deregistered, or gone, while it was being read
				continue
			}
		case wire.OpPushResp:
			sent += int(min(a.total, wire.MaxChunk))
		}
		h.Length = uint32(len(body))
		if !r.q.link.Send(h, nil, body) {
			return false
		}
		r.q.d.dirty = true
		a.off += uint64(len(body))
		sent += len(body)
		if a.op != wire.OpReadResp || a.off == a.total || a.status != 0 {
			r.resp.pop()
		}
	}
	if r.resp.len() == 0 {
		return true
	}
	r.q.d.more = true
	return false
}

// piece is how many bytes of a read go in the next packet.
func (r *responder) piece(a *response) uint64 {
	return min(a.total-a.off, uint64(r.q.link.MaxReadPayload()))
}

// nextPiece returns the next bytes of a read and completes their header. It checks the region again
// each time, and refuses the read if it was deregistered meanwhile, or its memory has gone: a wire
// that read there would crash the process, or break off in the middle of the packet.
func (r *responder) nextPiece(a *response, h *wire.Header) []byte {
	n := r.piece(a)
	b, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, a.rkey, a.addr+a.off, n, verbs.AccessRemoteRead)
	if !ok || a.status != 0 {
		a.status = cmp.Or(a.status, uint8(verbs.WCRemAccessErr))
	} else if !fault.Readable(b) {
		a.status = uint8(verbs.WCRemOpErr)
	}
	if h.Status = a.status; a.status != 0 {
		return nil
	}
	h.Addr = a.off
	h.Flags = 0
	if a.off == 0 {
		h.Flags = wire.FlagFirst
	}
	if a.off+n == a.total {
		h.Flags |= wire.FlagLast
	}
	return b
}

// push copies the next chunk. It returns true when the push has ended, with a.status.
func (r *responder) push(a *response) bool {
	if a.off == a.total || a.status != 0 {
		return true
	}
	src, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, a.rkey, a.addr+a.off, min(a.total-a.off, wire.MaxChunk), verbs.AccessRemoteRead)
	peer, can := r.q.link.Memory().(wire.RemoteWriter)
	switch {
	case !ok:
		a.status = uint8(verbs.WCRemAccessErr) // deregistered meanwhile: a READ will fail too
	case !can:
		a.status = uint8(verbs.WCRemOpErr)
	default:
		a.status = uint8(peer.Write(src, a.value+a.off, a.key))
	}
	a.off += uint64(len(src))
	return a.off == a.total || a.status != 0
}

// pushMany makes the pushes at the front of the responses, where several fit into a chunk. Those
// that it does not make are left to push.
func (r *responder) pushMany() {
	mem, ok := r.q.link.Memory().(wire.RemotePieces)
	if !ok {
		return
	}
	ps := r.q.d.batch[:0]
	for left := wire.MaxChunk; len(ps) < min(r.resp.len(), wire.MaxPieces); {
		a := r.resp.at(len(ps))
		if a.op != wire.OpPushResp || a.off != 0 || a.status != 0 || a.total > uint64(left) {
			break
		}
		src, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, a.rkey, a.addr, a.total, verbs.AccessRemoteRead)
		if !ok || len(src) == 0 {
			break
		}
		left -= len(src)
		ps = append(ps, wire.Piece{Data: src, Addr: a.value, RKey: a.key})
	}
	if len(ps) >= 2 {
		for k := range mem.WriteMany(ps) {
			a := r.resp.at(k)
			a.off = a.total
		}
	}
	clear(ps)
}
