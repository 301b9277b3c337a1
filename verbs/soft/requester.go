package soft

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// requester is the sending half of a queue pair, but for its READs (reader). Work requests have
// indexes, from 0 after RESET, modulo 2^32; index & mask is the slot in sq. The fields reclaimed,
// done, sent and posted are indexes, and
//
//	reclaimed <= done <= sent <= posted <= reclaimed + len(sq)
type requester struct {
	q         *queuePair // whose half it is
	sq        []sendEntry
	more      []sendWork  // of requests off the fast path, a power of two, see work; grows with use
	sges      []sge       // Cap.MaxSendSGE for each element of more
	mask      uint32      // len(sq) - 1
	depth     uint32      // MaxSendWR: the most requests that the program may have outstanding
	posted    uint32      // the next request to be posted
	sent      uint32      // the first that the link has not taken (for a read: that was not started)
	done      uint32      // the first that has not completed; unsignalled SENDs and WRITEs count when sent
	reclaimed uint32      // the first whose slot is in use: polling a completion frees those up to it (TMO 8.2)
	acked     uint32      // the first that the peer may not have executed
	wrote     wroteRange  // by WRITEs, which direct reads must not overtake
	psn       uint32      // PSN of index 0
	hdr       wire.Header // of SENDs on the fast path, which change flags, lengths and PSN
	fast      bool        // state RTS, and no request has failed
	sigAll    bool        // QPInitAttr.SQSigAll
}

// sendEntry is the part of a send request that is needed until its completion is polled.
type sendEntry struct {
	wrid   uint64
	op     uint8 // verbs.SendOpcode
	flags  uint8 // entrySignaled and so on
	status uint8 // verbs.WCStatus if it has failed at this end
	_      uint8
	length uint32 // bytes
}

const (
	entrySignaled uint8 = 1 << iota
	entryAnswer         // read: complete with entryGot, not when acknowledged
	entryGot            // the response is complete
	entryDone           // its completion was made
	entryRefused        // a read that has failed alone (verbs.QPInitAttr.ReadFaults)
	entryHalves         // a read that is both in mreads and in rdq: it has two parts that have not ended
)

// sendWork is the part of a send request that is needed to transmit it, or to receive its response.
type sendWork struct {
	flags verbs.SendFlags
	imm   uint32 // immediate data, or see wire.OpReadReq
	rkey  uint32 // the peer's region
	push  uint32 // the grant with which the peer pushes; 0: no push
	nsge  int32  // entries in sges; none with buf
	share bool   // the push may be taken back
	addr  uint64 // in the peer's region
	off   uint64 // bytes sent or received
	lo    uint64 // of a read from the peer's memory: this device copies from here on, 0 or
	upto  uint64 // up to here, its length; the rest the peer pushes
	buf   []byte // inline data, from Device.pool; nil once sent
}

// wroteRange is the part of the peer's memory that requests change which it may not have executed.
type wroteRange struct {
	upto   uint32 // one above the newest of them
	lo, hi uint64 // they change nothing outside of addresses lo to hi-1
}

// changes records that the request which is sent next writes n bytes at addr: direct reads of that
// range wait for it.
func (r *requester) changes(addr, n uint64) {
	w := &r.wrote
	if int32(w.upto-r.acked) <= 0 {
		w.lo, w.hi = addr, addr
	}
	w.lo, w.hi, w.upto = min(w.lo, addr), max(w.hi, addr+n), r.sent+1
}

// mayCopy reports that n bytes of the peer's memory can be read now without its doing: no request
// of this queue pair that is on its way changes them.
func (r *requester) mayCopy(addr, n uint64) bool {
	w := &r.wrote
	return int32(w.upto-r.acked) <= 0 || addr >= w.hi || addr+n <= w.lo
}

// start begins at RTS.
func (r *requester) start() {
	r.psn = r.q.attr.SQPSN - r.posted
	r.fast = true
	r.hdr = wire.Header{Op: wire.OpSend, QPN: r.q.attr.DestQPN, Status: r.q.attr.RNRRetry}
}

// clear forgets everything that was posted.
func (r *requester) clear() {
	r.posted, r.sent, r.done, r.reclaimed, r.acked, r.wrote, r.fast = 0, 0, 0, 0, 0, wroteRange{}, false
}

