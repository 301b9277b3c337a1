package soft

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// reader is the part of the sending half that reads: what becomes of an RDMA READ from its start to
// its end. It is copied from the peer's memory by this device (mreads), pushed by the peer, or
// both; else it is answered by packets.
type reader struct {
	q       *queuePair    // whose reader it is
	mreads  fifo[uint32]  // indexes of READs that this device copies from the peer's memory
	rdq     fifo[awaited] // reads and pushes that wait for response packets
	reading bool          // in Device.readers
	shares  int           // pushes that may be taken back
	pushing int           // pushes that the peer was asked for and that have not ended
	idle    int           // passes in which this end copied nothing, and the peer was not seen to
}

// awaited is a request that waits for its response packet.
type awaited struct {
	index uint32
	taken uint32 // the grant of a push that was taken back, and may have ended long ago; or 0
	chunk uint32 // the peer's last of a push that was revoked; 0: none

	revoked bool // the grant of the push
}

// clear forgets the READs under way, whose pushes have ended (endPushes).
func (r *reader) clear() {
	r.mreads.clear()
	r.rdq.clear()
}

// underWay is how many parts of READs have not ended.
func (r *reader) underWay() int { return r.mreads.len() + r.rdq.len() }

// issue starts an RDMA READ: as a copy from the peer's memory, as a push, or by packets. It returns
// false when that has to wait, or has failed.
func (r *reader) issue(e *sendEntry, w *sendWork) bool {
	if r.q.attr.MaxRdAtomic == 0 {
		e.status = uint8(verbs.WCLocQPOpErr)
		r.q.halt()
		return false
	}
	if m := r.q.link.Memory(); m != nil && r.q.mayCopy(w.addr, uint64(e.length)) && m.Reaches(w.rkey) {
		if e.length == 0 {
			e.flags |= entryGot
		} else {
			r.copyRead(e, w)
		}
		return true
	}
	w.imm = 0
	if r.q.init.ReadFaults {
		w.imm = 1
	}
	return r.request(wire.OpReadReq, w, 0, uint64(e.length), nil)
}

// copyRead starts the READ at index sent as a copy by this device, by the peer, or by both.
func (r *reader) copyRead(e *sendEntry, w *sendWork) {
	n := uint64(e.length)
	w.lo, w.upto = r.part(w, n)
	switch own := w.upto - w.lo; {
	case own == n:
	case !r.askPush(w, e):
		w.lo, w.upto = 0, n
	case own > 0:
		e.flags |= entryHalves
	}
	if w.off = w.lo; w.off < w.upto {
		r.mreads.push(r.q.sent)
		r.reads()
	}
}

// reads puts it on the list of those that copy.
func (r *reader) reads() {
	if !r.reading {
		r.reading = true
		r.q.d.readers = append(r.q.d.readers, r)
	}
}

// request sends the request packet of a read or push, for total bytes from offset from on.
// It returns false if MaxRdAtomic are under way, or there is no room.
func (r *reader) request(op wire.Opcode, w *sendWork, from, total uint64, body []byte) bool {
	if r.rdq.len() >= int(r.q.attr.MaxRdAtomic) {
		return false
	}
	h := &r.q.d.scratch
	*h = wire.Header{Op: op, Flags: wire.FlagFirst | wire.FlagLast, QPN: r.q.hdr.QPN, PSN: r.q.sent + r.q.psn, RKey: w.rkey, Addr: w.addr + from,
		Total: total, Length: uint32(len(body)), Imm: w.imm}
	if !r.q.link.Send(h, body, nil) {
		return false
	}
	r.q.d.dirty = true
	w.off = 0
	r.rdq.push(awaited{index: r.q.sent})
	return true
}

// copyChunk copies the next chunk of the direct reads. It returns true if there is more to copy.
func (r *reader) copyChunk() bool {
	if r.q.link == nil {
		r.mreads.clear()
		r.reading = false
		return false
	}
	if r.mreads.len() == 0 {
		r.takeBack() // may end a read whose own half has failed
	} else if !r.copyMany() && r.copyOne() {
		return true
	}
	r.q.proceed()
	r.reading = r.mreads.len()+r.shares > 0
	return r.reading
}

// proceed completes what has ended, and has requests transmitted that waited for that: fenced ones,
// and those beyond MaxRdAtomic.
func (r *requester) proceed() {
	r.retire()
	if r.sent != r.posted {
		r.q.d.queue(r.q)
	}
}

// copyOne copies the next chunk of the oldest direct read. It returns true if there is more of it.
func (r *reader) copyOne() bool {
	i := *r.mreads.front()
	e, w := r.q.entry(i), r.q.work(i)
	mem := r.q.link.Memory()
	list := r.q.list(i)
	dst, ok := r.q.target(list, w.off, min(w.upto-w.off, wire.MaxChunk))
	switch {
	case e.status != 0: // the other half has failed
	case mem == nil:
		e.status = uint8(verbs.WCRetryExcErr)
	case !ok:
		e.status = uint8(verbs.WCLocProtErr)
	default:
		r.q.d.writes(list, dst)
		e.status = uint8(mem.Read(dst, w.addr+w.off, w.rkey))
	}
	if w.off += uint64(len(dst)); e.status == 0 && w.off < w.upto {
		return true
	}
	if e.status != 0 {
		r.readFails(e, verbs.WCStatus(e.status))
	}
	r.mreads.pop()
	if e.status == 0 || e.flags&entryRefused != 0 {
		r.readEnded(e, i)
	} else {
		r.q.fast = false
	}
	return false
}

