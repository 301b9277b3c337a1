package soft

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// issue starts an RDMA READ or an atomic. It returns false when that has to wait, or has failed.
func (q *queuePair) issue(e *sendEntry, w *sendWork) bool {
	switch {
	case q.attr.MaxRdAtomic == 0:
		e.status = uint8(verbs.WCLocQPOpErr)
		q.halt()
		return false
	case verbs.SendOpcode(e.op) == verbs.WRRDMARead:
		return q.issueRead(e, w)
	}
	w.imm = 0
	if verbs.SendOpcode(e.op) == verbs.WRAtomicFetchAndAdd {
		w.imm = 1
	}
	operands := binary.LittleEndian.AppendUint64(q.d.operands[:0], w.comp)
	return q.request(wire.OpAtomicReq, w, 0, 8, binary.LittleEndian.AppendUint64(operands, w.swap))
}

// issueRead starts an RDMA READ: as a copy from the peer's memory, as a push, or by packets.
func (q *queuePair) issueRead(e *sendEntry, w *sendWork) bool {
	if m := q.link.Memory(); m != nil && q.mayCopy(w.addr, uint64(e.length)) && m.Reaches(w.rkey) {
		if e.length == 0 {
			e.flags |= entryGot
		} else {
			q.copyRead(e, w)
		}
		return true
	}
	w.imm = 0
	if q.init.ReadFaults {
		w.imm = 1
	}
	return q.request(wire.OpReadReq, w, 0, uint64(e.length), nil)
}

// copyRead starts the READ at index sent as a copy by this device, by the peer, or by both.
func (q *queuePair) copyRead(e *sendEntry, w *sendWork) {
	n := uint64(e.length)
	w.lo, w.upto = q.part(w, n)
	switch own := w.upto - w.lo; {
	case own == n:
	case !q.askPush(w, e):
		w.lo, w.upto = 0, n
	case own > 0:
		e.flags |= entryHalves
	}
	if w.off = w.lo; w.off < w.upto {
		q.mreads.push(q.sent)
		q.reads()
	}
}

// reads puts the QP on the list of those that copy.
func (q *queuePair) reads() {
	if !q.reading {
		q.reading = true
		q.d.readers = append(q.d.readers, q)
	}
}

// request sends the request packet of a read, push or atomic, for total bytes from offset from on.
// It returns false if MaxRdAtomic are under way, or there is no room.
func (q *queuePair) request(op wire.Opcode, w *sendWork, from, total uint64, body []byte) bool {
	if q.rdq.len() >= int(q.attr.MaxRdAtomic) {
		return false
	}
	h := &q.d.scratch
	*h = wire.Header{Op: op, Flags: wire.FlagFirst | wire.FlagLast, QPN: q.hdr.QPN, PSN: q.sent + q.psn, RKey: w.rkey, Addr: w.addr + from,
		Total: total, Length: uint32(len(body)), Imm: w.imm}
	if !q.link.Send(h, body, nil) {
		return false
	}
	q.d.dirty = true
	w.off = 0
	q.rdq.push(awaited{index: q.sent})
	if op == wire.OpAtomicReq {
		q.changes(w.addr, 8)
	}
	return true
}

// copyChunk copies the next chunk of the QP's direct reads. It returns true if the QP has more to
// copy.
func (q *queuePair) copyChunk() bool {
	if q.link == nil {
		q.mreads.clear()
		q.reading = false
		return false
	}
	if q.mreads.len() == 0 {
		q.takeBack() // may end a read whose own half has failed
	} else if !q.copyMany() && q.copyOne() {
		return true
	}
	q.proceed()
	q.reading = q.mreads.len()+q.shares > 0
	return q.reading
}

// proceed completes what has ended, and has requests transmitted that waited for that: fenced ones,
// and those beyond MaxRdAtomic.
func (q *queuePair) proceed() {
	q.retire()
	if q.sent != q.posted {
		q.d.queue(q)
	}
}

// copyOne copies the next chunk of the oldest direct read. It returns true if there is more of it.
func (q *queuePair) copyOne() bool {
	i := *q.mreads.front()
	e, w := &q.sq[i&q.mask], q.work(i)
	mem := q.link.Memory()
	list := q.list(i)
	dst, ok := q.target(list, w.off, min(w.upto-w.off, wire.MaxChunk))
	switch {
	case e.status != 0: // the other half has failed
	case mem == nil:
		e.status = uint8(verbs.WCRetryExcErr)
	case !ok:
		e.status = uint8(verbs.WCLocProtErr)
	default:
		if invariant.Enabled {
			q.d.writes(list, dst)
		}
		e.status = uint8(mem.Read(dst, w.addr+w.off, w.rkey))
	}
	if w.off += uint64(len(dst)); e.status == 0 && w.off < w.upto {
		return true
	}
	if e.status != 0 {
		q.readFails(e, verbs.WCStatus(e.status))
	}
	q.mreads.pop()
	if e.status == 0 || e.flags&entryRefused != 0 {
		q.readEnded(e, i)
	} else {
		q.fast = false
	}
	return false
}