// reclaim frees the slots of requests before index upto. It ignores an index that is out of range.
func (r *requester) reclaim(upto uint32) {
	if int32(upto-r.reclaimed) > 0 && int32(r.posted-upto) >= 0 {
		old := r.reclaimed
		r.reclaimed = upto
		r.checkReclaimed(old)
	}
}

// postSlow checks and posts any request, and transmits what it can.
func (r *requester) postSlow(wr *verbs.SendWR) error {
	total, err := r.checkSend(wr)
	if err != nil {
		return err
	}
	var list [maxSGE]sge
	r.enqueue(wr, sgesOf(&list, wr.SGList), total)
	if r.q.state == verbs.QPSErr {
		if r.q.late == nil {
			r.flushSQ(verbs.WCWRFlushErr, r.posted-1) // older requests have completed
		}
		return nil
	}
	if r.q.pump() {
		r.q.d.queue(r.q)
	}
	return nil
}

// checkSend checks what PostSend refuses outright and returns the length.
func (r *requester) checkSend(wr *verbs.SendWR) (uint64, error) {
	const op = "post_send"
	if r.q.state != verbs.QPSRTS && r.q.state != verbs.QPSErr || r.q.gone {
		return 0, fail(op, syscall.EINVAL, fmt.Sprintf("the queue pair is in %v: sends need RTS", r.q.state))
	}
	if err := verbs.CheckSend(verbs.QPTRC, wr.Opcode, wr.Flags); err != nil {
		return 0, err
	}
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRLocalInv, verbs.WRBindMW, verbs.WRSendWithInv:
		return 0, fail(op, syscall.EOPNOTSUPP, fmt.Sprintf("this device does not do %v", wr.Opcode))
	}
	var total uint64
	for i := range wr.SGList {
		total += uint64(len(wr.SGList[i].Data))
	}
	switch {
	case len(wr.SGList) > int(r.q.init.Cap.MaxSendSGE):
		return 0, fail(op, syscall.EINVAL, "more scatter/gather entries than MaxSendSGE")
	case wr.Flags&verbs.SendInline != 0 && total > uint64(r.q.init.Cap.MaxInlineData):
		return 0, fail(op, syscall.EINVAL, fmt.Sprintf("%d bytes inline, MaxInlineData is %d", total, r.q.init.Cap.MaxInlineData))
	case total > maxMsgSize:
		return 0, fail(op, syscall.EINVAL, "message above the device's MaxMsgSize")
	case r.posted-r.reclaimed >= r.depth:
		return 0, fail(op, syscall.ENOMEM, "the send queue is full: slots come back when a later signalled completion is polled")
	}
	return total, nil
}

// enqueue puts a request into the ring, with a copy of inline data. list are its entries, and total
// their length.
func (r *requester) enqueue(wr *verbs.SendWR, list []sge, total uint64) {
	r.extend()
	e, w := &r.sq[r.posted&r.mask], r.work(r.posted)
	*e = sendEntry{wrid: wr.WRID, op: uint8(wr.Opcode), length: uint32(total)}
	if wr.Flags&verbs.SendSignaled != 0 || r.sigAll {
		e.flags = entrySignaled
	}
	*w = sendWork{flags: wr.Flags, imm: wr.Imm, rkey: wr.RKey, addr: wr.RemoteAddr}
	need := verbs.AccessFlags(0)
	if wr.Opcode == verbs.WRRDMARead {
		e.flags |= entryAnswer
		need = verbs.AccessLocalWrite
		r.checkPosted(list)
	} else {
		r.checkPosted(nil)
	}
	sges := r.room(r.posted)
	r.posted++
	if wr.Flags&verbs.SendInline != 0 {
		w.buf = r.q.d.pool.get(int(total))
		b := w.buf[:0]
		for k := range wr.SGList {
			b = append(b, wr.SGList[k].Data...)
		}
		return
	}
	w.nsge = int32(copy(sges, list))
	for k := range list {
		if _, ok := r.q.d.regions.Resolve(&r.q.pd.Domain, list[k].lkey, list[k].addr, list[k].length, need); !ok {
			e.status = uint8(verbs.WCLocProtErr)
		}
	}
}

// firstWork is how many requests off the fast path a queue pair has room for at first. Most of a
// large job's never have more under way.
const firstWork = 8