// copyMany copies the oldest direct reads, where several fit into a chunk, by one system call: that
// takes about 2 us whatever it copies, as much as the copy of some 30 KB. It returns false if it
// has copied none: then copyOne makes the oldest, and finds what is wrong with it.
func (r *reader) copyMany() bool {
	mem, ok := r.q.link.Memory().(wire.RemotePieces)
	if !ok || r.mreads.len() < 2 {
		return false
	}
	ps := r.q.d.batch[:0]
	for left := wire.MaxChunk; len(ps) < min(r.mreads.len(), wire.MaxPieces); {
		i := *r.mreads.at(len(ps))
		w := r.q.work(i)
		n := w.upto - w.off
		if w.nsge != 1 || n > uint64(left) {
			break
		}
		dst, ok := r.q.target(r.q.list(i), w.off, n)
		if !ok {
			break
		}
		left -= len(dst)
		ps = append(ps, wire.Piece{Data: dst, Addr: w.addr + w.off, RKey: w.rkey})
	}
	defer func() { clear(ps) }()
	if len(ps) < 2 {
		return false
	}
	if invariant.Enabled {
		for k := range ps {
			r.q.d.writes(r.q.list(*r.mreads.at(k)), ps[k].Data)
		}
	}
	done := mem.ReadMany(ps)
	for range done {
		i := *r.mreads.front()
		r.mreads.pop()
		r.readEnded(r.q.entry(i), i)
	}
	return done > 0
}

// readFails fails a READ: alone where that is possible, so that other pieces of it are still
// received.
func (r *reader) readFails(e *sendEntry, s verbs.WCStatus) {
	e.status = uint8(s)
	if r.q.init.ReadFaults && s.FailsAlone() {
		e.flags |= entryRefused
	}
}

// readEnded records that a read has its data, or was refused alone; or one of its halves.
func (r *reader) readEnded(e *sendEntry, i uint32) {
	if e.flags&entryHalves != 0 {
		e.flags &^= entryHalves
		return
	}
	e.flags |= entryGot
	if r.q.dev != nil {
		r.q.readDone(i, verbs.WCStatus(e.status))
	}
}

// answered returns the read that a response of opcode op is for, and its index, or nil.
func (r *reader) answered(l wire.Link, h *wire.Header, op wire.Opcode) (*sendEntry, *sendWork, uint32) {
	if r.q.state != verbs.QPSRTS {
		return nil, nil, 0
	}
	i := h.PSN - r.q.psn
	if r.rdq.len() == 0 || r.rdq.front().index != i || r.rdq.front().taken != 0 || op != r.asked(i) {
		r.q.d.violation(l, "answers request %d of QP %d, which does not wait for that", h.PSN, r.q.num)
		return nil, nil, 0
	}
	return r.q.entry(i), r.q.work(i), i
}

// asked returns the opcode of the response that request i waits for.
func (r *reader) asked(i uint32) wire.Opcode {
	if r.q.work(i).push != 0 {
		return wire.OpPushResp
	}
	return wire.OpReadResp
}

// recvReadResp receives a piece of an RDMA READ.
func (r *reader) recvReadResp(l wire.Link, h *wire.Header, payload []byte) {
	e, w, i := r.answered(l, h, wire.OpReadResp)
	if e == nil {
		return
	}
	if h.Status != 0 {
		r.readRefused(l, e, h)
		return
	}
	end := w.off + uint64(len(payload))
	last := h.Flags&wire.FlagLast != 0
	if h.Addr != w.off || h.Total != uint64(e.length) || end > h.Total || last != (end == h.Total) {
		r.q.d.violation(l, "answers the read %d of QP %d with a piece that does not fit", h.PSN, r.q.num)
		return
	}
	if e.status == 0 {
		if s := r.q.land(r.q.list(i), w.off, payload); s != verbs.WCSuccess {
			r.readFails(e, s)
		}
	}
	w.off = end
	if !last {
		r.q.d.pieces++
	}
	if last || e.status != 0 && e.flags&entryRefused == 0 {
		r.gotAnswer(e)
	}
}

// readRefused receives the refusal of a read that fails alone.
func (r *reader) readRefused(l wire.Link, e *sendEntry, h *wire.Header) {
	s := verbs.WCStatus(h.Status)
	if !r.q.init.ReadFaults || s != verbs.WCRemAccessErr && s != verbs.WCRemOpErr || h.Length != 0 {
		r.q.d.violation(l, "refuses the read %d of QP %d with status %d", h.PSN, r.q.num, h.Status)
		return
	}
	r.readFails(e, s)
	r.gotAnswer(e)
}

// gotAnswer ends the oldest read by packets. Its response also acknowledges all requests
// before it.
func (r *reader) gotAnswer(e *sendEntry) {
	i := r.rdq.front().index
	r.rdq.pop()
	r.q.ackTo(i + 1)
	if e.status != 0 && e.flags&entryRefused == 0 {
		e.flags |= entryGot
		r.q.fast = false
	} else {
		r.readEnded(e, i)
	}
	r.q.proceed()
}