// readFails fails a READ: alone where that is possible, so that other pieces of it are still
// received.
func (q *queuePair) readFails(e *sendEntry, s verbs.WCStatus) {
	e.status = uint8(s)
	if q.init.ReadFaults && s.FailsAlone() {
		e.flags |= entryRefused
	}
}

// readEnded records that a read has its data, or was refused alone; or one of its halves.
func (q *queuePair) readEnded(e *sendEntry, i uint32) {
	if e.flags&entryHalves != 0 {
		e.flags &^= entryHalves
		return
	}
	e.flags |= entryGot
	if q.dev != nil {
		q.readDone(i, verbs.WCStatus(e.status))
	}
}

// answered returns the read or atomic that a response of opcode op is for, and its index, or nil.
func (q *queuePair) answered(l wire.Link, h *wire.Header, op wire.Opcode) (*sendEntry, *sendWork, uint32) {
	if q.state != verbs.QPSRTS {
		return nil, nil, 0
	}
	i := h.PSN - q.psn
	if q.rdq.len() == 0 || q.rdq.front().index != i || q.rdq.front().taken != 0 || op != q.asked(i) {
		q.d.violation(l, "answers request %d of QP %d, which does not wait for that", h.PSN, q.num)
		return nil, nil, 0
	}
	return &q.sq[i&q.mask], q.work(i), i
}

// asked returns the opcode of the response that request i waits for.
func (q *queuePair) asked(i uint32) wire.Opcode {
	switch {
	case verbs.SendOpcode(q.sq[i&q.mask].op) != verbs.WRRDMARead:
		return wire.OpAtomicResp
	case q.work(i).push != 0:
		return wire.OpPushResp
	}
	return wire.OpReadResp
}

// recvReadResp receives a piece of an RDMA READ.
func (q *queuePair) recvReadResp(l wire.Link, h *wire.Header, payload []byte) {
	e, w, i := q.answered(l, h, wire.OpReadResp)
	if e == nil {
		return
	}
	if h.Status != 0 {
		q.readRefused(l, e, h)
		return
	}
	end := w.off + uint64(len(payload))
	last := h.Flags&wire.FlagLast != 0
	if h.Addr != w.off || h.Total != uint64(e.length) || end > h.Total || last != (end == h.Total) {
		q.d.violation(l, "answers the read %d of QP %d with a piece that does not fit", h.PSN, q.num)
		return
	}
	if e.status == 0 {
		if s := q.land(q.list(i), w.off, payload); s != verbs.WCSuccess {
			q.readFails(e, s)
		}
	}
	w.off = end
	if !last {
		q.d.pieces++
	}
	if last || e.status != 0 && e.flags&entryRefused == 0 {
		q.gotAnswer(e)
	}
}

// readRefused receives the refusal of a read that fails alone.
func (q *queuePair) readRefused(l wire.Link, e *sendEntry, h *wire.Header) {
	s := verbs.WCStatus(h.Status)
	if !q.init.ReadFaults || s != verbs.WCRemAccessErr && s != verbs.WCRemOpErr || h.Length != 0 {
		q.d.violation(l, "refuses the read %d of QP %d with status %d", h.PSN, q.num, h.Status)
		return
	}
	q.readFails(e, s)
	q.gotAnswer(e)
}

// recvAtomicResp receives the old value of an atomic.
func (q *queuePair) recvAtomicResp(l wire.Link, h *wire.Header, payload []byte) {
	e, _, i := q.answered(l, h, wire.OpAtomicResp)
	if e == nil {
		return
	}
	if len(payload) != 8 {
		q.d.violation(l, "answers an atomic with %d bytes", len(payload))
		return
	}
	if !q.scatter(q.list(i), 0, payload) {
		e.status = uint8(verbs.WCLocProtErr)
	}
	q.gotAnswer(e)
}

// gotAnswer ends the oldest read or atomic by packets. Its response also acknowledges all requests
// before it.
func (q *queuePair) gotAnswer(e *sendEntry) {
	i := q.rdq.front().index
	q.rdq.pop()
	q.ackTo(i + 1)
	if e.status != 0 && e.flags&entryRefused == 0 {
		e.flags |= entryGot
		q.fast = false
	} else {
		q.readEnded(e, i)
	}
	q.proceed()
}