// extend makes room in more and sges for the request that is posted next. Elements move: who posts
// keeps no pointer to one. Only requests that are to be sent, or answered, have one.
func (r *requester) extend() {
	first := r.sent
	if r.q.underWay() > 0 {
		first = r.done
	}
	more, sges := r.more, r.sges
	if r.posted-first < uint32(len(more)) {
		return
	}
	n := max(ringSize(int(r.posted-first)+1), min(firstWork, len(r.sq)))
	r.more, r.sges = make([]sendWork, n), make([]sge, n*int(r.q.init.Cap.MaxSendSGE))
	for i := first; i != r.posted; i++ {
		k := i & uint32(len(more)-1)
		*r.work(i) = more[k]
		copy(r.room(i), sges[k*r.q.init.Cap.MaxSendSGE:])
	}
}

// entry is request i's slot in sq.
func (r *requester) entry(i uint32) *sendEntry { return &r.sq[i&r.mask] }

// work is request i's element of more.
func (r *requester) work(i uint32) *sendWork { return &r.more[i&uint32(len(r.more)-1)] }

// room is where the entries of request i are.
func (r *requester) room(i uint32) []sge {
	most := r.q.init.Cap.MaxSendSGE
	return r.sges[i&uint32(len(r.more)-1)*most:][:most]
}

// list is the entries of request i.
func (r *requester) list(i uint32) []sge { return r.room(i)[:r.work(i).nsge] }

// transmit gives the request at sent to the link. It returns false when that has to wait, or has
// failed.
func (r *requester) transmit() bool {
	e, w := &r.sq[r.sent&r.mask], r.work(r.sent)
	if e.status != 0 {
		r.halt()
		return false
	}
	if w.flags&verbs.SendFence != 0 && r.q.underWay() > 0 {
		return false
	}
	var ok bool
	if verbs.SendOpcode(e.op) == verbs.WRRDMARead {
		ok = r.q.issue(e, w)
	} else {
		ok = r.sendPackets(e, w, r.list(r.sent))
	}
	if !ok {
		return false
	}
	if w.buf != nil {
		r.q.d.pool.put(w.buf)
		w.buf = nil
	}
	r.sent++
	if e.flags&entryGot != 0 {
		r.retire() // a read of no bytes
	}
	return true
}

// halt stops transmission at a request that has failed. It completes when those before it have.
func (r *requester) halt() {
	r.fast = false
	r.sent++
	r.retire()
}

// sendPackets transmits the packets of a SEND or WRITE from w.off on. It returns true if all are
// sent.
func (r *requester) sendPackets(e *sendEntry, w *sendWork, list []sge) bool {
	h := &r.q.d.scratch
	*h = wire.Header{Op: wire.OpSend, QPN: r.hdr.QPN, PSN: r.sent + r.psn, Total: uint64(e.length), Status: r.hdr.Status}
	last := wire.FlagLast
	if e.flags&entrySignaled != 0 {
		last |= wire.FlagAckReq
	}
	if w.flags&verbs.SendSolicited != 0 {
		last |= wire.FlagSolicited
	}
	switch verbs.SendOpcode(e.op) {
	case verbs.WRSendWithImm:
		last |= wire.FlagImm
	case verbs.WRRDMAWriteWithImm:
		last |= wire.FlagImm
		h.Op, h.RKey = wire.OpWrite, w.rkey
	case verbs.WRRDMAWrite:
		h.Op, h.RKey = wire.OpWrite, w.rkey
	}
	if h.Op == wire.OpWrite {
		r.changes(w.addr, uint64(e.length))
	}
	for {
		head, body, ok := r.gather(w, list, r.q.maxPay)
		n := uint64(len(head) + len(body))
		if first := min(len(r.q.d.first), r.q.maxPay); ok && n < uint64(first) && w.off == 0 && n < uint64(e.length) {
			body = nil
			head, ok = r.firstBytes(list, first)
			n = uint64(len(head))
		}
		if !ok { // deregistered since the request was posted
			e.status = uint8(verbs.WCLocProtErr)
			r.halt()
			return false
		}
		h.Flags, h.Imm = 0, 0
		if w.off == 0 {
			h.Flags = wire.FlagFirst
		}
		if w.off+n == uint64(e.length) {
			h.Flags |= last
			h.Imm = w.imm
		}
		h.Length = uint32(n)
		if h.Op == wire.OpWrite {
			h.Addr = w.addr + w.off
		}
		if !r.q.link.Send(h, head, body) {
			return false
		}
		r.q.d.dirty = true
		w.off += n
		if w.off == uint64(e.length) {
			return true
		}
	}
}
